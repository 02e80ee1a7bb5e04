//! The spans of an answer: a round each, and the calls within it.
//!
//! The request's own span is made where the request comes in; here its children are, while the round loop tells of
//! them, and the account that goes on it at the end. An answer whose trace is not sampled has none of this.

use foretoken_engine::generate::{Call, Callee, Observer, Outcome};
use foretoken_engine::ledger::{Ledger, Round, Stages};
use foretoken_proto::v1;
use foretoken_telemetry::timed::{Moment, TimedSpan, is_sampled};
use foretoken_telemetry::{Context, Value, names, propagation};
use tracing::Span;

/// Makes the spans of one answer.
#[derive(Debug)]
pub struct Rounds {
    request: Context,
    round: Option<TimedSpan>,
    call: Option<TimedSpan>,
}

impl Rounds {
    /// Of an answer whose request has the span `request`; none if that is not sampled.
    #[must_use]
    pub fn traced(request: &Span) -> Option<Self> {
        let request = propagation::context_of(request);
        is_sampled(&request).then(|| Self { request, round: None, call: None })
    }
}

impl Observer for Rounds {
    fn round_begins(&mut self) {
        self.round = Some(TimedSpan::within(names::SPAN_ROUND, &self.request, Moment::now().time()));
    }

    fn call_begins(&mut self, callee: Callee) -> Option<[u8; 8]> {
        let name = match callee {
            Callee::Draft => names::SPAN_DRAFT,
            Callee::Verify => names::SPAN_VERIFY,
        };
        let span = self.round.as_ref()?.calling(name, Moment::now().time());
        let id = span.id();
        self.call = Some(span);
        Some(id)
    }

    fn call_ends(&mut self, call: &Call<'_>) {
        let Some(mut span) = self.call.take() else { return };
        let times = &call.times;
        for (name, count) in [
            (names::TOKENS, call.tokens as u64),
            (names::QUEUE_US, times.queue_us),
            (names::BATCH_WAIT_US, times.batch_wait_us),
            (names::MODEL_US, times.model_us),
            (names::SAMPLING_US, times.sampling_us),
            (names::PASSES, u64::from(times.passes)),
            (names::BATCH_ROWS, u64::from(times.batch_rows)),
            (names::BATCH_SESSIONS, u64::from(times.batch_sessions)),
        ] {
            span.set_count(name, count);
        }
        if let Some(reason) = call.failed {
            span.set(names::ERROR_TYPE, reason.to_owned());
            span.fail(reason);
        }
        // The clocks are related anew: over a long answer they drift apart.
        span.end(Moment::now().time_at(call.ended.into_std()));
    }

    fn round_ends(&mut self, round: Option<&Round>, ledger: &Ledger) {
        let Some(mut span) = self.round.take() else { return };
        let Some(round) = round else {
            // It led to nothing; it ends now, when that is known.
            return span.end(Moment::now().time());
        };
        for (name, count) in [
            (names::ROUND, round.index),
            (names::PASSES, round.passes),
            (names::DRAFT_LEN, round.draft_len),
            (names::DRAFTED, round.drafted),
            (names::ACCEPTED, round.accepted),
            (names::COMMITTED, round.committed),
            (names::JUDGED, round.judged),
            (names::BATCH_ROWS, round.batch_rows),
            (names::BATCH_SESSIONS, round.batch_sessions),
        ] {
            span.set_count(name, count.into());
        }
        span.set(names::ROUND_KIND, round.kind.name());
        span.set(names::CLOSING, round.closing.name());
        span.set(names::OVERLAP, round.overlap_sum);
        span.set(names::SAVED_PASSES, ledger.saved_passes());
        for (name, time) in STAGES.into_iter().zip(round.stages.values()) {
            span.set_time(name, time);
        }
        // Its calls are over by now, and its tokens with the client.
        span.end(Moment::now().time());
    }
}

