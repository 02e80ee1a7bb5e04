//! That the suite can tell: every wrong rule is off by as much as the reference program says.

use std::collections::BTreeMap;

use foretoken_acceptance::{Distribution, Proposal, accepted_len, threshold};

use crate::models::{full, table};
use crate::rule::{Rule, Scene, error};
use crate::windows::{longest_of_two, siblings_independent};
use crate::wrong_coins::{block_coins_by_position, shared_uniform};
use crate::wrong_rules::*;

/// How far a total variation may be from the stored one.
const TOLERANCE: f64 = 1e-9;

/// A wrong rule of one round: its name in `wrong.txt`, the rule, the target's table, γ, and the length compared.
type Row = (&'static str, Box<dyn Rule>, &'static str, usize, usize);

/// A wrong way that is no single round: its name, and its error by the models' seed.
type Way = (&'static str, fn(u32) -> f64);

const WAYS: [Way; 4] = [
    ("block_coins_by_position", block_coins_by_position),
    ("shared_uniform", shared_uniform),
    ("siblings_independent", siblings_independent),
    ("longest_of_two", longest_of_two),
];

fn rows() -> Vec<Row> {
    vec![
        ("scalar_residual", Box::new(ScalarResidual), "p", 3, 4),
        ("repair_from_target", Box::new(RepairFromTarget), "p", 3, 4),
        ("top_two_sent_raw", Box::new(TopTwoSentRaw), "p", 3, 4),
        ("top_two_sent_renormalised", Box::new(TopTwoSentRenormalised), "p", 3, 4),
        ("low_confidence_dropped", Box::new(LowConfidenceDropped(0.25)), "p", 3, 5),
        ("proactive_untested", Box::new(ProactiveUntested), "p", 2, 5),
        ("ratio_inverted", Box::new(RatioInverted), "p", 1, 1),
        ("missing_q_by_argmax", Box::new(MissingQByArgmax), "p", 1, 1),
        ("cut_at_forbidden", Box::new(CutAtForbidden), "pz", 3, 5),
        ("late_block_dropped_0.40", Box::new(LateBlockDropped(0.4)), "p", 3, 4),
        ("late_block_dropped_0.50", Box::new(LateBlockDropped(0.5)), "p", 3, 4),
        ("plain_token_dropped", Box::new(PlainTokenDropped), "p", 2, 5),
        ("lattice_liar_0", Box::new(LatticeLiar(0)), "p", 1, 1),
        ("lattice_liar_1", Box::new(LatticeLiar(1)), "p", 1, 1),
        ("lattice_liar_2", Box::new(LatticeLiar(2)), "p", 1, 1),
        ("lattice_liar_3", Box::new(LatticeLiar(3)), "p", 1, 1),
        ("coin_known", Box::new(CoinKnown), "p", 1, 1),
        ("block_read_as_token", Box::new(BlockReadAsToken), "p", 3, 5),
        ("block_with_token_residual", Box::new(BlockWithTokenResidual), "p", 3, 5),
    ]
}

fn stored() -> BTreeMap<(String, u32), f64> {
    let lines = include_str!("../data/wrong.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            ((fields[0].to_owned(), fields[1].parse().unwrap()), fields[2].parse().unwrap())
        })
        .collect()
}

#[test]
fn every_wrong_rule_has_the_error_of_the_reference() {
    let mut stored = stored();
    let mut off = Vec::new();
    let mut compare = |name: &str, seed: u32, error: f64| {
        let right = stored.remove(&(name.to_owned(), seed)).expect("the row is stored");
        if (error - right).abs() > TOLERANCE {
            off.push(format!("{name} seed {seed}: {error} instead of {right}"));
        }
        // A million times what a right rule is off by.
        assert!(right > 1e-3, "{name} is hardly wrong on seed {seed}");
    };
    for seed in 0..2 {
        for (name, rule, target, gamma, length) in rows() {
            let scene = Scene { p: table(target, seed), q: full(table("q", seed)), gamma, length };
            compare(name, seed, error(&*rule, &scene));
        }
        for (name, error) in WAYS {
            compare(name, seed, error(seed));
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
    assert!(stored.is_empty(), "stored but not run: {:?}", stored.keys());
}

#[test]
fn at_most_accepts_the_impossible() {
    let p = Distribution::from_probs(&[0.0, 0.6, 0.4, 0.0]);
    let q = Distribution::from_probs(&[0.25; 4]);
    let thresholds = [threshold(&p, Proposal::Full(&q), 0)];
    assert_eq!(accepted_len_at_most(&thresholds, |_| 0.0), 1, "p = 0 stands with u = 0");
    assert_eq!(accepted_len(&thresholds, |_| 0.0), 0);
}
