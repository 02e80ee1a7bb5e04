//! The account of an answer in the client's terms: the closing ledger, and the rounds for a timeline.

use std::time::Duration;

use foretoken_engine::generate::{FinishReason, Observer, Outcome};
use foretoken_engine::ledger::{Ledger, Origin, Position, Round, RoundKind, Stages};
use foretoken_proto::convert::narrow;
use foretoken_proto::v1;
use tokio::time::Instant;

/// Rounds told to a client, at most: far below what a message holds.
const MAX_ROUNDS: usize = 4096;

/// The closing event of an answer to a request that came at `arrived`.
#[must_use]
pub fn finished(outcome: &Outcome, arrived: Instant, prompt_tokens: u32, reproducible: bool) -> v1::Finished {
    let finish_reason = match outcome.finish {
        FinishReason::Stop => v1::FinishReason::Stop,
        FinishReason::Length => v1::FinishReason::Length,
    };
    let ttft = outcome.first_commit.duration_since(arrived);
    v1::Finished {
        finish_reason: finish_reason.into(),
        ledger: Some(v1::Ledger { prompt_tokens, ttft_us: micros(ttft), ..ledger(&outcome.ledger) }),
        drafter: outcome.drafter.clone().unwrap_or_else(|| "none".into()),
        speculation_off: outcome
            .speculation_off
            .iter()
            .map(|off| v1::SpeculationOff {
                at_token: narrow(off.at_token),
                reason: off.reason.clone(),
                message: off.message.clone(),
                until_token: off.until_token.map(narrow),
            })
            .collect(),
        reproducible,
        rounds: Vec::new(),
    }
}

/// Everything of an account that is the engine's to know.
fn ledger(ledger: &Ledger) -> v1::Ledger {
    v1::Ledger {
        prompt_tokens: 0,
        output_tokens: ledger.output_tokens(),
        accepted: ledger.accepted,
        repair: ledger.repair,
        bonus: ledger.bonus,
        plain: ledger.plain,
        drafted: ledger.drafted,
        blocks: ledger.blocks,
        target_passes: ledger.target_passes(),
        saved_passes: i32::try_from(ledger.saved_passes()).unwrap_or(i32::MAX),
        draft_bytes_up: ledger.draft.up,
        draft_bytes_down: ledger.draft.down,
        verify_bytes_up: ledger.verify.up,
        verify_bytes_down: ledger.verify.down,
        ttft_us: 0,
        wall_us: micros(ledger.wall()),
        overlap_sum: ledger.overlap_sum,
        judged: ledger.judged,
        first: Some(stages(&ledger.first)),
        stages: Some(stages(&ledger.stages)),
        drafting_ns: nanos(ledger.drafting),
        judging_ns: nanos(ledger.judging),
        plain_step_ns: ledger.plain_step.map(nanos),
        gain_seconds: ledger.gain(),
        break_even_seconds: ledger.break_even_round_trip(),
        draft_charged_us: micros(ledger.capacity.draft),
        verify_charged_us: micros(ledger.capacity.verify),
        positions: ledger.positions.iter().map(position).collect(),
        draft_wire_up: ledger.draft.wire_up,
        draft_wire_down: ledger.draft.wire_down,
        verify_wire_up: ledger.verify.wire_up,
        verify_wire_down: ledger.verify.wire_down,
    }
}

fn stages(stages: &Stages) -> v1::Stages {
    v1::Stages {
        draft_ns: nanos(stages.draft),
        net_ns: nanos(stages.net),
        queue_ns: nanos(stages.queue),
        batch_wait_ns: nanos(stages.batch_wait),
        pass_ns: nanos(stages.pass),
        own_ns: nanos(stages.own),
        client_ns: nanos(stages.client),
        recovery_ns: nanos(stages.recovery),
    }
}

fn position(position: &Position) -> v1::Position {
    let Position { drafted, accepted, judged, overlap_sum } = *position;
    v1::Position { drafted, accepted, judged, overlap_sum }
}

/// An origin on the wire.
pub(crate) fn wire_origin(origin: Origin) -> v1::Origin {
    match origin {
        Origin::Accepted => v1::Origin::Accepted,
        Origin::Repair => v1::Origin::Repair,
        Origin::Bonus => v1::Origin::Bonus,
        Origin::Plain => v1::Origin::Plain,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Keeps an answer's rounds for a client that wants to see them.
#[derive(Debug)]
pub struct Timeline {
    started: Instant,
    rounds: Vec<v1::Round>,
}

impl Timeline {
    /// A timeline that begins now.
    #[must_use]
    pub fn started() -> Self {
        Self { started: Instant::now(), rounds: Vec::new() }
    }

    /// What was seen.
    #[must_use]
    pub fn into_rounds(self) -> Vec<v1::Round> {
        self.rounds
    }
}

impl Observer for Timeline {
    fn round_ends(&mut self, round: Option<&Round>, _ledger: &Ledger) {
        let Some(round) = round.filter(|_| self.rounds.len() < MAX_ROUNDS) else { return };
        let kind = match round.kind {
            RoundKind::Prefill => v1::round::Kind::Prefill,
            RoundKind::Block => v1::round::Kind::Block,
            RoundKind::Run => v1::round::Kind::Run,
        };
        self.rounds.push(v1::Round {
            kind: kind.into(),
            began_us: micros(round.began.saturating_duration_since(self.started)),
            stages: Some(stages(&round.stages)),
            passes: round.passes,
            draft_len: round.draft_len,
            drafted: round.drafted,
            accepted: round.accepted,
            committed: round.committed,
            closing: wire_origin(round.closing).into(),
            batch_rows: round.batch_rows,
            batch_sessions: round.batch_sessions,
        });
    }
}