/// Attributes of the stages, in the order of [`Stages::values`].
const STAGES: [&str; 8] = [
    names::STAGE_DRAFT_US,
    names::STAGE_NET_US,
    names::STAGE_QUEUE_US,
    names::STAGE_BATCH_WAIT_US,
    names::STAGE_PASS_US,
    names::STAGE_OWN_US,
    names::STAGE_CLIENT_US,
    names::STAGE_RECOVERY_US,
];

/// The span that an answer's account goes on: the request's own, or one of each where several samples are wanted.
#[must_use]
pub fn answer_span(sample: u32, samples: usize) -> Span {
    if samples == 1 {
        return Span::current();
    }
    tracing::info_span!("sample", { names::SAMPLE } = sample)
}

/// Puts an answer's account on its span.
pub fn record(request: &Span, finished: &v1::Finished, outcome: &Outcome) {
    let Some(ledger) = &finished.ledger else { return };
    let account = &outcome.ledger;
    let count = |value: u64| Value::I64(i64::try_from(value).unwrap_or(i64::MAX));
    let micros = |seconds: f64| Value::F64(seconds * 1e6);
    let mut attributes = vec![
        (names::INPUT_TOKENS, count(ledger.prompt_tokens.into())),
        (names::OUTPUT_TOKENS, count(ledger.output_tokens.into())),
        (names::FINISH_REASON, Value::from(outcome.finish.name())),
        (names::DRAFTER, Value::from(finished.drafter.clone())),
        (names::TOKENS_ACCEPTED, count(ledger.accepted.into())),
        (names::TOKENS_REPAIR, count(ledger.repair.into())),
        (names::TOKENS_BONUS, count(ledger.bonus.into())),
        (names::TOKENS_PLAIN, count(ledger.plain.into())),
        (names::DRAFTED, count(ledger.drafted.into())),
        (names::JUDGED, count(ledger.judged.into())),
        (names::OVERLAP, Value::F64(ledger.overlap_sum)),
        (names::TARGET_PASSES, count(ledger.target_passes.into())),
        (names::SAVED_PASSES, Value::I64(ledger.saved_passes.into())),
        (names::DRAFT_BYTES_UP, count(ledger.draft_bytes_up)),
        (names::DRAFT_BYTES_DOWN, count(ledger.draft_bytes_down)),
        (names::VERIFY_BYTES_UP, count(ledger.verify_bytes_up)),
        (names::VERIFY_BYTES_DOWN, count(ledger.verify_bytes_down)),
        (names::DRAFT_WIRE_UP, count(ledger.draft_wire_up)),
        (names::DRAFT_WIRE_DOWN, count(ledger.draft_wire_down)),
        (names::VERIFY_WIRE_UP, count(ledger.verify_wire_up)),
        (names::VERIFY_WIRE_DOWN, count(ledger.verify_wire_down)),
        (names::TTFT_US, count(ledger.ttft_us)),
        (names::WALL_US, count(ledger.wall_us)),
        (names::DRAFTING_US, count(ledger.drafting_ns / 1000)),
        (names::DRAFT_CHARGED_US, count(ledger.draft_charged_us)),
        (names::VERIFY_CHARGED_US, count(ledger.verify_charged_us)),
    ];
    attributes.extend(stages(&account.stages));
    let beta: Vec<f64> = account.positions.iter().map_while(|position| position.beta()).collect();
    if !beta.is_empty() {
        attributes.push((names::BETA, Value::Array(beta.into())));
    }
    attributes
        .extend(account.bytes_per_saved_pass().map(|bytes| (names::BYTES_PER_SAVED_PASS, Value::F64(bytes))));
    attributes.extend(ledger.plain_step_ns.map(|nanos| (names::PLAIN_STEP_US, count(nanos / 1000))));
    attributes.extend(ledger.gain_seconds.map(|gain| (names::GAIN_US, micros(gain))));
    attributes.extend(ledger.break_even_seconds.map(|trip| (names::BREAK_EVEN_US, micros(trip))));
    propagation::set_attributes(request, attributes);
}

fn stages(stages: &Stages) -> impl Iterator<Item = (&'static str, Value)> {
    let micros = stages.values().map(|time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
    STAGES.into_iter().zip(micros.map(Value::I64))
}
