//! What an answer cost and what it saved, counted and timed as it happens.
//!
//! [`Ledger`] is the account of one answer. Its time is split by [`Stages`], which add up to it by construction; what
//! the same tokens would have taken one pass each is told by [`Steps`], learnt from what the verifier measured of itself
//! and from its replies. A [`Round`] is the part of it that one block or decode run has. Nothing here waits or sends.

mod pass_times;
mod round;
mod stages;
mod steps;
mod watch;

use std::time::Duration;

pub use pass_times::PassTime;
pub use round::{Round, RoundKind};
pub use stages::Stages;
pub use steps::Steps;
pub(crate) use watch::Watch;

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

impl Origin {
    /// Its name in traces and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Repair => "repair",
            Self::Bonus => "bonus",
            Self::Plain => "plain",
        }
    }
}

/// One position of a block, summed over blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Position {
    /// Tokens drafted at it.
    pub drafted: u32,
    /// Of these, the ones that became text.
    pub accepted: u32,
    /// Those whose acceptance could be foretold.
    pub judged: u32,
    /// What was foretold, summed over them: β at this position is this over `judged`.
    pub overlap_sum: f64,
}

impl Position {
    /// β, or P under the block rule: how likely a token here was to be accepted; none where none was judged.
    #[must_use]
    pub fn beta(&self) -> Option<f64> {
        (self.judged > 0).then(|| self.overlap_sum / f64::from(self.judged))
    }
}

/// Worker time charged to one answer: of each pass the share of its rows, whether or not its tokens were used. Summed
/// over all answers this is the worker's busy time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    /// At draft workers.
    pub draft: Duration,
    /// At the verifier.
    pub verify: Duration,
}

