//! The block rule's verifier half, enumerated. [`InBlocks`] makes any rule's starts and proposals a block rule's.

use foretoken_acceptance::block_rule::{self, BlockRule};

use crate::models::Claim;
use crate::outcomes::Closing;
use crate::rule::{Rule, Scene, Start, by_coin};

/// A round that begins and is told as the inner one is, and is judged and decided by the block rule.
pub(crate) struct InBlocks<'a>(pub(crate) &'a dyn Rule);

impl Rule for InBlocks<'_> {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        self.0.starts(scene)
    }

    fn told(&self, scene: &Scene, text: &[u32], token: u32) -> Claim {
        self.0.told(scene, text, token)
    }

    fn bonus(&self, scene: &Scene, text: &[u32]) -> Closing {
        self.0.bonus(scene, text)
    }

    fn verified(&self, scene: &Scene, start: &Start) -> (Vec<f64>, Vec<Closing>) {
        let Judged { thresholds, closings, .. } = judged(self, scene, start);
        (thresholds, closings)
    }

    fn accepted(&self, thresholds: &[f64], coins: &[f64]) -> usize {
        block_rule::accepted_len(thresholds, |i| coins[i])
    }
}

/// A block judged as a whole.
pub(crate) struct Judged {
    pub(crate) thresholds: Vec<f64>,
    /// For each number of tokens that may stand, what follows them.
    pub(crate) closings: Vec<Closing>,
    /// P at each position.
    pub(crate) reach: Vec<f64>,
}

/// The verifier's half over all of a block.
pub(crate) fn judged(rule: &dyn Rule, scene: &Scene, start: &Start) -> Judged {
    let mut text = start.committed.clone();
    let mut out = Judged { thresholds: Vec::new(), closings: Vec::new(), reach: Vec::new() };
    let (mut state, mut before) = (BlockRule::default(), 1.0);
    for &token in &start.block {
        let p = (scene.p)(&text);
        let told = rule.told(scene, &text, token);
        let q = told.proposal();
        // By its definition; what is rounding noise beside the rest cannot be told apart by a coin.
        let left: Vec<_> =
            p.iter().map(|(id, p)| (id, before * p - q.prob(id))).filter(|w| w.1 > 1e-14).collect();
        let weights = if left.is_empty() { p.iter().collect() } else { left };
        let here = state;
        out.closings.push(by_coin(&weights, |coin| {
            let mut state = here;
            state.step(&p, q, token, coin).repair
        }));
        let step = state.step(&p, q, token, 0.0);
        out.thresholds.extend(step.threshold_before);
        out.reach.push(step.reach);
        before = step.reach;
        text.push(token);
    }
    out.thresholds.extend(state.last_threshold());
    out.closings.push(rule.bonus(scene, &text));
    out
}
