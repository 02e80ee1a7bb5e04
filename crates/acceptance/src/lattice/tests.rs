use super::*;
use proptest::prelude::*;

fn distribution() -> impl Strategy<Value = Distribution> {
    prop::collection::vec(0u32..50, 1..80).prop_map(|mut weights| {
        weights[0] += 1;
        let sum: u32 = weights.iter().sum();
        let probs: Vec<f64> = weights.iter().map(|&w| f64::from(w) / f64::from(sum)).collect();
        Distribution::from_probs(&probs)
    })
}

fn shape() -> impl Strategy<Value = LatticeShape> {
    (1u32..40, 0u32..5000).prop_map(|(k, more)| LatticeShape::new(k, k + more).unwrap())
}

fn filled(p: &Distribution, k: u32, n: u32) -> Lattice {
    let mut lattice = Lattice::default();
    lattice.fill(p, LatticeShape::new(k, n).unwrap());
    lattice
}

/// The least word that falls into `share`.
fn word_of(share: u32, n: u32) -> u64 {
    (u128::from(share) << 64).div_ceil(u128::from(n)) as u64
}

proptest! {
    #[test]
    fn holds_its_invariants(p in distribution(), shape in shape()) {
        let mut lattice = Lattice::default();
        lattice.fill(&p, shape);
        prop_assert_eq!(lattice.n(), shape.n);
        prop_assert_eq!(lattice.counts().iter().sum::<u32>(), shape.n);
        prop_assert!(lattice.ids().len() <= shape.k as usize);
        prop_assert!(lattice.ids().iter().all(|&id| p.prob(id) > 0.0));
        let received = Lattice::from_parts(lattice.ids().to_vec(), lattice.counts().to_vec(), 80);
        prop_assert_eq!(received.unwrap(), lattice);
    }

    #[test]
    fn is_within_one_share_of_the_truth(p in distribution(), n in 80u32..5000) {
        let lattice = filled(&p, 80, n);
        for id in 0..80 {
            prop_assert!((lattice.prob(id) - p.prob(id)).abs() < 1.0 / f64::from(n));
        }
    }

    #[test]
    fn every_share_is_drawn_by_its_owner(p in distribution(), shape in shape()) {
        let mut lattice = Lattice::default();
        lattice.fill(&p, shape);
        let n = lattice.n();
        let mut drawn = vec![0u32; 80];
        for share in 0..n {
            let first = word_of(share, n);
            let last = if share + 1 == n { u64::MAX } else { word_of(share + 1, n) - 1 };
            let owner = lattice.draw(first);
            prop_assert_eq!(lattice.draw(last), owner);
            drawn[owner as usize] += 1;
        }
        for (id, count) in (0u32..).zip(drawn) {
            prop_assert_eq!(f64::from(count) / f64::from(n), lattice.prob(id));
        }
    }
}

#[test]
fn rounds_by_largest_remainder() {
    let p = Distribution::from_probs(&[0.5, 0.3, 0.2]);
    // 3.5, 2.1, 1.4 shares of 7: the one left goes to the first.
    let lattice = filled(&p, 3, 7);
    assert_eq!((lattice.ids(), lattice.counts()), (&[0, 1, 2][..], &[4, 2, 1][..]));
    // Equal remainders: the lowest ids.
    let equal = Distribution::from_probs(&[0.25; 4]);
    assert_eq!(filled(&equal, 4, 6).counts(), [2, 2, 1, 1]);
    // The likeliest two, the lowest of the equal ones, renormalised.
    let lattice = filled(&Distribution::from_probs(&[0.2, 0.2, 0.4, 0.2]), 2, 6);
    assert_eq!((lattice.ids(), lattice.counts()), (&[0, 2][..], &[2, 4][..]));
    // Tokens left without a share are gone.
    let lattice = filled(&Distribution::from_probs(&[0.01, 0.0, 0.99]), 3, 8);
    assert_eq!((lattice.ids(), lattice.counts(), lattice.n()), (&[2][..], &[8][..], 8));
}

#[test]
fn a_greedy_distribution_becomes_one_token() {
    let greedy = Distribution::from_logits(&[0.0, 2.0, 1.0], &crate::Sampling::GREEDY).unwrap();
    let lattice = filled(&greedy, 32, 4096);
    assert_eq!((lattice.ids(), lattice.counts()), (&[1][..], &[4096][..]));
    assert_eq!((lattice.draw(0), lattice.draw(u64::MAX)), (1, 1));
}

