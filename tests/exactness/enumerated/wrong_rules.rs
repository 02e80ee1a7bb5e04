//! Wrong rules found in the field. Each is the project's own round with the one step replaced that goes wrong.

use foretoken_acceptance::{Lattice, Proposal};

use crate::blocks::{InBlocks, judged};
use crate::models::{Claim, V, normalised, probs};
use crate::outcomes::Closing;
use crate::rule::{Exact, Position, Rule, Scene, Start, drafts};

/// Only the scalar q(x) is sent, so the repair is drawn from p with q taken off at x alone.
pub(crate) struct ScalarResidual;

impl Rule for ScalarResidual {
    fn repair(&self, at: &Position<'_>) -> Closing {
        positive_part(at, |token| if token == at.token { at.told.prob(token) } else { 0.0 })
    }
}

/// Only the scalar q(x) is sent, so the repair is drawn from p.
pub(crate) struct RepairFromTarget;

impl Rule for RepairFromTarget {
    fn repair(&self, at: &Position<'_>) -> Closing {
        at.p.iter().collect()
    }
}

/// Drawn from the full q; the residual uses the two likeliest entries of it, as they are.
pub(crate) struct TopTwoSentRaw;

impl Rule for TopTwoSentRaw {
    fn repair(&self, at: &Position<'_>) -> Closing {
        let top = two_likeliest(at.told);
        positive_part(at, |token| if top.contains(&token) { at.told.prob(token) } else { 0.0 })
    }
}

/// Drawn from the full q; told are its two likeliest entries, renormalised.
pub(crate) struct TopTwoSentRenormalised;

impl Rule for TopTwoSentRenormalised {
    fn told(&self, scene: &Scene, text: &[u32], _: u32) -> Claim {
        let q = (scene.q)(text);
        let top = two_likeliest(q.proposal());
        let kept: Vec<f64> =
            (0..V).map(|id| if top.contains(&id) { q.proposal().prob(id) } else { 0.0 }).collect();
        Claim::Full(normalised(&kept))
    }
}

/// A token sampled with low confidence is dropped instead of sent.
pub(crate) struct LowConfidenceDropped(pub(crate) f64);

impl Rule for LowConfidenceDropped {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        let mut all = drafts(scene, |block, _| {
            block.len() == scene.gamma || last_prob(scene, block).is_some_and(|q| q < self.0)
        });
        for start in &mut all {
            if last_prob(scene, &start.block).is_some_and(|q| q < self.0) {
                start.block.pop();
            }
        }
        all
    }
}

/// The first token drafted ahead of the verdict is kept untested after a full accept.
pub(crate) struct ProactiveUntested;

impl Rule for ProactiveUntested {
    fn bonus(&self, scene: &Scene, text: &[u32]) -> Closing {
        (scene.q)(text).drawn()
    }
}

/// The ratio upside down.
pub(crate) struct RatioInverted;

impl Rule for RatioInverted {
    fn threshold(&self, at: &Position<'_>) -> f64 {
        (at.told.prob(at.token) / at.p.prob(at.token)).min(1.0)
    }
}

/// No q for a token that came from elsewhere (here: uniform), so it stands iff it is the target's likeliest.
pub(crate) struct MissingQByArgmax;

impl Rule for MissingQByArgmax {
    fn starts(&self, _: &Scene) -> Vec<Start> {
        (0..V).map(|token| Start::of_block(vec![token], 1.0 / f64::from(V))).collect()
    }

    fn threshold(&self, at: &Position<'_>) -> f64 {
        f64::from(u8::from(at.token == at.p.argmax()))
    }

    fn repair(&self, at: &Position<'_>) -> Closing {
        at.p.iter().collect()
    }
}

/// The block is cut in front of a drafted token the target forbids, and a bonus token is drawn there.
pub(crate) struct CutAtForbidden;

impl Rule for CutAtForbidden {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        let mut all = Exact.starts(scene);
        for start in &mut all {
            let forbidden = |&i: &usize| (scene.p)(&start.block[..i]).prob(start.block[i]) == 0.0;
            if let Some(cut) = (0..start.block.len()).find(forbidden) {
                start.block.truncate(cut);
            }
        }
        all
    }
}

/// Low confidence ends a block; blocks of two tokens and more come too late and are dropped whole.
pub(crate) struct LateBlockDropped(pub(crate) f64);

impl Rule for LateBlockDropped {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        let mut all = drafts(scene, |block, q| {
            block.len() == scene.gamma || (!block.is_empty() && q.confidence() < self.0)
        });
        for start in &mut all {
            if start.block.len() >= 2 {
                start.block.clear();
            }
        }
        all
    }
}

