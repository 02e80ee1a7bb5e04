//! Who watches an answer come about: traces, timelines.
//!
//! The round loop tells an [`Observer`] what it does; nothing of what it does depends on one.

use tokio::time::Instant;

use crate::conversation::WorkerTimes;
use crate::ledger::{Ledger, Round};

/// Which worker a call goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// The draft worker.
    Draft,
    /// The verifier.
    Verify,
}

/// A call of a worker that is over: frames sent and what came back.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Whom.
    pub callee: Callee,
    /// When the first frame was made.
    pub began: Instant,
    /// When the last message came, or was given up.
    pub ended: Instant,
    /// The worker's own account, summed over the call's replies; of passes, the last one's rows.
    pub times: WorkerTimes,
    /// Tokens drafted, judged or decoded.
    pub tokens: usize,
    /// Why it led to nothing, machine-readable, if so.
    pub failed: Option<&'a str>,
}

/// Is told what the round loop does, as it does it.
pub trait Observer: Send {
    /// A round begins.
    fn round_begins(&mut self) {}

    /// A call begins. Gives the id of its span, which its frames carry to the worker, if it is traced.
    fn call_begins(&mut self, _callee: Callee) -> Option<[u8; 8]> {
        None
    }

    /// The call that began last is over.
    fn call_ends(&mut self, _call: &Call<'_>) {}

    /// The round is over; what it was, if it committed anything, and the account so far.
    fn round_ends(&mut self, _round: Option<&Round>, _ledger: &Ledger) {}

    /// The answer is broken off, by an error or because nobody waits for it any more: the account of what was committed
    /// and, as far as replies have told it, spent until now. A call and a round that were going on do not end.
    fn broken_off(&mut self, _ledger: &Ledger) {}
}

/// Watches nothing.
impl Observer for () {}

/// Both are told; the first one's spans count.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn round_begins(&mut self) {
        self.0.round_begins();
        self.1.round_begins();
    }

    fn call_begins(&mut self, callee: Callee) -> Option<[u8; 8]> {
        let second = self.1.call_begins(callee);
        self.0.call_begins(callee).or(second)
    }

    fn call_ends(&mut self, call: &Call<'_>) {
        self.0.call_ends(call);
        self.1.call_ends(call);
    }

    fn round_ends(&mut self, round: Option<&Round>, ledger: &Ledger) {
        self.0.round_ends(round, ledger);
        self.1.round_ends(round, ledger);
    }

    fn broken_off(&mut self, ledger: &Ledger) {
        self.0.broken_off(ledger);
        self.1.broken_off(ledger);
    }
}

impl<O: Observer> Observer for Option<O> {
    fn round_begins(&mut self) {
        if let Some(observer) = self {
            observer.round_begins();
        }
    }

    fn call_begins(&mut self, callee: Callee) -> Option<[u8; 8]> {
        self.as_mut()?.call_begins(callee)
    }

    fn call_ends(&mut self, call: &Call<'_>) {
        if let Some(observer) = self {
            observer.call_ends(call);
        }
    }

    fn round_ends(&mut self, round: Option<&Round>, ledger: &Ledger) {
        if let Some(observer) = self {
            observer.round_ends(round, ledger);
        }
    }

    fn broken_off(&mut self, ledger: &Ledger) {
        if let Some(observer) = self {
            observer.broken_off(ledger);
        }
    }
}
