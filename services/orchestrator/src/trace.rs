//! The spans of an answer: a round each, and the calls within it.
//!
//! The request's own span is made where the request comes in; here its children are, while the round loop tells of
//! them, and the account that goes on it at the end. An answer whose trace is not sampled has none of this.

use std::time::Duration;

use foretoken_engine::generate::{Call, Callee, Observer, Outcome};
use foretoken_engine::ledger::{Ledger, Round, Stages};
use foretoken_proto::error::{Reason, known_reason_of};
use foretoken_proto::v1;
use foretoken_telemetry::metrics::names::OTHER;
use foretoken_telemetry::timed::{Moment, TimedSpan, is_sampled};
use foretoken_telemetry::{Context, Value, names, propagation, rpc};
use tonic::{Code, Status};
use tracing::Span;

use crate::broken::Broken;

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
        // What the worker spent stands on its frames, the span's children.
        span.set_count(names::TOKENS, call.tokens as u64);
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
        let stages = STAGES.into_iter().zip(round.stages.values());
        for (name, time) in stages.filter(|(_, time)| !time.is_zero()) {
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

/// Puts a finished answer's account on its span.
pub fn finished(answer: &Span, finished: &v1::Finished, outcome: &Outcome) {
    let Some(told) = &finished.ledger else { return };
    let closing = [
        (names::FINISH_REASON, Value::from(outcome.finish.name())),
        (names::DRAFTER, Value::from(finished.drafter.clone())),
        (names::TTFT_US, count(told.ttft_us)),
    ];
    propagation::set_attributes(
        answer,
        closing.into_iter().chain(account(&outcome.ledger, told.prompt_tokens)),
    );
}

/// Puts the account of an answer that was broken off on its span, as far as it goes.
pub(crate) fn broken_off(answer: &Broken, reason: Reason, prompt_tokens: u32) {
    let how = if reason == Reason::Cancelled { "cancelled" } else { "error" };
    let closing =
        [(names::FINISH_REASON, Value::from(how)), (names::ERROR_TYPE, Value::from(reason.as_str()))];
    let account = account(&answer.ledger, prompt_tokens);
    propagation::set_attributes(&answer.span, closing.into_iter().chain(account));
}

/// Tells a request's span that all its answers are finished.
pub fn answered(request: &Span) {
    propagation::set_attributes(request, [(names::RPC_STATUS, Value::from(rpc::status_name(Code::Ok)))]);
}

/// Tells a request's span why it was refused or broken off: the code, and the reason of the error table if it has one.
pub fn refused(request: &Span, status: &Status) {
    let code = rpc::status_name(status.code());
    let reason = Some(known_reason_of(status)).filter(|&reason| reason != OTHER).unwrap_or(code);
    propagation::set_attributes(request, [(names::RPC_STATUS, Value::from(code))]);
    // What a client did wrong, or gave up, is no failure of the service.
    if rpc::is_server_error(status.code()) {
        propagation::fail(request, reason, status.message());
    } else {
        propagation::set_attributes(request, [(names::ERROR_TYPE, Value::from(reason))]);
    }
}

/// An account as attributes.
fn account(ledger: &Ledger, prompt_tokens: u32) -> Vec<(&'static str, Value)> {
    let micros = |seconds: f64| Value::F64(seconds * 1e6);
    let time = |time: Duration| count(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let mut attributes = vec![
        (names::INPUT_TOKENS, count(prompt_tokens.into())),
        (names::OUTPUT_TOKENS, count(ledger.output_tokens().into())),
        (names::TOKENS_ACCEPTED, count(ledger.accepted.into())),
        (names::TOKENS_REPAIR, count(ledger.repair.into())),
        (names::TOKENS_BONUS, count(ledger.bonus.into())),
        (names::TOKENS_PLAIN, count(ledger.plain.into())),
        (names::DRAFTED, count(ledger.drafted.into())),
        (names::JUDGED, count(ledger.judged.into())),
        (names::OVERLAP, Value::F64(ledger.overlap_sum)),
        (names::TARGET_PASSES, count(ledger.target_passes().into())),
        (names::SAVED_PASSES, Value::I64(ledger.saved_passes())),
        (names::DRAFT_BYTES_UP, count(ledger.draft.up)),
        (names::DRAFT_BYTES_DOWN, count(ledger.draft.down)),
        (names::VERIFY_BYTES_UP, count(ledger.verify.up)),
        (names::VERIFY_BYTES_DOWN, count(ledger.verify.down)),
        (names::DRAFT_WIRE_UP, count(ledger.draft.wire_up)),
        (names::DRAFT_WIRE_DOWN, count(ledger.draft.wire_down)),
        (names::VERIFY_WIRE_UP, count(ledger.verify.wire_up)),
        (names::VERIFY_WIRE_DOWN, count(ledger.verify.wire_down)),
        (names::WALL_US, time(ledger.wall())),
        (names::DRAFTING_US, time(ledger.drafting)),
        (names::DRAFT_CHARGED_US, time(ledger.capacity.draft)),
        (names::VERIFY_CHARGED_US, time(ledger.capacity.verify)),
    ];
    attributes.extend(stages(&ledger.stages));
    let beta: Vec<f64> = ledger.positions.iter().map_while(|position| position.beta()).collect();
    if !beta.is_empty() {
        attributes.push((names::BETA, Value::Array(beta.into())));
    }
    let more = [
        (names::BYTES_PER_SAVED_PASS, ledger.bytes_per_saved_pass().map(Value::F64)),
        (names::PLAIN_STEP_US, ledger.plain_step.map(time)),
        (names::GAIN_US, ledger.gain().map(micros)),
        (names::BREAK_EVEN_US, ledger.break_even_round_trip().map(micros)),
    ];
    attributes.extend(more.into_iter().filter_map(|(name, value)| Some((name, value?))));
    attributes
}

fn count(value: u64) -> Value {
    Value::I64(i64::try_from(value).unwrap_or(i64::MAX))
}

fn stages(stages: &Stages) -> impl Iterator<Item = (&'static str, Value)> {
    let micros = stages.values().map(|time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
    STAGES.into_iter().zip(micros.map(Value::I64))
}
