use super::*;
use crate::coins::{CoinKey, RequestKeys};
use crate::params::Sampling;
use proptest::prelude::*;

/// (seed, sample index, position, id, word), from an implementation of the formula that shares no code with this one.
/// If these change, every seed changes its meaning: that must never happen.
#[rustfmt::skip]
const GOLDEN: [(u64, u32, u64, u32, u64); 20] = [
    (0x0, 0x0, 0x0, 0x0, 0xf8c7e6885025d215),
    (0x0, 0x0, 0x0, 0x1, 0x9fbb9f7a870b8489),
    (0x0, 0x0, 0x0, 0x7, 0x7ffdf80e64239793),
    (0x0, 0x0, 0x0, 0x8, 0x0cca8646576ee511),
    (0x0, 0x0, 0x0, 0x1f, 0xe955afae9a237bf7),
    (0x0, 0x0, 0x0, 0x20, 0x6562aecb077f7322),
    (0x0, 0x0, 0x0, 0x21, 0x4dd6260358681088),
    (0x0, 0x0, 0x0, 0x3e8, 0xe624a38cf407446c),
    (0x0, 0x0, 0x0, 0xbfff, 0x3a0d4ae3602c171d),
    (0x0, 0x0, 0x0, 0xffffffff, 0xecf0a3435ecf7d18),
    (0x2a, 0x1, 0x11, 0x0, 0x06f62b1c67cd5c0c),
    (0x2a, 0x1, 0x11, 0x8, 0x81066dd5cf1c9b49),
    (0x2a, 0x1, 0x11, 0x20, 0x4ec815bccc2b8061),
    (0x2a, 0x1, 0x11, 0x21, 0xbbaf016589c71894),
    (0x2a, 0x1, 0x11, 0xbfff, 0xa125d91456e38985),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0x1, 0xd964ad1a8f4dc09e),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0x7, 0x707c898a1925303d),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0x1f, 0xf69eb8206afcc38c),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0x3e8, 0x2ad402c8e51da540),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0xffffffff, 0x32edc3669887225f),
];

fn key(seed: u64) -> CoinKey {
    RequestKeys::new(seed, 0).verifier().noise()
}

#[test]
fn a_seed_means_the_same_for_ever() {
    for (seed, sample, position, id, word) in GOLDEN {
        let u = RequestKeys::new(seed, sample).verifier().noise().noise(position).uniform(id);
        assert_eq!(u, (2 * (word >> 12) + 1) as f64 / 2f64.powi(53), "{seed} {sample} {position} {id}");
    }
    // E of the first, from another language's doubles.
    assert_eq!(key(0).noise(0).exponential(0).to_bits(), 0x3f9d_4aa1_bd9b_f459);
}

#[test]
fn noise_does_not_depend_on_the_order_in_which_it_is_asked_for() {
    let ids = [0, 31, 32, 5, 64, 1000, 999, 33, 0];
    let mut one = key(1).noise(9);
    let together = ids.map(|id| one.uniform(id));
    assert_eq!(together, ids.map(|id| key(1).noise(9).uniform(id)));
    assert_ne!(together, ids.map(|id| key(1).noise(10).uniform(id)));
}

/// By the definition, with every logarithm.
fn by_definition(p: &Distribution, noise: &mut Noise) -> u32 {
    let mut best = (0, f64::INFINITY);
    for (id, p) in p {
        let ratio = noise.exponential(id) / p;
        if ratio < best.1 {
            best = (id, ratio);
        }
    }
    best.0
}

proptest! {
    #[test]
    fn the_short_way_finds_the_same_token(
        logits in prop::collection::vec(-30f32..30.0, 1..300), temperature in 0.1f64..3.0, top_k in 0u32..50,
        seed in any::<u64>(), position in any::<u64>(),
    ) {
        let sampling = Sampling::new(temperature, top_k, 1.0, 0.0).unwrap();
        let p = Distribution::from_logits(&logits, &sampling).unwrap();
        let drawn = draw(&p, &mut key(seed).noise(position));
        prop_assert_eq!(drawn, by_definition(&p, &mut key(seed).noise(position)));
        prop_assert!(p.prob(drawn) > 0.0);
    }

    #[test]
    fn a_token_that_is_certain_is_drawn(token in 0u32..70, seed in any::<u64>()) {
        let probs: Vec<f64> = (0..70).map(|id| f64::from(u8::from(id == token))).collect();
        prop_assert_eq!(draw(&Distribution::from_probs(&probs), &mut key(seed).noise(0)), token);
    }
}

#[test]
fn tokens_are_drawn_as_often_as_they_are_likely_and_couple_as_often_as_the_closed_form_says() {
    let p = Distribution::from_probs(&[0.05, 0.0, 0.4, 0.25, 0.3]);
    let q = Distribution::from_probs(&[0.3, 0.1, 0.2, 0.0, 0.4]);
    let n = 100_000u32;
    let (mut counts, mut coupled) = ([0u32; 5], 0);
    for position in 0..u64::from(n) {
        let y = draw(&p, &mut key(5).noise(position));
        counts[y as usize] += 1;
        coupled += u32::from(y == draw(&q, &mut key(5).noise(position)));
    }
    let far = |count: u32, share: f64| {
        let deviation = (f64::from(n) * share * (1.0 - share)).sqrt();
        (f64::from(count) - f64::from(n) * share).abs() / deviation.max(1e-9)
    };
    for (id, &count) in (0u32..).zip(&counts) {
        assert!(count == 0 && p.prob(id) == 0.0 || far(count, p.prob(id)) < 5.0, "{counts:?}");
    }
    // Σ_i 1 / Σ_j max(p_j/p_i, q_j/q_i) over the tokens that both may draw.
    let both = (0..5).filter(|&i| p.prob(i) > 0.0 && q.prob(i) > 0.0);
    let closed: f64 = both
        .map(|i| 1.0 / (0..5).map(|j| (p.prob(j) / p.prob(i)).max(q.prob(j) / q.prob(i))).sum::<f64>())
        .sum();
    assert!(far(coupled, closed) < 5.0, "{coupled} of {n} coupled, expected a share of {closed}");
}

#[test]
fn drafted_tokens_stand_up_to_the_first_that_is_not_emitted() {
    assert_eq!(accepted_len(&[1, 2, 3], &[1, 2, 3]), 3);
    assert_eq!(accepted_len(&[1, 2, 3], &[1, 5]), 1);
    assert_eq!(accepted_len(&[1, 2, 3], &[]), 0);
    assert_eq!(accepted_len(&[], &[]), 0);
}

#[test]
fn debug_shows_no_noise() {
    assert_eq!(format!("{:?}", key(1).noise(2)), "Noise(hidden)");
}
