use super::*;
use crate::token_rule;
use proptest::prelude::*;

const V: u32 = 5;
const JUST_BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

fn distribution() -> impl Strategy<Value = Distribution> {
    let weight = prop_oneof![2 => 0u32..20, 1 => Just(0u32)];
    prop::collection::vec(weight, V as usize).prop_map(|mut weights| {
        weights[2] += 1;
        let sum: u32 = weights.iter().sum();
        Distribution::from_probs(&weights.iter().map(|&w| f64::from(w) / f64::from(sum)).collect::<Vec<_>>())
    })
}

/// p and q of each position, whatever came before.
fn positions() -> impl Strategy<Value = Vec<(Distribution, Distribution)>> {
    prop::collection::vec((distribution(), distribution()), 1..4)
}

/// Thresholds, repairs and P of a block.
fn judged(positions: &[(Distribution, Distribution)], block: &[u32], coin: f64) -> [Vec<f64>; 3] {
    let (mut rule, mut out) = (BlockRule::default(), [const { Vec::new() }; 3]);
    for ((p, q), &token) in positions.iter().zip(block) {
        let step = rule.step(p, Proposal::Full(q), token, coin);
        out[0].extend(step.threshold_before);
        out[1].push(f64::from(step.repair));
        out[2].push(step.reach);
    }
    out[0].extend(rule.last_threshold());
    out
}

/// The formulas of the paper, written out.
fn by_definition(positions: &[(Distribution, Distribution)], block: &[u32]) -> [Vec<f64>; 2] {
    let mut reach = vec![1.0];
    for ((p, q), &token) in positions.iter().zip(block) {
        let before = reach[reach.len() - 1];
        reach.push(if q.prob(token) > 0.0 { (before * p.prob(token) / q.prob(token)).min(1.0) } else { 0.0 });
    }
    let gamma = block.len();
    let thresholds = (1..=gamma).map(|i| {
        if i == gamma {
            return reach[i];
        }
        let (p, q) = &positions[i];
        let left: f64 = (0..V).map(|y| (reach[i] * p.prob(y) - q.prob(y)).max(0.0)).sum();
        if left + 1.0 - reach[i] > 0.0 { left / (left + 1.0 - reach[i]) } else { 1.0 }
    });
    [thresholds.collect(), reach[1..].to_vec()]
}

fn blocks(length: usize) -> Vec<Vec<u32>> {
    (0..length).fold(vec![Vec::new()], |blocks, _| {
        blocks.iter().flat_map(|b| (0..V).map(|t| [&b[..], &[t]].concat()).collect::<Vec<_>>()).collect()
    })
}

proptest! {
    #[test]
    fn thresholds_are_those_of_the_paper(positions in positions(), coin in 0.0f64..1.0) {
        for block in blocks(positions.len()) {
            let [thresholds, repairs, reach] = judged(&positions, &block, coin);
            let [right, right_reach] = by_definition(&positions, &block);
            for (ours, right) in thresholds.iter().zip(&right).chain(reach.iter().zip(&right_reach)) {
                prop_assert!((ours - right).abs() < 1e-12 && (0.0..=1.0).contains(ours), "{} {}", ours, right);
            }
            prop_assert_eq!((thresholds.len(), reach.len()), (block.len(), block.len()));
            // What follows comes from the target, and never is what the scaled q covers.
            for (i, &y) in repairs.iter().enumerate() {
                let before = if i == 0 { 1.0 } else { reach[i - 1] };
                let (p, q) = &positions[i];
                let left = |y: u32| before * p.prob(y) - q.prob(y);
                prop_assert!(p.prob(y as u32) > 0.0);
                prop_assert!(left(y as u32) > 0.0 || (0..V).all(|y| left(y) <= 1e-15));
            }
        }
    }

    /// E[τ] = Σ E[P_i], and no less than under the token rule.
    #[test]
    fn as_many_stand_as_the_reach_says_and_no_fewer_than_under_the_token_rule(positions in positions()) {
        let (mut stand, mut reached, mut by_token) = (0.0, 0.0, 0.0);
        for block in blocks(positions.len()) {
            let drawn: f64 = positions.iter().zip(&block).map(|((_, q), &t)| q.prob(t)).product();
            if drawn == 0.0 {
                continue;
            }
            let [thresholds, _, reach] = judged(&positions, &block, 0.5);
            let mut none_behind = 1.0;
            for (i, h) in thresholds.iter().enumerate().rev() {
                stand += drawn * none_behind * h * (i + 1) as f64;
                none_behind *= 1.0 - h;
            }
            reached += drawn * reach.iter().sum::<f64>();
            let mut passes = 1.0;
            for ((p, q), &token) in positions.iter().zip(&block) {
                passes *= token_rule::threshold(p, Proposal::Full(q), token);
                by_token += drawn * passes;
            }
        }
        prop_assert!((stand - reached).abs() < 1e-12, "{} stand, {} reached", stand, reached);
        prop_assert!(stand >= by_token - 1e-12, "{} stand, {} under the token rule", stand, by_token);
    }

    #[test]
    fn one_token_is_judged_as_by_the_token_rule(p in distribution(), q in distribution(), coin in 0.0f64..1.0) {
        let q = Proposal::Full(&q);
        for token in 0..V {
            let mut rule = BlockRule::default();
            let step = rule.step(&p, q, token, coin);
            prop_assert_eq!(step.repair, token_rule::repair(&p, q, coin));
            prop_assert!((rule.last_threshold().unwrap() - token_rule::threshold(&p, q, token)).abs() < 1e-15);
        }
    }
}

