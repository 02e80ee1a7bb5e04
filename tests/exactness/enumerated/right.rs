//! What must be exact, and is.

use foretoken_acceptance::Sampling;

use crate::blocks::{InBlocks, judged};
use crate::models::{Claim, Draft, V, full, greedy, lattice, penalised, sampled, table};
use crate::rule::{Exact, Rule, Scene, Start, drafts, error, mean_accepted};

/// Total variation allowed: rounding of some thousand products.
const EXACT: f64 = 1e-12;

/// Rounds that begin like `rule`'s are exact, judged token by token and as blocks; and blocks do not lose by it.
fn assert_exact(rule: &dyn Rule, scene: impl Fn(u32) -> Scene) {
    let blocks = InBlocks(rule);
    for seed in 0..2 {
        let scene = scene(seed);
        for (name, rule) in [("tokens", rule), ("blocks", &blocks)] {
            let error = error(rule, &scene);
            assert!(error <= EXACT, "seed {seed}, {name}: total variation {error:e}");
        }
        let (by_token, by_block) = (mean_accepted(rule, &scene), mean_accepted(&blocks, &scene));
        assert!(by_block >= by_token - EXACT, "seed {seed}: {by_block} by blocks, {by_token} by tokens");
    }
}

fn sampling(temperature: f64, top_k: u32, top_p: f64, min_p: f64) -> Sampling {
    Sampling::new(temperature, top_k, top_p, min_p).unwrap()
}

fn top_two() -> Sampling {
    sampling(1.0, 2, 1.0, 0.0)
}

#[test]
fn full_q() {
    assert_exact(&Exact, |s| Scene { p: table("p", s), q: full(table("q", s)), gamma: 3, length: 4 });
}

#[test]
fn top_k_q_drawn_after_truncating() {
    assert_exact(&Exact, |s| Scene {
        p: table("p", s),
        q: full(sampled("q", s, top_two())),
        gamma: 3,
        length: 4,
    });
}

#[test]
fn lattice_q() {
    for (k, n) in [(4, 16), (2, 8), (1, 1), (3, 7), (32, 4096)] {
        assert_exact(&Exact, |s| Scene {
            p: table("p", s),
            q: lattice(table("q", s), k, n),
            gamma: 3,
            length: 4,
        });
    }
}

#[test]
fn lattice_of_a_truncated_q() {
    assert_exact(&Exact, |s| Scene {
        p: table("p", s),
        q: lattice(sampled("q", s, top_two()), 32, 4096),
        gamma: 3,
        length: 4,
    });
}

#[test]
fn target_with_zeros() {
    assert_exact(&Exact, |s| Scene { p: table("pz", s), q: full(table("q", s)), gamma: 3, length: 4 });
    assert_exact(&Exact, |s| Scene {
        p: table("pz", s),
        q: lattice(table("q", s), 2, 8),
        gamma: 3,
        length: 5,
    });
}

#[test]
fn sparse_target_under_every_truncation() {
    let settings = [
        sampling(0.7, 3, 1.0, 0.0),
        sampling(1.3, 0, 0.8, 0.0),
        sampling(1.0, 0, 1.0, 0.3),
        sampling(0.9, 3, 0.9, 0.2),
        Sampling::GREEDY,
    ];
    for setting in settings {
        for (k, n) in [(4, 16), (2, 8)] {
            assert_exact(&Exact, |s| Scene {
                p: sampled("p", s, setting),
                q: lattice(table("q", s), k, n),
                gamma: 3,
                length: 4,
            });
        }
        assert_exact(&Exact, |s| Scene {
            p: sampled("p", s, setting),
            q: full(table("q", s)),
            gamma: 3,
            length: 4,
        });
        assert_exact(&Exact, |s| Scene {
            p: sampled("p", s, setting),
            q: greedy(table("q", s)),
            gamma: 3,
            length: 4,
        });
    }
}

#[test]
fn one_hot_greedy_draft() {
    assert_exact(&Exact, |s| Scene { p: table("p", s), q: greedy(table("q", s)), gamma: 3, length: 4 });
}

#[test]
fn one_hot_from_a_draft_that_samples() {
    assert_exact(&TokensOnly, |s| Scene { p: table("p", s), q: full(table("q", s)), gamma: 3, length: 4 });
    assert_exact(&TokensOnly, |s| Scene { p: table("pz", s), q: full(table("q", s)), gamma: 3, length: 4 });
}

#[test]
fn one_hot_of_any_token() {
    for token in 0..V {
        assert_exact(&TokensOnly, |s| {
            let always = Box::new(move |_: &[u32]| Claim::OneHot(token));
            Scene { p: table("p", s), q: always, gamma: 2, length: 3 }
        });
    }
}

#[test]
fn draft_equal_to_the_target() {
    // Every residual is empty; nothing is ever rejected.
    assert_exact(&Exact, |s| Scene { p: table("p", s), q: full(table("p", s)), gamma: 3, length: 4 });
}

#[test]
fn every_draft_length() {
    for gamma in 0..=4 {
        assert_exact(&Exact, |s| Scene {
            p: table("p", s),
            q: lattice(table("q", s), 3, 16),
            gamma,
            length: 5,
        });
    }
}

