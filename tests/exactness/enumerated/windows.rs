//! Rounds without a bonus token, composed: blocks drafted ahead of the verdict, and several candidates for one place.

use crate::blocks::InBlocks;
use crate::models::{Claim, Draft, Model, full, probs, table};
use crate::outcomes::Outcomes;
use crate::rule::{Exact, Rule, Scene, Start, decided};

/// Tokens of a block here.
const GAMMA: usize = 2;

/// What may come of a block without a bonus behind it.
struct Verdict {
    /// The accepted tokens, and the repair behind them unless the block stands whole.
    text: Vec<u32>,
    accepted: usize,
    whole: bool,
    weight: f64,
}

fn verdicts(rule: &dyn Rule, scene: &Scene, block: &[u32]) -> Vec<Verdict> {
    let start = Start::of_block(block.to_vec(), 1.0);
    let mut all = Vec::new();
    for decided in decided(rule, scene, &start) {
        let (text, accepted) = (block[..decided.accepted].to_vec(), decided.accepted);
        if accepted == block.len() {
            all.push(Verdict { text, accepted, whole: true, weight: decided.weight });
            continue;
        }
        all.extend(decided.closing.iter().map(|&(token, share)| Verdict {
            text: [&text[..], &[token]].concat(),
            accepted,
            whole: false,
            weight: decided.weight * share,
        }));
    }
    all
}

/// The scene as it is behind `base`.
fn behind(seed: u32, base: &[u32]) -> Scene {
    let model = |name: &'static str| -> Model {
        let (model, base) = (table(name, seed), base.to_vec());
        Box::new(move |text: &[u32]| model(&[&base[..], text].concat()))
    };
    let q: Draft = full(model("q"));
    Scene { p: model("p"), q, gamma: GAMMA, length: 5 }
}

fn drafts(scene: &Scene) -> Vec<(Vec<u32>, f64)> {
    Exact.starts(scene).into_iter().map(|start| (start.block, start.weight)).collect()
}

/// The error of texts that begin with a block, and where it stands whole go on as `next` says, given the block.
fn error(rule: &dyn Rule, seed: u32, next: impl Fn(&mut Outcomes, &[u32], f64)) -> f64 {
    let scene = behind(seed, &[]);
    let mut outcomes = Outcomes::default();
    for (block, drawn) in drafts(&scene) {
        for verdict in verdicts(rule, &scene, &block) {
            let weight = drawn * verdict.weight;
            if verdict.whole {
                next(&mut outcomes, &block, weight);
            } else {
                outcomes.add(verdict.text, weight);
            }
        }
    }
    outcomes.finish(&scene.p, scene.length).total_variation(&Outcomes::target(&scene.p, scene.length))
}

fn assert_exact(next: impl Fn(&dyn Rule, u32, &mut Outcomes, &[u32], f64)) {
    for seed in 0..2 {
        for rule in [&Exact as &dyn Rule, &InBlocks(&Exact)] {
            let error =
                error(rule, seed, |outcomes, block, weight| next(rule, seed, outcomes, block, weight));
            assert!(error <= 1e-12, "seed {seed}: total variation {error:e}");
        }
    }
}

/// A second block judged behind `base`.
fn judge_behind(rule: &dyn Rule, seed: u32, out: &mut Outcomes, base: &[u32], block: &[u32], weight: f64) {
    for verdict in verdicts(rule, &behind(seed, base), block) {
        out.add([base, &verdict.text].concat(), weight * verdict.weight);
    }
}

#[test]
fn a_block_drafted_ahead_replaces_the_bonus() {
    assert_exact(|rule, seed, outcomes, first, weight| {
        for (second, drawn) in drafts(&behind(seed, first)) {
            judge_behind(rule, seed, outcomes, first, &second, weight * drawn);
        }
    });
}

#[test]
fn a_block_drafted_behind_a_guessed_bonus_is_kept_if_the_guess_was_right() {
    assert_exact(|rule, seed, outcomes, first, weight| {
        let scene = behind(seed, first);
        let Claim::Full(guesses) = (scene.q)(&[]) else { panic!("a full q") };
        for (bonus, p) in &(scene.p)(&[]) {
            let base = [first, &[bonus]].concat();
            let right = guesses.prob(bonus);
            outcomes.add(base.clone(), weight * p * (1.0 - right));
            // The tables end here: one token.
            for (second, drawn) in drafts(&Scene { gamma: 1, ..behind(seed, &base) }) {
                judge_behind(rule, seed, outcomes, &base, &second, weight * p * right * drawn);
            }
        }
    });
}

/// By the clock the next block is there in two of three cases; else a bonus is drawn, and the block that comes late is
/// kept without its first token iff that is the bonus. What is left of it is judged anew, as the shorter block it is.
#[test]
fn a_bonus_only_where_the_next_block_is_late() {
    assert_exact(|rule, seed, outcomes, first, weight| {
        let scene = behind(seed, first);
        for (second, drawn) in drafts(&scene) {
            let weight = weight * drawn;
            judge_behind(rule, seed, outcomes, first, &second, weight * 2.0 / 3.0);
            for (bonus, p) in &(scene.p)(&[]) {
                let (base, weight) = ([first, &[bonus]].concat(), weight * p / 3.0);
                if bonus == second[0] {
                    judge_behind(rule, seed, outcomes, &base, &second[1..], weight);
                } else {
                    outcomes.add(base, weight);
                }
            }
        }
    });
}

/// Wrong: two different tokens for one position, each tested as if it were alone, the second first.
pub(crate) fn siblings_independent(seed: u32) -> f64 {
    let scene = behind(seed, &[]);
    let Claim::Full(q) = (scene.q)(&[]) else { panic!("a full q") };
    let q = probs(&q);
    let mut outcomes = Outcomes::default();
    for (first, second) in (0..4usize).flat_map(|a| (0..4usize).map(move |c| (a, c))).filter(|(a, c)| a != c)
    {
        let drawn = q[first] * q[second] / (1.0 - q[first]);
        for of_second in verdicts(&Exact, &scene, &[second as u32]) {
            if of_second.whole {
                outcomes.add(of_second.text, drawn * of_second.weight);
                continue;
            }
            let weight = drawn * of_second.weight;
            for of_first in verdicts(&Exact, &scene, &[first as u32]) {
                // Both repairs are the same residual's: one of them is taken.
                let text = if of_first.whole { of_first.text } else { of_second.text.clone() };
                outcomes.add(text, weight * of_first.weight);
            }
        }
    }
    outcomes.total_variation(&Outcomes::target(&scene.p, 1))
}

/// Wrong: two blocks judged independently, and the one kept of which more stands.
pub(crate) fn longest_of_two(seed: u32) -> f64 {
    let scene = behind(seed, &[]);
    let mut judged = Vec::new();
    for (block, drawn) in drafts(&scene) {
        judged.extend(
            verdicts(&Exact, &scene, &block).into_iter().map(|v| (v.accepted, v.text, drawn * v.weight)),
        );
    }
    let mut outcomes = Outcomes::default();
    for (accepted, text, weight) in &judged {
        for (other_accepted, other, other_weight) in &judged {
            let kept = if accepted >= other_accepted { text } else { other };
            outcomes.add(kept.clone(), weight * other_weight);
        }
    }
    outcomes.finish(&scene.p, 3).total_variation(&Outcomes::target(&scene.p, 3))
}
