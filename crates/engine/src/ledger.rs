//! What an answer cost and what it saved, counted as it happens.

use crate::link::Traffic;

/// How a committed token came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Drafted, and accepted by the rule.
    Accepted,
    /// Drawn from the residual at the first rejection.
    Repair,
    /// Drawn from p behind a block that passed whole.
    Bonus,
    /// Drawn from p in plain decoding: the first token, and decode runs.
    Plain,
}

/// Counts of one request. All of them speak of committed tokens, after every cut.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ledger {
    /// Tokens accepted.
    pub accepted: u32,
    /// Tokens repaired.
    pub repair: u32,
    /// Bonus tokens.
    pub bonus: u32,
    /// Plainly decoded tokens.
    pub plain: u32,
    /// Tokens sent to the verifier for judgement.
    pub drafted: u32,
    /// Blocks that committed at least one token.
    pub blocks: u32,
    /// Positions whose acceptance could be foretold: those the token rule reached, all that were drafted under the
    /// block rule, none under Gumbel coupling.
    pub judged: u32,
    /// What was foretold, summed over them: β = Σ min(p, q) under the token rule, P under the block rule. On average as
    /// many tokens are accepted.
    pub overlap_sum: f64,
    /// Bytes to and from draft workers.
    pub draft: Traffic,
    /// Bytes to and from the verifier.
    pub verify: Traffic,
}

impl Ledger {
    /// Enters a committed token.
    pub fn commit(&mut self, origin: Origin) {
        match origin {
            Origin::Accepted => self.accepted += 1,
            Origin::Repair => self.repair += 1,
            Origin::Bonus => self.bonus += 1,
            Origin::Plain => self.plain += 1,
        }
    }

    /// Tokens of the answer.
    #[must_use]
    pub fn output_tokens(&self) -> u32 {
        self.accepted + self.repair + self.bonus + self.plain
    }

    /// Passes that committed tokens: one per block and one per plain token, the first token's prefill
    /// pass among them.
    #[must_use]
    pub fn target_passes(&self) -> u32 {
        self.blocks + self.plain
    }

    /// Passes that plain decoding would have made and this answer did not.
    #[must_use]
    pub fn saved_passes(&self) -> i64 {
        i64::from(self.output_tokens()) - i64::from(self.target_passes())
    }
}
