//! The block rule (Sun et al. 2024, "Block Verification Accelerates Speculative Decoding", arXiv 2403.10444, algorithm
//! 2), in two halves.
//!
//! For drafted tokens x_1 … x_γ let P_0 = 1, P_i = min(1, P_{i−1} · p_i(x_i) / q_i(x_i)): the probability that at least
//! i tokens stand. The verifier turns the block into thresholds h_1 … h_γ and, for each number τ < γ of tokens that may
//! stand, a token drawn from norm(max(0, P_τ · p_{τ+1} − q_{τ+1})), before anything is decided:
//!
//! * h_i = R_i / (R_i + 1 − P_i) with R_i = Σ max(0, P_i · p_{i+1} − q_{i+1}), for i < γ; h_γ = P_γ.
//!
//! The orchestrator, which owns the accept coins η, lets the first τ tokens stand, τ being the **largest** i with
//! η_i < h_i (else 0). On average at least as many stand as under the token rule: E(τ) = Σ E(P_i).
//!
//! h_i looks at the position behind it, and h_γ does not: a block that is shortened needs new thresholds. Where a token
//! has p = 0, P and with it every h from there on is 0. A threshold of 0 alone ends nothing: a later one may be above.

use crate::distribution::Distribution;
use crate::proposal::Proposal;
use crate::token_rule::scaled_repair;

/// The verifier's half, position by position. A value is the state in front of the next position.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockRule {
    /// P of the last position; none in front of the first.
    reach: Option<f64>,
}

/// What one position adds to a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockStep {
    /// h of the position in front of this one; none at the first.
    pub threshold_before: Option<f64>,
    /// The token that follows if exactly the tokens in front of this position stand.
    pub repair: u32,
    /// P of this position. Where it is 0, the positions behind need not be looked at.
    pub reach: f64,
}

impl BlockRule {
    /// Takes `token`, drawn from `q`, for the next position, whose target distribution is `p`; `coin` draws the repair.
    ///
    /// A token outside the support of its own q cannot have been drawn from it; frames that say so are malformed and
    /// refused before this, and here it gets P = 0.
    pub fn step(&mut self, p: &Distribution, q: Proposal<'_>, token: u32, coin: f64) -> BlockStep {
        let before = self.reach.unwrap_or(1.0);
        let repair = scaled_repair(p, before, q, coin);
        let threshold_before = self.reach.map(|reach| threshold(reach, repair.mass));
        let share = q.prob(token);
        let reach = if share > 0.0 { (before * p.prob(token) / share).min(1.0) } else { 0.0 };
        self.reach = Some(reach);
        BlockStep { threshold_before, repair: repair.token, reach }
    }

    /// h of the last position, once it is known to be the last; none for a block without tokens.
    #[must_use]
    pub fn last_threshold(&self) -> Option<f64> {
        self.reach
    }
}

/// h_i of P_i = `reach` and R_i = `left`.
fn threshold(reach: f64, left: f64) -> f64 {
    let whole = left + (1.0 - reach);
    // Nothing left and P = 1: p and q agree behind this position, and all that reaches it may stand.
    if whole > 0.0 { left / whole } else { 1.0 }
}

/// The orchestrator's half: how many drafted tokens stand, up to the last whose coin is strictly below its threshold.
/// `coin` gives the coin of each position (counted from 0 in the block); a coin must always be the same.
pub fn accepted_len(thresholds: &[f64], mut coin: impl FnMut(usize) -> f64) -> usize {
    // From the end, so that no coin is computed in vain. A threshold of NaN is above nothing.
    (0..thresholds.len()).rev().find(|&i| coin(i) < thresholds[i]).map_or(0, |i| i + 1)
}

#[cfg(test)]
mod tests;