#[test]
fn p_that_depends_on_the_drafted_history() {
    assert_exact(&Exact, |s| Scene { p: penalised("p", s), q: full(table("q", s)), gamma: 3, length: 5 });
    assert_exact(&Exact, |s| Scene {
        p: penalised("pz", s),
        q: lattice(table("q", s), 2, 8),
        gamma: 3,
        length: 5,
    });
}

#[test]
fn stopping_before_a_token_is_sampled() {
    assert_exact(&StopBefore(0.25), |s| Scene {
        p: table("p", s),
        q: full(table("q", s)),
        gamma: 3,
        length: 5,
    });
    assert_exact(&StopBefore(0.5), |s| Scene {
        p: table("p", s),
        q: full(table("q", s)),
        gamma: 3,
        length: 5,
    });
}

#[test]
fn sending_a_token_of_low_confidence_and_then_stopping() {
    assert_exact(&StopBehind(0.25), |s| Scene {
        p: table("p", s),
        q: full(table("q", s)),
        gamma: 3,
        length: 5,
    });
}

#[test]
fn a_deadline_that_keeps_what_has_arrived() {
    assert_exact(&Deadline, |s| Scene { p: table("p", s), q: full(table("q", s)), gamma: 3, length: 5 });
}

#[test]
fn a_plain_token_dropped_unseen() {
    assert_exact(&DroppedUnseen, |s| Scene { p: table("p", s), q: full(table("q", s)), gamma: 2, length: 5 });
}

#[test]
fn a_block_kept_when_it_begins_with_the_plain_token() {
    assert_exact(&Salvaged, |s| Scene { p: table("p", s), q: full(table("q", s)), gamma: 3, length: 5 });
}

/// E[accepted] of the block rule is Σ E[P_i], whatever the draft.
#[test]
fn blocks_stand_as_far_as_foretold() {
    for gamma in 1..=4 {
        for seed in 0..2 {
            let drafts: [fn(u32) -> Draft; 3] =
                [|s| full(table("q", s)), |s| lattice(table("q", s), 2, 8), |s| greedy(table("q", s))];
            for (target, q) in ["p", "pz"].into_iter().flat_map(|target| drafts.map(|q| (target, q))) {
                let scene = Scene { p: table(target, seed), q: q(seed), gamma, length: gamma + 1 };
                let reach: f64 = Exact
                    .starts(&scene)
                    .iter()
                    .map(|start| start.weight * judged(&Exact, &scene, start).reach.iter().sum::<f64>())
                    .sum();
                let accepted = mean_accepted(&InBlocks(&Exact), &scene);
                assert!(
                    (accepted - reach).abs() <= EXACT,
                    "{target}{seed}, γ {gamma}: {accepted}, not {reach}"
                );
            }
        }
    }
}

/// Only tokens are sent, however they were drawn: each is its own one-hot q.
struct TokensOnly;

impl Rule for TokensOnly {
    fn told(&self, _: &Scene, _: &[u32], token: u32) -> Claim {
        Claim::OneHot(token)
    }
}

/// The draft stops where its likeliest next token is below this, before sampling it.
struct StopBefore(f64);

impl Rule for StopBefore {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        drafts(scene, |block, q| block.len() == scene.gamma || q.confidence() < self.0)
    }
}

/// The draft stops behind a token whose q is below this, and sends it.
struct StopBehind(f64);

impl Rule for StopBehind {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        drafts(scene, |block, _| {
            let last = block.split_last().map(|(&last, before)| (scene.q)(before).proposal().prob(last));
            block.len() == scene.gamma || last.is_some_and(|q| q < self.0)
        })
    }
}

/// The clock ends the draft after 0 to 3 tokens, with equal probability; confidence may end it sooner.
struct Deadline;

impl Rule for Deadline {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        let mut all = Vec::new();
        for arrived in 0..4 {
            let stop = |block: &[u32], q: &Claim| {
                block.len() == arrived || (!block.is_empty() && q.confidence() < 0.5)
            };
            all.extend(drafts(scene, stop).into_iter().map(|s| Start { weight: s.weight / 4.0, ..s }));
        }
        all
    }
}

/// In one round of three, by the clock, a plain token on its way is dropped unseen and a block judged in its place.
struct DroppedUnseen;

impl Rule for DroppedUnseen {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        let mut all: Vec<_> =
            Exact.starts(scene).into_iter().map(|s| Start { weight: s.weight / 3.0, ..s }).collect();
        all.push(Start::of_block(Vec::new(), 2.0 / 3.0));
        all
    }
}

/// A plain token arrives while a block drafted at the old base waits: the token is committed, and the block's rest is
/// judged behind it iff the block began with it.
struct Salvaged;

impl Rule for Salvaged {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        let mut all = Vec::new();
        for (plain, probability) in &(scene.p)(&[]) {
            for start in Exact.starts(scene) {
                let rest = if start.block[0] == plain { start.block[1..].to_vec() } else { Vec::new() };
                all.push(Start {
                    committed: vec![plain],
                    block: rest,
                    weight: start.weight * probability,
                    coins: None,
                });
            }
        }
        all
    }
}
