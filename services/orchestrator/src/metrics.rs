//! What the orchestrator tells of itself as metrics: one call per request, round and answer, nothing per token.

mod broken;
mod ledger;

use std::sync::Arc;
use std::time::Duration;

use foretoken_engine::generate::{FinishReason, Observer, Outcome};
use foretoken_engine::ledger::{Ledger, Round};
use foretoken_proto::error::{Reason, known_reason_of};
use foretoken_telemetry::metrics::{Counter, Histogram, KeyValue, names};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::Status;

use crate::broken::Broken;
use crate::pool::Pool;
use broken::BrokenMetrics;
use ledger::LedgerMetrics;

/// Reasons for which speculation is off that are no [`Reason`]: the round loop's own, the watch's, and what gRPC says.
const OFF_REASONS: [&str; 12] = [
    "DRAFTER_TIMEOUT",
    "DRAFTER_REFUSED",
    "DRAFTER_MALFORMED",
    "DRAFTER_DRAINING",
    "DRAFT_CONTEXT_TOO_SHORT",
    "STREAM_ENDED",
    "UNREACHABLE",
    "NOT_CONNECTED",
    "NOT_SERVING",
    "PROTOCOL_MISMATCH",
    "UNAVAILABLE",
    "UNKNOWN",
];

/// Names of drafters without weights; every other name is a model's.
const NGRAM_DRAFTERS: [&str; 2] = ["ngram", "ngram+table"];

/// The instruments. Register them once in a process.
#[derive(Debug)]
pub(crate) struct Metrics {
    success: Counter<u64>,
    failures: Counter<u64>,
    broken_off: BrokenMetrics,
    prompt_tokens: Counter<u64>,
    speculation_off: Counter<u64>,
    drafters: Counter<u64>,
    time_to_first_token: Histogram<f64>,
    time_per_output_token: Histogram<f64>,
    e2e_latency: Histogram<f64>,
    rounds: Histogram<f64>,
    ledger: LedgerMetrics,
}

impl Metrics {
    /// Registers everything. `room` has a permit for each answer that may be in work, all of which are free now.
    #[must_use]
    pub(crate) fn new(pool: &Pool, room: &Arc<Semaphore>) -> Self {
        let (room, max) = (Arc::clone(room), room.available_permits());
        names::REQUESTS_RUNNING.observe(move |tell| tell((max - room.available_permits()) as f64, &[]));
        names::REQUESTS_MAX.observe(move |tell| tell(max as f64, &[]));
        let (ready, configured) = (pool.readiness(), pool.readiness());
        names::WORKERS_READY.observe(move |tell| {
            ready().for_each(|(role, ready, _)| tell(ready as f64, &[KeyValue::new(names::ROLE, role)]));
        });
        names::WORKERS_CONFIGURED.observe(move |tell| {
            configured().for_each(|(role, _, all)| tell(all as f64, &[KeyValue::new(names::ROLE, role)]));
        });
        let metrics = Self {
            success: names::REQUEST_SUCCESS.counter(),
            failures: names::REQUEST_FAILURES.counter(),
            broken_off: BrokenMetrics::new(),
            prompt_tokens: names::PROMPT_TOKENS.counter(),
            speculation_off: names::SPECULATION_OFF.counter(),
            drafters: names::DRAFTER_ANSWERS.counter(),
            time_to_first_token: names::TIME_TO_FIRST_TOKEN.histogram(),
            time_per_output_token: names::TIME_PER_OUTPUT_TOKEN.histogram(),
            e2e_latency: names::E2E_LATENCY.histogram(),
            rounds: names::ROUND.histogram(),
            ledger: LedgerMetrics::new(),
        };
        metrics.begin_at_zero();
        metrics
    }

