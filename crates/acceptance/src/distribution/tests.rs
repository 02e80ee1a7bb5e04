use super::*;
use proptest::prelude::*;

const JUST_BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;
const MASKED: f32 = f32::NEG_INFINITY;

fn sampling(temperature: f64, top_k: u32, top_p: f64, min_p: f64) -> Sampling {
    Sampling::new(temperature, top_k, top_p, min_p).unwrap()
}

fn plain() -> Sampling {
    sampling(1.0, 0, 1.0, 0.0)
}

fn support(logits: &[f32], sampling: &Sampling) -> Vec<u32> {
    Distribution::from_logits(logits, sampling).unwrap().iter().map(|(id, _)| id).collect()
}

/// The definition, written down without a thought for speed: `(id, p)` in order of ids. None where a probability is
/// so close to a bound that rounding may decide.
fn naive(logits: &[f32], sampling: &Sampling) -> Option<Vec<(u32, f64)>> {
    let peak = logits.iter().copied().fold(MASKED, f32::max);
    let mut kept: Vec<(u32, f64)> =
        (0u32..).zip(logits.iter().map(|&l| f64::from(l) - f64::from(peak))).collect();
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for token in &mut kept {
        token.1 = libm::exp(token.1 / sampling.temperature());
    }
    let normalise = |kept: &mut Vec<(u32, f64)>| {
        let sum: f64 = kept.iter().map(|t| t.1).sum();
        kept.iter_mut().for_each(|t| t.1 /= sum);
    };
    if sampling.top_k() > 0 {
        kept.truncate(sampling.top_k() as usize);
    }
    normalise(&mut kept);
    if sampling.top_p() < 1.0 {
        let mut mass = 0.0;
        let mut length = kept.len();
        for (i, &(_, p)) in kept.iter().enumerate() {
            mass += p;
            if (mass - sampling.top_p()).abs() < 1e-9 {
                return None;
            }
            if mass >= sampling.top_p() {
                length = i + 1;
                break;
            }
        }
        kept.truncate(length);
        normalise(&mut kept);
    }
    let bound = sampling.min_p() * kept[0].1;
    if sampling.min_p() > 0.0
        && sampling.min_p() < 1.0
        && kept.iter().any(|t| (t.1 - bound).abs() < 1e-9 * bound)
    {
        return None;
    }
    kept.retain(|t| t.1 >= bound && t.1 > 0.0);
    normalise(&mut kept);
    kept.sort_by_key(|t| t.0);
    Some(kept)
}

/// Logits on a coarse grid, so that ties are common, some of them masked, the last one never.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![9 => (-40i16..40).prop_map(|q| f32::from(q) / 4.0), 1 => Just(MASKED)];
    prop::collection::vec(logit, 0..300).prop_map(|mut logits| {
        logits.push(0.0);
        logits
    })
}