#[test]
fn a_received_one_is_checked() {
    let parts = |ids: &[u32], counts: &[u32]| Lattice::from_parts(ids.to_vec(), counts.to_vec(), 10);
    assert_eq!(parts(&[], &[]), Err(LatticeError::Empty));
    assert_eq!(parts(&[1], &[]), Err(LatticeError::Lengths { ids: 1, counts: 0 }));
    assert_eq!(parts(&[1, 1], &[1, 1]), Err(LatticeError::Order { before: 1, id: 1 }));
    assert_eq!(parts(&[3, 2], &[1, 1]), Err(LatticeError::Order { before: 3, id: 2 }));
    assert_eq!(parts(&[3, 10], &[1, 1]), Err(LatticeError::Vocabulary { id: 10, vocabulary: 10 }));
    assert_eq!(parts(&[3, 4], &[1, 0]), Err(LatticeError::ZeroCount { id: 4 }));
    assert_eq!(parts(&[3, 4], &[MAX_N, 1]), Err(LatticeError::Sum { sum: u64::from(MAX_N) + 1 }));
    assert_eq!(parts(&[3, 4], &[u32::MAX; 2]), Err(LatticeError::Sum { sum: 2 * u64::from(u32::MAX) }));
    let lattice = parts(&[3, 9], &[MAX_N - 1, 1]).unwrap();
    assert_eq!((lattice.n(), lattice.draw(u64::MAX), lattice.draw(0)), (MAX_N, 9, 3));
    assert_eq!(
        LatticeError::Order { before: 3, id: 2 }.to_string(),
        "the lattice has id 2 behind id 3; ids must be strictly ascending"
    );
}

#[test]
fn shapes_are_checked() {
    assert_eq!(LatticeShape::new(32, 4096), Ok(LatticeShape::default()));
    assert!(LatticeShape::new(1, 1).is_ok());
    assert!(LatticeShape::new(MAX_N, MAX_N).is_ok());
    for (k, n) in [(0, 1), (2, 1), (0, 0), (1, MAX_N + 1)] {
        assert_eq!(LatticeShape::new(k, n), Err(ShapeError { k, n }));
    }
    // Written without the check, it is brought into range.
    let mut lattice = Lattice::default();
    lattice.fill(&Distribution::from_probs(&[0.5, 0.5]), LatticeShape { k: 0, n: 0 });
    assert_eq!((lattice.ids(), lattice.counts(), lattice.n()), (&[0][..], &[1][..], 1));
}

#[test]
fn equal_lattices_are_equal_whatever_made_them() {
    let made = filled(&Distribution::from_probs(&[0.5, 0.5]), 2, 2);
    assert_eq!(made, Lattice::from_parts(vec![0, 1], vec![1, 1], 2).unwrap());
    assert_eq!(Lattice::default(), Lattice::from_parts(vec![0], vec![1], 1).unwrap());
    assert_eq!(made.clone(), made);
}

#[test]
fn refilling_does_not_move_or_grow_a_buffer() {
    let rows: Vec<Distribution> = (0..4u32)
        .map(|r| {
            let weights: Vec<f64> = (0..3000u32).map(|i| f64::from((i * 7919 + r * 17) % 2999 + 1)).collect();
            let sum: f64 = weights.iter().sum();
            Distribution::from_probs(&weights.iter().map(|w| w / sum).collect::<Vec<_>>())
        })
        .collect();
    let mut lattice = Lattice::default();
    let buffers = |l: &Lattice| {
        [
            (l.ids.as_ptr() as usize, l.ids.capacity()),
            (l.counts.as_ptr() as usize, l.counts.capacity()),
            (l.best.0.as_ptr() as usize, l.best.0.capacity()),
            (l.remainders.0.as_ptr() as usize, l.remainders.0.capacity()),
        ]
    };
    lattice.fill(&rows[0], LatticeShape::default());
    let warm = buffers(&lattice);
    for row in &rows {
        lattice.fill(row, LatticeShape::default());
        assert_eq!(buffers(&lattice), warm);
    }
}

#[test]
fn weights_in_any_proportion_make_the_same_lattice() {
    let shape = LatticeShape::new(3, 7).unwrap();
    let probs = [0.125, 0.0, 0.5, 0.375];
    let right = filled(&Distribution::from_probs(&probs), 3, 7);
    let mut lattice = Lattice::default();
    lattice.fill_weights([(0, 1.0), (2, 4.0), (3, 3.0)].into_iter(), shape);
    assert_eq!(lattice, right);
    lattice.fill_weights(std::iter::empty(), shape);
    assert_eq!(lattice, Lattice::default());
}

#[test]
fn a_one_hot_lattice_always_gives_its_token() {
    let lattice = Lattice::one_hot(9);
    assert_eq!((lattice.prob(9), lattice.prob(8), lattice.n()), (1.0, 0.0, 1));
    for word in [0, 1 << 63, u64::MAX] {
        assert_eq!(lattice.draw(word), 9);
    }
    assert_eq!(Lattice::from_parts(vec![9], vec![1], 10).unwrap(), lattice);
}
