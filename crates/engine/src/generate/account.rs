//! Keeps the answer's account: calls, commits, rounds, and who watches them.

use std::time::Duration;

use tokio::time::Instant;

use super::decide::Decision;
use super::observe::{Call, Callee, Observer};
use crate::conversation::WorkerTimes;
use crate::ledger::{Ledger, Origin, Round, RoundKind, Stages, Steps, Watch};

/// The ledger as it grows, and the round that is going on.
pub(super) struct Account<'a, W> {
    ledger: Ledger,
    observer: &'a mut W,
    steps: &'a Steps,
    watch: Watch,
    round: Round,
    /// Rounds that committed something.
    rounds: u32,
    call: Option<CallSoFar>,
    /// Sessions of the passes seen, and their number: the load.
    sessions: f64,
    passes: f64,
}

/// A call that is going on.
#[derive(Debug, Clone, Copy)]
struct CallSoFar {
    callee: Callee,
    span_id: Option<[u8; 8]>,
    began: Instant,
    times: WorkerTimes,
    tokens: usize,
}

impl<'a, W: Observer> Account<'a, W> {
    pub(super) fn new(observer: &'a mut W, steps: &'a Steps) -> Self {
        let now = Instant::now();
        Self {
            ledger: Ledger::default(),
            observer,
            steps,
            watch: Watch::started(now),
            round: begun(0, now),
            rounds: 0,
            call: None,
            sessions: 0.0,
            passes: 0.0,
        }
    }

    /// Time spent waiting, by what was waited for.
    pub(super) fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// A call goes on, or begins. Gives the span's id for its frames.
    pub(super) fn call(&mut self, callee: Callee) -> Option<[u8; 8]> {
        if let Some(call) = self.call.filter(|call| call.callee == callee) {
            return call.span_id;
        }
        let span_id = self.observer.call_begins(callee);
        let (began, times) = (Instant::now(), WorkerTimes::default());
        self.call = Some(CallSoFar { callee, span_id, began, times, tokens: 0 });
        span_id
    }

    /// A message of the call came, about so many tokens.
    pub(super) fn replied(&mut self, times: &WorkerTimes, tokens: usize) {
        let Some(call) = &mut self.call else { return };
        call.times.add(times);
        call.tokens += tokens;
        if call.callee == Callee::Verify {
            (self.round.batch_rows, self.round.batch_sessions) = (times.batch_rows, times.batch_sessions);
            if times.passes > 0 {
                self.steps.learn(times, self.round.kind == RoundKind::Prefill);
                self.sessions += f64::from(times.batch_sessions);
                self.passes += 1.0;
            }
        }
    }

    /// The call is over, if there is one.
    pub(super) fn call_ended(&mut self, failed: Option<&str>) {
        let Some(CallSoFar { callee, began, times, tokens, .. }) = self.call.take() else { return };
        let ended = Instant::now();
        self.observer.call_ends(&Call { callee, began, ended, times, tokens, failed });
    }

    /// Worker time that any reply tells of, also one that nobody waited for.
    pub(super) fn charge(&mut self, callee: Callee, times: &WorkerTimes) {
        let capacity = &mut self.ledger.capacity;
        let total = match callee {
            Callee::Draft => &mut capacity.draft,
            Callee::Verify => &mut capacity.verify,
        };
        *total = total.saturating_add(Duration::from_micros(times.charged_us));
    }

    /// A drafter is asked for so many tokens.
    pub(super) fn asked(&mut self, draft_len: usize) {
        self.round.draft_len = draft_len as u32;
    }

    /// A block of so many tokens was sent to be judged.
    pub(super) fn drafted(&mut self, tokens: usize) {
        self.ledger.drafted += tokens as u32;
        self.round.drafted = tokens as u32;
        for index in 0..tokens {
            self.ledger.position(index).drafted += 1;
        }
    }

    /// A block was decided.
    pub(super) fn decided(&mut self, decision: &Decision<'_>) {
        let expected: f64 = decision.foretold.iter().sum();
        self.ledger.blocks += 1;
        self.ledger.judged += decision.judged as u32;
        self.ledger.overlap_sum += expected;
        for index in 0..decision.judged {
            let position = self.ledger.position(index);
            position.judged += 1;
            position.overlap_sum += decision.foretold.get(index).unwrap_or(&0.0);
        }
        self.round.kind = RoundKind::Block;
        self.round.passes += 1;
        self.round.judged = decision.judged as u32;
        self.round.overlap_sum = expected;
    }

    /// A token became text, `index`-th of its block if it is one of a block.
    pub(super) fn committed(&mut self, origin: Origin, index: usize) {
        self.ledger.commit(origin);
        match origin {
            Origin::Accepted => {
                self.ledger.position(index).accepted += 1;
                self.round.accepted += 1;
            }
            Origin::Plain => self.round.passes += 1,
            Origin::Repair | Origin::Bonus => {}
        }
        self.round.committed += 1;
        self.round.closing = origin;
    }

    /// What was committed is complete: the time up to now is settled.
    pub(super) fn settle(&mut self) {
        let now = Instant::now();
        let (stages, drafting) = self.watch.commit(now);
        self.round.stages += stages;
        self.round.ended = now;
        match self.round.kind {
            // The first token is all there is to this round.
            RoundKind::Prefill => return self.ledger.first = stages,
            RoundKind::Block => self.ledger.judging += stages.at_verifier(),
            RoundKind::Run => {}
        }
        self.ledger.stages += stages;
        self.ledger.drafting += drafting;
    }

    pub(super) fn round_begins(&mut self) {
        self.round = begun(self.rounds, self.watch.since());
        self.observer.round_begins();
    }

    /// The round is over; one that committed nothing was in vain.
    pub(super) fn round_ends(&mut self) {
        self.call_ended(None);
        if self.round.committed == 0 {
            self.watch.in_vain();
            return self.observer.round_ends(None, &self.ledger);
        }
        self.rounds += 1;
        self.observer.round_ends(Some(&self.round), &self.ledger);
    }

    /// The whole account, once the answer is or is broken off. Nothing is entered after it.
    pub(super) fn close(&mut self) -> Ledger {
        let sessions = if self.passes > 0.0 { self.sessions / self.passes } else { 1.0 };
        Ledger { plain_step: self.steps.plain(sessions), ..std::mem::take(&mut self.ledger) }
    }

    /// The answer is broken off, with this account.
    pub(super) fn broken_off(&mut self, ledger: &Ledger) {
        self.observer.broken_off(ledger);
    }
}

/// A round that has just begun, and is a run until a block is decided.
fn begun(index: u32, at: Instant) -> Round {
    Round {
        index,
        kind: if index == 0 { RoundKind::Prefill } else { RoundKind::Run },
        began: at,
        ended: at,
        stages: Stages::default(),
        passes: 0,
        draft_len: 0,
        drafted: 0,
        accepted: 0,
        committed: 0,
        closing: Origin::Plain,
        judged: 0,
        overlap_sum: 0.0,
        batch_rows: 0,
        batch_sessions: 0,
    }
}