fn samplings() -> impl Strategy<Value = Sampling> {
    let temperature = prop_oneof![Just(1.0), 0.05f64..3.0, Just(100.0), Just(1e-3)];
    let top_k = prop_oneof![Just(0u32), 1u32..20, 1u32..400];
    let top_p = prop_oneof![Just(1.0), 0.01f64..1.0, Just(0.999_999)];
    let min_p = prop_oneof![Just(0.0), 0.0f64..1.0, Just(1.0)];
    (temperature, top_k, top_p, min_p).prop_map(|(t, k, p, m)| sampling(t, k, p, m))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn is_what_the_definition_says(logits in logits(), sampling in samplings()) {
        let right = naive(&logits, &sampling);
        prop_assume!(right.is_some());
        let right = right.unwrap();
        let ours: Vec<_> = Distribution::from_logits(&logits, &sampling).unwrap().iter().collect();
        let ids = |v: &[(u32, f64)]| v.iter().map(|t| t.0).collect::<Vec<_>>();
        prop_assert_eq!(ids(&ours), ids(&right));
        for (ours, right) in ours.iter().zip(&right) {
            prop_assert!((ours.1 - right.1).abs() <= 1e-12 * right.1, "{:?} {:?}", ours, right);
        }
    }

    #[test]
    fn its_views_agree(logits in logits(), sampling in samplings()) {
        let p = Distribution::from_logits(&logits, &sampling).unwrap();
        let sum: f64 = p.iter().map(|t| t.1).sum();
        prop_assert!((sum - 1.0).abs() < 1e-12);
        prop_assert_eq!(p.support_len(), p.iter().count());
        prop_assert!(p.iter().zip(p.iter().skip(1)).all(|(a, b)| a.0 < b.0));
        for id in 0..logits.len() as u32 + 2 {
            let listed = p.iter().find(|t| t.0 == id).map_or(0.0, |t| t.1);
            prop_assert_eq!(p.prob(id), listed);
        }
        // The likeliest token survives every truncation.
        let greedy = Distribution::from_logits(&logits, &Sampling::GREEDY).unwrap();
        prop_assert_eq!(greedy.iter().collect::<Vec<_>>(), [(p.argmax(), 1.0)]);
        let dense: Vec<f64> = (0..logits.len() as u32).map(|id| p.prob(id)).collect();
        let copy = Distribution::from_probs(&dense);
        prop_assert_eq!(copy.iter().collect::<Vec<_>>(), p.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_draw_is_never_impossible(logits in logits(), sampling in samplings(), coin in 0.0f64..1.0) {
        let p = Distribution::from_logits(&logits, &sampling).unwrap();
        for coin in [0.0, f64::MIN_POSITIVE, coin, JUST_BELOW_ONE] {
            prop_assert!(p.prob(p.draw(coin)) > 0.0);
        }
        prop_assert_eq!(p.draw(0.0), p.iter().next().unwrap().0);
    }

    #[test]
    fn a_draw_follows_the_running_sum(logits in logits(), sampling in samplings(), coin in 0.0f64..1.0) {
        let p = Distribution::from_logits(&logits, &sampling).unwrap();
        let drawn = p.draw(coin);
        let before: f64 = p.iter().take_while(|t| t.0 < drawn).map(|t| t.1).sum();
        prop_assert!(before <= coin);
        prop_assert!(coin < before + p.prob(drawn) || p.iter().last().unwrap().0 == drawn);
    }
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    assert_eq!(support(&[1.0, 3.0, -0.5, 3.0], &Sampling::GREEDY), [1]);
    assert_eq!(support(&[-0.0, 0.0], &Sampling::GREEDY), [0]);
    assert_eq!(Distribution::from_probs(&[0.2, 0.4, 0.4]).argmax(), 1);
}

#[test]
fn truncations_keep_the_lowest_ids_of_equals() {
    let equal = [0.5; 8];
    assert_eq!(support(&equal, &sampling(1.0, 3, 1.0, 0.0)), [0, 1, 2]);
    assert_eq!(support(&equal, &sampling(1.0, 0, 0.5, 0.0)), [0, 1, 2, 3]);
    assert_eq!(support(&equal, &sampling(1.0, 4, 0.5, 0.0)), [0, 1]);
    assert_eq!(support(&equal, &sampling(1.0, 0, 1e-9, 0.0)), [0]);
    assert_eq!(support(&equal, &sampling(1.0, 0, 1.0, 1.0)), (0..8).collect::<Vec<_>>());
    assert_eq!(support(&[0.0, 1.0, 1.0, 0.0], &sampling(1.0, 3, 1.0, 0.0)), [0, 1, 2]);
}

#[test]
fn top_p_is_of_what_top_k_left() {
    // Of all four the first has 0.4; of the first two it has 2/3, which alone reaches 0.6.
    let logits = [0.4f32, 0.2, 0.2, 0.2].map(f32::ln);
    assert_eq!(support(&logits, &sampling(1.0, 0, 0.6 - 1e-6, 0.0)), [0, 1]);
    assert_eq!(support(&logits, &sampling(1.0, 2, 0.6 - 1e-6, 0.0)), [0]);
}

#[test]
fn top_p_widens_over_a_flat_vocabulary() {
    let flat = vec![0.0f32; 10_000];
    let kept = support(&flat, &sampling(1.0, 0, 0.75, 0.0));
    assert_eq!(kept, (0..7500).collect::<Vec<_>>());
    // A mass that only all of them reach, or that rounding keeps even them from reaching.
    assert_eq!(support(&flat, &sampling(1.0, 0, 1.0 - 1e-9, 0.0)).len(), 10_000);
    assert_eq!(support(&[0.1; 7], &sampling(1.0, 0, 1.0 - f64::EPSILON / 2.0, 0.0)).len(), 7);
}

#[test]
fn extreme_temperatures_and_logits_stay_finite() {
    let logits = [f32::MAX, f32::MIN, 0.0, f32::MAX, MASKED];
    for temperature in [1e-310, 1e-30, 1.0, 100.0] {
        let p = Distribution::from_logits(&logits, &sampling(temperature, 0, 1.0, 0.0)).unwrap();
        assert_eq!(p.iter().collect::<Vec<_>>(), [(0, 0.5), (3, 0.5)]);
    }
    let close = [1.0, 1.0 + f32::EPSILON];
    assert_eq!(support(&close, &sampling(1e-310, 0, 1.0, 0.0)), [1]);
    assert_eq!(support(&[MASKED, -1e30], &plain()), [1]);
}

#[test]
fn unusable_logits_are_named_and_change_nothing() {
    let mut p = Distribution::from_logits(&[0.0, 1.0], &plain()).unwrap();
    let before: Vec<_> = p.iter().collect();
    for (at, length) in [(0, 1), (5, 40), (39, 40), (33, 34)] {
        let mut logits = vec![0.5f32; length];
        logits[at] = f32::NAN;
        for s in [plain(), Sampling::GREEDY] {
            assert_eq!(p.fill(&logits, &s), Err(LogitsError::NotANumber { token: at }));
        }
        logits[at] = f32::INFINITY;
        assert_eq!(p.fill(&logits, &plain()), Err(LogitsError::PositiveInfinity { token: at }));
    }
    assert_eq!(p.fill(&[f32::INFINITY, f32::NAN], &plain()), Err(LogitsError::PositiveInfinity { token: 0 }));
    assert_eq!(p.fill(&[MASKED; 3], &plain()), Err(LogitsError::AllMasked { vocabulary: 3 }));
    assert_eq!(p.fill(&[], &Sampling::GREEDY), Err(LogitsError::Empty));
    assert_eq!(p.iter().collect::<Vec<_>>(), before);
    assert_eq!(
        LogitsError::NotANumber { token: 7 }.to_string(),
        "the logit of token 7 is NaN; the model's output is unusable"
    );
}

#[test]
fn a_coin_on_a_border_belongs_to_the_token_behind_it() {
    let p = Distribution::from_probs(&[0.25, 0.25, 0.0, 0.5]);
    assert_eq!([0.0, 0.25, 0.5].map(|coin| p.draw(coin)), [0, 1, 3]);
}

#[test]
fn a_short_sum_falls_to_the_last_possible_token() {
    let p = Distribution::from_probs(&[0.3, 0.0, 0.7 - 1e-7, 0.0]);
    assert_eq!(p.draw(JUST_BELOW_ONE), 2);
    assert_eq!(Distribution::from_probs(&[0.0, 1.0]).draw(0.0), 1);
}

#[test]
fn the_default_is_a_distribution() {
    let p = Distribution::default();
    assert_eq!((p.draw(0.9), p.argmax(), p.prob(0), p.support_len()), (0, 0, 1.0, 1));
}

#[test]
fn refilling_does_not_move_or_grow_a_buffer() {
    let rows: Vec<Vec<f32>> = (0..4u32)
        .map(|r| (0..5000u32).map(|i| ((i * 7919 + r * 13) % 4999) as f32 / 400.0).collect())
        .collect();
    let settings = [
        plain(),
        Sampling::GREEDY,
        sampling(0.7, 40, 0.9, 0.05),
        sampling(1.0, 0, 0.95, 0.0),
        sampling(1.0, 0, 1.0, 0.02),
        sampling(2.0, 3000, 1.0, 0.0),
    ];
    let mut p = Distribution::default();
    let buffers = |p: &Distribution| {
        [
            (p.ids.as_ptr() as usize, p.ids.capacity()),
            (p.probs.as_ptr() as usize, p.probs.capacity()),
            (p.best.0.as_ptr() as usize, p.best.0.capacity()),
        ]
    };
    for s in &settings {
        p.fill(&rows[0], s).unwrap();
    }
    let warm = buffers(&p);
    for row in &rows {
        for s in &settings {
            p.fill(row, s).unwrap();
            assert_eq!(buffers(&p), warm, "{s:?}");
        }
    }
}
