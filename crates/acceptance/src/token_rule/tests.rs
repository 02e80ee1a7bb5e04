use super::*;
use crate::lattice::{Lattice, LatticeShape};
use proptest::prelude::*;

const JUST_BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;
const V: u32 = 12;

fn distribution() -> impl Strategy<Value = Distribution> {
    let weight = prop_oneof![2 => 0u32..20, 1 => Just(0u32)];
    prop::collection::vec(weight, V as usize).prop_map(|mut weights| {
        weights[5] += 1;
        let sum: u32 = weights.iter().sum();
        Distribution::from_probs(&weights.iter().map(|&w| f64::from(w) / f64::from(sum)).collect::<Vec<_>>())
    })
}

/// What one position emits, exactly: Σ_x q(x)·threshold(x) at x, plus the rejected mass spread over the residual.
fn emitted(p: &Distribution, q: Proposal<'_>) -> Vec<f64> {
    let mut out = vec![0.0; V as usize];
    let mut rejected = 0.0;
    for (x, qx) in q.iter() {
        let t = threshold(p, q, x);
        out[x as usize] += qx * t;
        rejected += qx * (1.0 - t);
    }
    let total: f64 = residual(p, q).map(|r| r.1).sum();
    for (y, weight) in residual(p, q) {
        out[y as usize] += rejected * weight / total;
    }
    out
}

proptest! {
    #[test]
    fn one_position_emits_exactly_p(p in distribution(), full in distribution(), x in 0u32..V, k in 1u32..8) {
        let mut lattice = Lattice::default();
        lattice.fill(&full, LatticeShape::new(k, 64).unwrap());
        for q in [Proposal::Full(&full), Proposal::Lattice(&lattice), Proposal::OneHot(x)] {
            for (id, mass) in (0u32..).zip(emitted(&p, q)) {
                prop_assert!((mass - p.prob(id)).abs() < 1e-12, "{:?} {} {}", q, id, mass);
            }
        }
    }

    #[test]
    fn overlap_is_the_mean_threshold(p in distribution(), full in distribution(), x in 0u32..V) {
        for q in [Proposal::Full(&full), Proposal::OneHot(x)] {
            let mean: f64 = q.iter().map(|(x, qx)| qx * threshold(&p, q, x)).sum();
            prop_assert!((overlap(&p, q) - mean).abs() < 1e-12);
            let left: f64 = residual(&p, q).map(|r| r.1).sum();
            prop_assert!((1.0 - overlap(&p, q) - left).abs() < 1e-12);
        }
    }

    #[test]
    fn thresholds_are_probabilities_and_zero_only_where_p_is(p in distribution(), full in distribution()) {
        let q = Proposal::Full(&full);
        for (x, _) in q.iter() {
            let t = threshold(&p, q, x);
            prop_assert!((0.0..=1.0).contains(&t));
            prop_assert_eq!(t == 0.0, p.prob(x) == 0.0);
        }
    }

    #[test]
    fn the_residual_is_p_minus_q(p in distribution(), full in distribution()) {
        let right: Vec<(u32, f64)> =
            (0..V).map(|id| (id, p.prob(id) - full.prob(id))).filter(|t| t.1 > 0.0).collect();
        prop_assert_eq!(residual(&p, Proposal::Full(&full)).collect::<Vec<_>>(), right);
    }

    #[test]
    fn a_repair_comes_from_the_residual(p in distribution(), full in distribution(), coin in 0.0f64..1.0) {
        let q = Proposal::Full(&full);
        let left: Vec<(u32, f64)> = residual(&p, q).collect();
        for coin in [0.0, coin, JUST_BELOW_ONE] {
            let y = repair(&p, q, coin);
            prop_assert!(p.prob(y) > 0.0);
            prop_assert!(left.is_empty() || left.iter().any(|t| t.0 == y));
        }
    }
}

#[test]
fn an_impossible_token_is_rejected_even_by_a_coin_of_zero() {
    let p = Distribution::from_probs(&[0.0, 1.0]);
    let t = threshold(&p, Proposal::OneHot(0), 0);
    assert_eq!(t, 0.0);
    assert_eq!(accepted_len(&[t], |_| 0.0), 0);
    assert_eq!(repair(&p, Proposal::OneHot(0), 0.0), 1);
}

#[test]
fn a_certain_token_is_accepted_by_every_coin() {
    let p = Distribution::from_probs(&[0.25, 0.75]);
    let q = Distribution::from_probs(&[0.5, 0.5]);
    let t = threshold(&p, Proposal::Full(&q), 1);
    assert_eq!(t, 1.0);
    assert_eq!(accepted_len(&[t], |_| JUST_BELOW_ONE), 1);
    assert_eq!(threshold(&p, Proposal::Full(&q), 0), 0.5);
}

#[test]
fn a_token_its_own_q_excludes_has_threshold_zero() {
    let p = Distribution::from_probs(&[0.25, 0.75]);
    assert_eq!(threshold(&p, Proposal::OneHot(0), 1), 0.0);
    assert_eq!(threshold(&p, Proposal::OneHot(0), 99), 0.0);
}

#[test]
fn a_repair_is_drawn_by_share_of_the_residual() {
    let p = Distribution::from_probs(&[0.25, 0.25, 0.5]);
    let q = Distribution::from_probs(&[0.0, 0.75, 0.25]);
    // Left are 1/4 of token 0 and 1/4 of token 2: half of the coins each.
    let coins = [0.0, 0.49, 0.5, JUST_BELOW_ONE];
    assert_eq!(coins.map(|coin| repair(&p, Proposal::Full(&q), coin)), [0, 0, 2, 2]);
}

#[test]
fn an_empty_residual_falls_back_to_p() {
    let p = Distribution::from_probs(&[0.0, 0.5, 0.5]);
    assert_eq!(residual(&p, Proposal::Full(&p)).count(), 0);
    assert_eq!(repair(&p, Proposal::Full(&p), 0.0), 1);
    assert_eq!(repair(&p, Proposal::Full(&p), 0.75), 2);
}

#[test]
fn the_decision_stops_at_the_first_rejection_and_asks_no_further_coin() {
    let mut asked = Vec::new();
    let coins = [0.4, 0.5, 0.0];
    let n = accepted_len(&[0.5, 0.5, 1.0], |i| {
        asked.push(i);
        coins[i]
    });
    assert_eq!(n, 1, "a coin equal to its threshold rejects");
    assert_eq!(asked, [0, 1]);
    assert_eq!(accepted_len(&[1.0, 1.0], |_| JUST_BELOW_ONE), 2);
    assert_eq!(accepted_len(&[], |_| 0.0), 0);
    assert_eq!(accepted_len(&[f64::NAN], |_| 0.0), 0);
}