#[test]
fn a_shorter_block_has_another_last_threshold() {
    let p = Distribution::from_probs(&[0.5, 0.5]);
    let q = Distribution::from_probs(&[0.25, 0.75]);
    let positions = [(p.clone(), q.clone()), (p, q)];
    let long = judged(&positions, &[1, 0], 0.5)[0].clone();
    let short = judged(&positions, &[1], 0.5)[0].clone();
    // P_1 = 2/3; behind it is left 2/3·1/2 − 1/4 = 1/12 of token 0, so h_1 = (1/12) / (1/12 + 1/3).
    assert!((short[0] - 2.0 / 3.0).abs() < 1e-15 && (long[0] - 0.2).abs() < 1e-15, "{short:?} {long:?}");
}

#[test]
fn an_impossible_token_takes_everything_behind_it_along() {
    let p = Distribution::from_probs(&[0.0, 1.0]);
    let q = Distribution::from_probs(&[0.5, 0.5]);
    let positions = [(q.clone(), q.clone()), (p, q.clone()), (q.clone(), q)];
    let [thresholds, repairs, reach] = judged(&positions, &[0, 0, 0], 0.0);
    assert_eq!((&thresholds[1..], &reach[1..]), (&[0.0, 0.0][..], &[0.0, 0.0][..]));
    assert_eq!(repairs[1], 1.0);
    assert_eq!(accepted_len(&thresholds, |_| 0.0), 1, "not even a coin of 0 lets it stand");
}

#[test]
fn equal_distributions_stand_whole() {
    let p = Distribution::from_probs(&[0.25, 0.75]);
    let positions = [(p.clone(), p.clone()), (p.clone(), p)];
    let [thresholds, ..] = judged(&positions, &[0, 1], 0.5);
    assert_eq!(thresholds, [1.0, 1.0]);
    assert_eq!(accepted_len(&thresholds, |_| JUST_BELOW_ONE), 2);
}

#[test]
fn a_token_its_own_q_excludes_never_stands() {
    let p = Distribution::from_probs(&[0.5, 0.5]);
    let mut rule = BlockRule::default();
    assert_eq!(rule.step(&p, Proposal::OneHot(0), 1, 0.0).reach, 0.0);
    assert_eq!(rule.last_threshold(), Some(0.0));
}

#[test]
fn the_last_coin_below_its_threshold_decides() {
    let coins = [0.4, 0.5, 0.9];
    assert_eq!(accepted_len(&[0.5, 0.6, 0.5], |i| coins[i]), 2);
    assert_eq!(accepted_len(&[0.1, 0.6, 0.5], |i| coins[i]), 2, "whatever becomes of those in front");
    assert_eq!(accepted_len(&[0.5, 0.5, 0.9], |i| coins[i]), 1, "a coin equal to its threshold rejects");
    assert_eq!(accepted_len(&[0.4, 0.5, f64::NAN], |i| coins[i]), 0);
    assert_eq!(accepted_len(&[], |_| 0.0), 0);
    assert_eq!(BlockRule::default().last_threshold(), None);
}
