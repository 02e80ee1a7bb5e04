//! Mistakes found in the field, behind the same trait as the right rule.
//!
//! A suite that cannot tell these from the right rule proves nothing.

use foretoken_acceptance::{CoinKey, Distribution, Proposal, Rule as RuleName};
use foretoken_engine::conversation::Verdict;

use crate::scripted::{Position, Rule, by_block};

/// The repair is drawn from p instead of the residual.
#[derive(Debug, Clone, Copy, Default)]
pub struct RepairFromTarget;

impl Rule for RepairFromTarget {
    fn repair(&mut self, p: &Distribution, _q: Proposal<'_>, _token: u32, coin: f64) -> u32 {
        p.draw(coin)
    }
}

/// Only q(x) is known: the residual subtracts q at the drafted token alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScalarResidual;

impl Rule for ScalarResidual {
    fn repair(&mut self, p: &Distribution, q: Proposal<'_>, token: u32, coin: f64) -> u32 {
        let ids = p.iter().map(|(id, _)| id as usize).chain([token as usize]);
        let mut weights = vec![0.0; ids.max().unwrap_or(0) + 1];
        p.iter().for_each(|(id, prob)| weights[id as usize] = prob);
        let at_token = &mut weights[token as usize];
        *at_token = (*at_token - q.prob(token)).max(0.0);
        let sum: f64 = weights.iter().sum();
        if sum <= 0.0 {
            return p.draw(coin);
        }
        weights.iter_mut().for_each(|weight| *weight /= sum);
        Distribution::from_probs(&weights).draw(coin)
    }
}

/// The ratio is upside down.
#[derive(Debug, Clone, Copy, Default)]
pub struct InvertedRatio;

impl Rule for InvertedRatio {
    fn threshold(&mut self, p: &Distribution, q: Proposal<'_>, token: u32) -> f64 {
        if p.prob(token) > 0.0 { (q.prob(token) / p.prob(token)).min(1.0) } else { 0.0 }
    }
}

/// q is taken for one-hot and the drafted token accepted only if it is p's likeliest.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptIfArgmax;

impl Rule for AcceptIfArgmax {
    fn threshold(&mut self, p: &Distribution, _q: Proposal<'_>, token: u32) -> f64 {
        if p.argmax() == token { 1.0 } else { 0.0 }
    }

    fn repair(&mut self, p: &Distribution, _q: Proposal<'_>, _token: u32, coin: f64) -> u32 {
        p.draw(coin)
    }
}

/// Everything is accepted.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptAll;

impl Rule for AcceptAll {
    fn threshold(&mut self, _p: &Distribution, _q: Proposal<'_>, _token: u32) -> f64 {
        1.0
    }
}

/// The block rule's thresholds, given to an orchestrator that accepts while the coin is below them. For sessions of the
/// token rule.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockReadAsToken;

impl Rule for BlockReadAsToken {
    fn judge(&mut self, _rule: RuleName, positions: &[Position<'_>], _noise: &CoinKey) -> Verdict {
        Verdict { reach: Vec::new(), ..by_block(positions) }
    }
}

/// The token rule's thresholds, given to an orchestrator that looks for the last coin below them. For sessions of the
/// block rule.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenReadAsBlock;

impl Rule for TokenReadAsBlock {
    fn judge(&mut self, _rule: RuleName, positions: &[Position<'_>], _noise: &CoinKey) -> Verdict {
        let verdict = self.by_token(positions);
        Verdict { reach: verdict.thresholds.clone(), ..verdict }
    }
}

/// The block rule's last threshold at every position: P instead of h.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockWithoutLookAhead;

impl Rule for BlockWithoutLookAhead {
    fn judge(&mut self, _rule: RuleName, positions: &[Position<'_>], _noise: &CoinKey) -> Verdict {
        let verdict = by_block(positions);
        Verdict { thresholds: verdict.reach.clone(), ..verdict }
    }
}

/// One noise for all positions: it is keyed by the seed only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoiseWithoutPosition;

impl Rule for NoiseWithoutPosition {
    fn emitted(&mut self, p: &Distribution, noise: &CoinKey, _position: u64) -> u32 {
        foretoken_acceptance::gumbel::draw(p, &mut noise.noise(0))
    }
}

/// Gumbel noise added to probabilities instead of their logarithms.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoiseOnProbabilities;

impl Rule for NoiseOnProbabilities {
    fn emitted(&mut self, p: &Distribution, noise: &CoinKey, position: u64) -> u32 {
        let mut noise = noise.noise(position);
        let mut best = (0, f64::NEG_INFINITY);
        for (id, p) in p {
            let score = p - noise.exponential(id).ln();
            if score > best.1 {
                best = (id, score);
            }
        }
        best.0
    }
}

/// A drafted token stands if the target could have said it; otherwise the noise decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnythingPossibleStands;

impl Rule for AnythingPossibleStands {
    fn judge(&mut self, _rule: RuleName, positions: &[Position<'_>], noise: &CoinKey) -> Verdict {
        let stands = |x: &Position<'_>| x.p.prob(x.token) > 0.0;
        let repairs = positions
            .iter()
            .map(|x| if stands(x) { x.token } else { self.emitted(&x.p, noise, x.at) })
            .collect();
        Verdict { repairs, ..Verdict::default() }
    }
}