/// The account of one answer. All of it speaks of committed tokens, after every cut.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// The same by position in the block.
    pub positions: Vec<Position>,
    /// Bytes to and from draft workers.
    pub draft: Traffic,
    /// Bytes to and from the verifier.
    pub verify: Traffic,
    /// What the first token waited for, from the opening of the sessions on.
    pub first: Stages,
    /// Where the time from the first token to the last went. The sum is that time.
    pub stages: Stages,
    /// Of `stages.draft`, what the draft worker itself spent; the rest is the way there and back.
    pub drafting: Duration,
    /// Of the stages at the verifier, what judging blocks took.
    pub judging: Duration,
    /// Worker time charged to the answer.
    pub capacity: Capacity,
    /// T(1): what one plain step of the verifier took at this load; none if no pass was ever seen.
    pub plain_step: Option<Duration>,
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

    /// A position of blocks, counted from 0.
    pub(crate) fn position(&mut self, index: usize) -> &mut Position {
        if self.positions.len() <= index {
            self.positions.resize_with(index + 1, Position::default);
        }
        &mut self.positions[index]
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

    /// Bytes on the wire, of both links and both ways, for each pass saved; none where none was saved.
    #[must_use]
    pub fn bytes_per_saved_pass(&self) -> Option<f64> {
        let bytes = [self.draft, self.verify].iter().map(|link| link.wire_up + link.wire_down).sum::<u64>();
        (self.saved_passes() > 0).then(|| bytes as f64 / self.saved_passes() as f64)
    }

    /// From the first token's commit to the last one's.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.stages.sum()
    }

    /// Moving data between first and last token: the verifier's link, and of the draft calls what the draft worker did
    /// not spend itself.
    #[must_use]
    pub fn moving(&self) -> Duration {
        self.stages.net + self.stages.draft.saturating_sub(self.drafting)
    }

    /// What the tokens after the first would have taken one plain step each: N·T(1), seconds.
    #[must_use]
    pub fn plain_seconds(&self) -> Option<f64> {
        Some(self.tokens_after_first() * self.plain_step?.as_secs_f64())
    }

    /// What speculation gained: N·T(1) − wall, seconds; negative if it lost. None where T(1) is not known.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        Some(self.plain_seconds()? - self.wall().as_secs_f64())
    }

    /// The same from what was saved and what that cost: (N−R)·T(1), less what the passes took beyond R plain steps, less
    /// everything between them. It equals [`gain`](Self::gain) because the stages leave no remainder.
    #[must_use]
    pub fn gain_by_parts(&self) -> Option<f64> {
        let step = self.plain_step?.as_secs_f64();
        let rounds_passes = (f64::from(self.target_passes()) - 1.0).max(0.0);
        let saved = (self.tokens_after_first() - rounds_passes) * step;
        let longer = self.stages.at_verifier().as_secs_f64() - rounds_passes * step;
        let Stages { draft, net, own, client, recovery, .. } = self.stages;
        Some(saved - longer - (draft + net + own + client + recovery).as_secs_f64())
    }

    /// N: all tokens but the first; none of an answer that was broken off before it.
    fn tokens_after_first(&self) -> f64 {
        (f64::from(self.output_tokens()) - 1.0).max(0.0)
    }

    /// The longest round trip, of both links together, at which drafting as here would still have paid:
    /// Ω·T(1) − γ·t_draft − T(γ+1), seconds, with what the blocks of this answer measured. Negative where it could not
    /// have paid at any distance; none without blocks.
    ///
    /// Ω, the tokens that a block gives, is (1−α^(γ+1))/(1−α) with the acceptance rate α (Leviathan et al. 2022, eq. 1); here
    /// it is what the blocks gave.
    #[must_use]
    pub fn break_even_round_trip(&self) -> Option<f64> {
        if self.blocks == 0 {
            return None;
        }
        let blocks = f64::from(self.blocks);
        let tokens_per_block = f64::from(self.accepted + self.repair + self.bonus) / blocks;
        let drafting = self.drafting.as_secs_f64() / blocks;
        let pass = self.judging.as_secs_f64() / blocks;
        Some(tokens_per_block * self.plain_step?.as_secs_f64() - drafting - pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ledger() -> Ledger {
        Ledger {
            accepted: 6,
            repair: 2,
            bonus: 1,
            plain: 2,
            drafted: 12,
            blocks: 3,
            stages: Stages {
                draft: 3 * MS,
                net: 4 * MS,
                queue: MS,
                batch_wait: MS,
                pass: 12 * MS,
                own: MS,
                client: 2 * MS,
                recovery: MS,
            },
            drafting: 2 * MS,
            judging: 12 * MS,
            plain_step: Some(3 * MS),
            ..Ledger::default()
        }
    }

    #[test]
    fn the_gain_is_what_plain_decoding_would_have_taken_longer() {
        let ledger = ledger();
        assert_eq!(ledger.wall(), 25 * MS);
        assert_eq!((ledger.target_passes(), ledger.saved_passes()), (5, 6));
        // Ten tokens after the first, three milliseconds each.
        assert!((ledger.gain().unwrap() - 5e-3).abs() < 1e-12);
        assert!((ledger.gain_by_parts().unwrap() - 5e-3).abs() < 1e-12);
        assert_eq!(ledger.moving(), 5 * MS);
    }

    #[test]
    fn an_answer_broken_off_before_its_first_token_gains_and_loses_nothing() {
        let ledger = Ledger { plain_step: Some(3 * MS), drafted: 0, ..Ledger::default() };
        assert_eq!((ledger.gain(), ledger.gain_by_parts()), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn break_even_is_the_round_trip_that_eats_the_gain() {
        let ledger = ledger();
        // Three tokens a block at 3 ms, less 2/3 ms of drafting and 4 ms of pass.
        let break_even = ledger.break_even_round_trip().unwrap();
        assert!((break_even - (9e-3 - 2e-3 / 3.0 - 4e-3)).abs() < 1e-12, "{break_even}");
        assert_eq!(Ledger::default().break_even_round_trip(), None);
    }

    #[test]
    fn bytes_and_beta_are_told_where_there_is_something_to_divide_by() {
        let link = Traffic { wire_up: 400, wire_down: 200, ..Traffic::default() };
        let ledger = Ledger { draft: link, verify: link, ..ledger() };
        assert_eq!(ledger.bytes_per_saved_pass(), Some(200.0));
        assert_eq!(Ledger::default().bytes_per_saved_pass(), None);
        let position = Position { drafted: 4, accepted: 1, judged: 2, overlap_sum: 1.5 };
        assert_eq!((position.beta(), Position::default().beta()), (Some(0.75), None));
    }

    #[test]
    fn without_a_measured_step_there_is_no_gain() {
        let ledger = Ledger { plain_step: None, ..ledger() };
        assert_eq!((ledger.gain(), ledger.gain_by_parts()), (None, None));
    }
}