    /// Makes series exist before their first event: a rate over a series that begins at 1 misses that event.
    fn begin_at_zero(&self) {
        for reason in Reason::ALL {
            self.failures.add(0, &[KeyValue::new(names::REASON, reason.as_str())]);
        }
        for reason in OFF_REASONS {
            self.speculation_off.add(0, &[KeyValue::new(names::REASON, reason)]);
        }
        for finish in [FinishReason::Stop, FinishReason::Length] {
            self.success.add(0, &[KeyValue::new(names::FINISH_REASON, finish.name())]);
        }
        self.prompt_tokens.add(0, &[]);
    }

    /// A request was refused before its first event.
    pub(crate) fn refused(&self, status: &Status) {
        self.failures.add(1, &[KeyValue::new(names::REASON, known_reason_of(status))]);
    }

    /// A request was broken off, with these of its answers in work: their ledgers are entered as far as they go.
    pub(crate) fn broken_off(&self, reason: Reason, answers: &[Broken]) {
        self.failures.add(1, &[KeyValue::new(names::REASON, reason.as_str())]);
        for answer in answers {
            self.ledger.enter(&answer.ledger);
            self.broken_off.enter(reason, &answer.ledger);
        }
    }

    /// An answer to a request that came at `arrived` is finished.
    pub(crate) fn finished(&self, outcome: &Outcome, arrived: Instant, prompt_tokens: u32) {
        self.success.add(1, &[KeyValue::new(names::FINISH_REASON, outcome.finish.name())]);
        self.prompt_tokens.add(prompt_tokens.into(), &[]);
        self.drafters.add(1, &[KeyValue::new(names::DRAFTER, drafter(outcome.drafter.as_deref()))]);
        for off in &outcome.speculation_off {
            self.speculation_off.add(1, &[KeyValue::new(names::REASON, off_reason(&off.reason))]);
        }
        let wall = outcome.last_commit.duration_since(outcome.first_commit);
        self.time_to_first_token.record(seconds(outcome.first_commit.duration_since(arrived)), &[]);
        self.e2e_latency.record(seconds(outcome.last_commit.duration_since(arrived)), &[]);
        let after_first = outcome.ledger.output_tokens().saturating_sub(1);
        if after_first > 0 {
            self.time_per_output_token.record(seconds(wall) / f64::from(after_first), &[]);
        }
        self.ledger.enter(&outcome.ledger);
    }

    /// Tells the rounds of one answer as they end.
    pub(crate) fn rounds(&self) -> RoundTimes {
        RoundTimes(self.rounds.clone())
    }
}

/// Records how long rounds take.
#[derive(Debug)]
pub(crate) struct RoundTimes(Histogram<f64>);

impl Observer for RoundTimes {
    fn round_ends(&mut self, round: Option<&Round>, _ledger: &Ledger) {
        let Some(round) = round else { return };
        let took = round.ended.saturating_duration_since(round.began);
        self.0.record(seconds(took), &[KeyValue::new(names::KIND, round.kind.name())]);
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// What kind of drafter a name is of: a model's own name is not ours to choose.
fn drafter(name: Option<&str>) -> &'static str {
    let Some(name) = name else { return "none" };
    NGRAM_DRAFTERS.into_iter().find(|&known| known == name).unwrap_or("model")
}

/// A reason as a label: workers send theirs as text.
fn off_reason(reason: &str) -> &'static str {
    OFF_REASONS.into_iter().find(|&known| known == reason).unwrap_or_else(|| Reason::known(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded_whatever_a_worker_says() {
        assert_eq!(off_reason("DRAFTER_TIMEOUT"), "DRAFTER_TIMEOUT");
        assert_eq!(off_reason("SESSIONS_FULL"), "SESSIONS_FULL");
        assert_eq!(off_reason("anything else a peer makes up"), names::OTHER);
        assert_eq!(drafter(Some("ngram+table")), "ngram+table");
        assert_eq!(drafter(Some("SmolLM2 135M Instruct")), "model");
        assert_eq!(drafter(None), "none");
    }
}
