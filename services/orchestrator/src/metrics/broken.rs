//! What was spent on answers that were broken off: their part of what the ledgers say in all.

use foretoken_engine::ledger::Ledger;
use foretoken_proto::error::Reason;
use foretoken_telemetry::metrics::{Counter, KeyValue, names};

/// The instruments.
#[derive(Debug)]
pub(super) struct BrokenMetrics {
    answers: Counter<u64>,
    tokens: Counter<u64>,
    passes: Counter<u64>,
    capacity: Counter<f64>,
}

/// Reasons for which an answer that has begun can be broken off.
const REASONS: [Reason; 7] = [
    Reason::Cancelled,
    Reason::DeadlineExceeded,
    Reason::Draining,
    Reason::VerifierLost,
    Reason::VerifierTimeout,
    Reason::VerifierRefused,
    Reason::VerifierProtocol,
];

impl BrokenMetrics {
    /// Registers them, at zero.
    pub(super) fn new() -> Self {
        let metrics = Self {
            answers: names::BROKEN_OFF_ANSWERS.counter(),
            tokens: names::BROKEN_OFF_TOKENS.counter(),
            passes: names::BROKEN_OFF_PASSES.counter(),
            capacity: names::BROKEN_OFF_CAPACITY.amount(),
        };
        REASONS.into_iter().for_each(|reason| metrics.add(0, reason, &Ledger::default()));
        metrics
    }

    /// An answer with this account was broken off.
    pub(super) fn enter(&self, reason: Reason, ledger: &Ledger) {
        self.add(1, reason, ledger);
    }

    fn add(&self, answers: u64, reason: Reason, ledger: &Ledger) {
        let why = [KeyValue::new(names::REASON, reason.as_str())];
        self.answers.add(answers, &why);
        self.tokens.add(ledger.output_tokens().into(), &why);
        self.passes.add(ledger.target_passes().into(), &why);
        for (role, time) in [("draft_worker", ledger.capacity.draft), ("verifier", ledger.capacity.verify)] {
            self.capacity.add(time.as_secs_f64(), &[KeyValue::new(names::ROLE, role)]);
        }
    }
}