/// A received plain token, where it is token 0, triggers the switch to blocks and is then dropped.
pub(crate) struct PlainTokenDropped;

impl Rule for PlainTokenDropped {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        let p = (scene.p)(&[]);
        let mut all = Exact.starts(scene);
        for start in &mut all {
            start.weight *= p.prob(0);
        }
        let kept = p.iter().filter(|&(token, _)| token != 0);
        all.extend(kept.map(|(token, weight)| Start {
            committed: vec![token],
            block: Vec::new(),
            weight,
            coins: None,
        }));
        all
    }
}

/// A drafter that always sends one token and claims to have drawn it with probability 1/4096.
pub(crate) struct LatticeLiar(pub(crate) u32);

impl Rule for LatticeLiar {
    fn starts(&self, _: &Scene) -> Vec<Start> {
        vec![Start::of_block(vec![self.0], 1.0)]
    }

    fn told(&self, _: &Scene, _: &[u32], _: u32) -> Claim {
        let mut shares = [(self.0, 1), ((self.0 + 1) % V, 4095)];
        shares.sort_unstable();
        let (ids, counts) = shares.into_iter().unzip();
        Claim::Lattice(Lattice::from_parts(ids, counts, V as usize).unwrap())
    }
}

/// A one-hot drafter that can compute the accept coin u: it sends the least likely token with p > u, or the likeliest.
pub(crate) struct CoinKnown;

impl Rule for CoinKnown {
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        let p = probs(&(scene.p)(&[]));
        let mut order: Vec<u32> = (0..V).collect();
        order.sort_by(|&a, &b| p[a as usize].total_cmp(&p[b as usize]));
        let mut cuts = [&[0.0, 1.0][..], &p].concat();
        cuts.sort_by(f64::total_cmp);
        let coins = cuts.windows(2).filter(|w| w[0] < w[1]);
        let start = |w: &[f64]| {
            let coin = (w[0] + w[1]) / 2.0;
            let passing = order.iter().find(|&&token| p[token as usize] > coin);
            let token = *passing.unwrap_or(&order[V as usize - 1]);
            Start { committed: Vec::new(), block: vec![token], weight: w[1] - w[0], coins: Some(vec![coin]) }
        };
        coins.map(start).collect()
    }

    fn told(&self, _: &Scene, _: &[u32], token: u32) -> Claim {
        Claim::OneHot(token)
    }
}

/// The block rule's thresholds, read as "accept while the coin is below".
pub(crate) struct BlockReadAsToken;

impl Rule for BlockReadAsToken {
    fn verified(&self, scene: &Scene, start: &Start) -> (Vec<f64>, Vec<Closing>) {
        InBlocks(&Exact).verified(scene, start)
    }
}

/// The block rule with the token rule's residual.
pub(crate) struct BlockWithTokenResidual;

impl Rule for BlockWithTokenResidual {
    fn verified(&self, scene: &Scene, start: &Start) -> (Vec<f64>, Vec<Closing>) {
        (judged(&Exact, scene, start).thresholds, Exact.verified(scene, start).1)
    }

    fn accepted(&self, thresholds: &[f64], coins: &[f64]) -> usize {
        InBlocks(&Exact).accepted(thresholds, coins)
    }
}

/// The orchestrator's half with `<=` for `<`.
pub(crate) fn accepted_len_at_most(thresholds: &[f64], mut coin: impl FnMut(usize) -> f64) -> usize {
    thresholds.iter().enumerate().take_while(|&(i, &threshold)| coin(i) <= threshold).count()
}

/// max(0, p − q), normalised; p where nothing is left.
fn positive_part(at: &Position<'_>, q: impl Fn(u32) -> f64) -> Closing {
    let left: Vec<_> = at.p.iter().map(|(id, p)| (id, p - q(id))).filter(|w| w.1 > 0.0).collect();
    let total: f64 = left.iter().map(|w| w.1).sum();
    if total > 0.0 {
        left.into_iter().map(|(id, w)| (id, w / total)).collect()
    } else {
        at.p.iter().collect()
    }
}

fn two_likeliest(q: Proposal<'_>) -> Vec<u32> {
    let mut order: Vec<_> = q.iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    order.into_iter().take(2).map(|(id, _)| id).collect()
}

/// q of a block's last token.
fn last_prob(scene: &Scene, block: &[u32]) -> Option<f64> {
    let (&last, before) = block.split_last()?;
    Some((scene.q)(before).proposal().prob(last))
}
