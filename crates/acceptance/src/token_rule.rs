//! The token rule (Leviathan et al. 2022, arXiv 2211.17192, algorithm 1; Chen et al. 2023, arXiv 2302.01318,
//! algorithm 2), in two halves.
//!
//! The verifier, where p is, turns each drafted token into a [`threshold`] and a [`repair`] token, before anything is
//! decided. The orchestrator, which owns the accept coins, finds the [`accepted_len`]. Drawing the repairs ahead is
//! exact because each is independent of the accept coins.
//!
//! Exact only if the token was really drawn from the q stated here, and the decision looks at each coin once.

use std::iter::Peekable;

use crate::distribution::{Distribution, SupportIter, draw_weighted};
use crate::proposal::{Proposal, ProposalIter};

/// The probability with which `token`, drawn from `q`, is accepted: min(1, p/q).
///
/// Accept iff coin < threshold, strictly: a token that p excludes has threshold 0 and is never accepted, not even
/// with a coin of 0. A token outside the support of its own q cannot have been drawn from it; frames that say so are
/// malformed and refused before this, and here it gets 0.
#[must_use]
pub fn threshold(p: &Distribution, q: Proposal<'_>, token: u32) -> f64 {
    let (p, q) = (p.prob(token), q.prob(token));
    if q <= 0.0 {
        0.0
    } else if p >= q {
        1.0
    } else {
        p / q
    }
}

/// What is left of p where q does not cover it: max(0, p − q), not normalised, weights above 0 only, in ascending
/// order of ids.
pub fn residual<'a>(p: &'a Distribution, q: Proposal<'a>) -> impl Iterator<Item = (u32, f64)> + Clone + 'a {
    scaled_residual(p, 1.0, q)
}

/// [`residual`] of p times `scale`: max(0, scale·p − q).
pub(crate) fn scaled_residual<'a>(
    p: &'a Distribution,
    scale: f64,
    q: Proposal<'a>,
) -> impl Iterator<Item = (u32, f64)> + Clone + 'a {
    Residual { p: p.iter(), scale, q: q.iter().peekable() }
}

/// The token that replaces a rejected one: y ~ norm(max(0, p − q)), drawn with `coin`. Where the residual sums to 0
/// in floats (p and q equal up to rounding, so that a rejection is all but impossible), y ~ p.
#[must_use]
pub fn repair(p: &Distribution, q: Proposal<'_>, coin: f64) -> u32 {
    scaled_repair(p, 1.0, q, coin).token
}

/// A token drawn from a residual.
pub(crate) struct Repair {
    pub(crate) token: u32,
    /// What the residual sums to.
    pub(crate) mass: f64,
}

/// [`repair`] from max(0, scale·p − q).
pub(crate) fn scaled_repair(p: &Distribution, scale: f64, q: Proposal<'_>, coin: f64) -> Repair {
    let residual = scaled_residual(p, scale, q);
    let mass: f64 = residual.clone().map(|(_, weight)| weight).sum();
    let drawn = if mass > 0.0 { draw_weighted(residual, coin * mass) } else { None };
    Repair { token: drawn.unwrap_or_else(|| p.draw(coin)), mass }
}

/// β = Σ min(p, q): the probability that a token drawn from `q` is accepted.
#[must_use]
pub fn overlap(p: &Distribution, q: Proposal<'_>) -> f64 {
    q.iter().map(|(id, q)| q.min(p.prob(id))).sum()
}

/// The orchestrator's half: how many drafted tokens stand, in front of the first whose coin is not strictly below its
/// threshold. `coin` is asked once for each position (counted from 0 in the block) that is decided, in order.
pub fn accepted_len(thresholds: &[f64], mut coin: impl FnMut(usize) -> f64) -> usize {
    // A threshold of NaN is below nothing and rejects.
    thresholds.iter().enumerate().take_while(|&(i, &threshold)| coin(i) < threshold).count()
}

/// Walks p and q side by side; both ascend.
#[derive(Clone)]
struct Residual<'a> {
    p: SupportIter<'a>,
    scale: f64,
    q: Peekable<ProposalIter<'a>>,
}

impl Iterator for Residual<'_> {
    type Item = (u32, f64);

    fn next(&mut self) -> Option<(u32, f64)> {
        loop {
            let (id, p) = self.p.next()?;
            while self.q.next_if(|&(other, _)| other < id).is_some() {}
            let covered = self.q.next_if(|&(other, _)| other == id).map_or(0.0, |(_, q)| q);
            let weight = self.scale * p - covered;
            if weight > 0.0 {
                return Some((id, weight));
            }
        }
    }
}

#[cfg(test)]
mod tests;
