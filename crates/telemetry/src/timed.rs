//! Spans whose times are told rather than lived.
//!
//! What happened at a model's thread is known only when its reply is there. A [`TimedSpan`] therefore takes its beginning
//! and its end as values, and is made through OpenTelemetry's own interface: no tracing span is held open, and no
//! subscriber is asked. Make one only for a trace that is sampled ([`is_sampled`]); a process that exports nothing makes
//! spans that nobody records.

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::global::{self, BoxedSpan};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer,
};
use opentelemetry::{Context, KeyValue, Value};

use crate::traces::OUR_TARGETS;

/// Bytes of a [`Place`](TimedSpan::place): a trace id and a span id.
pub const PLACE_BYTES: usize = 24;

/// Whether spans below `context` are recorded.
#[must_use]
pub fn is_sampled(context: &Context) -> bool {
    let span = context.span();
    span.span_context().is_valid() && span.span_context().is_sampled()
}

/// One moment on two clocks, so that what was measured on the steady one can be told on the calendar's.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    wall: SystemTime,
    steady: Instant,
}

impl Moment {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }

    /// The calendar's time of this moment.
    #[must_use]
    pub fn time(self) -> SystemTime {
        self.wall
    }

    /// The calendar's time at `instant`. Seen from one moment, times keep their order and distances.
    #[must_use]
    pub fn time_at(self, instant: Instant) -> SystemTime {
        match instant.checked_duration_since(self.steady) {
            Some(later) => self.wall + later,
            None => self.wall - self.steady.duration_since(instant),
        }
    }
}

/// A span that is open until [`end`](Self::end); dropped, it ends at that moment.
#[derive(Debug)]
pub struct TimedSpan(BoxedSpan);

impl TimedSpan {
    /// Begins a span that answers a caller elsewhere, whose span is in `parent`.
    #[must_use]
    pub fn serving(name: &'static str, parent: &Context, began: SystemTime) -> Self {
        Self::start(name, SpanKind::Server, parent, began)
    }

    /// Begins a span of this process's own within `parent`.
    #[must_use]
    pub fn within(name: &'static str, parent: &Context, began: SystemTime) -> Self {
        Self::start(name, SpanKind::Internal, parent, began)
    }

    /// Begins the span of a call to another process, within this one.
    #[must_use]
    pub fn calling(&self, name: &'static str, began: SystemTime) -> Self {
        let parent = Context::new().with_remote_span_context(self.0.span_context().clone());
        Self::start(name, SpanKind::Client, &parent, began)
    }

    /// The span's own id, which the frames of a call carry.
    #[must_use]
    pub fn id(&self) -> [u8; 8] {
        self.0.span_context().span_id().to_bytes()
    }

    /// Begins a span within this one.
    #[must_use]
    pub fn child(&self, name: &'static str, began: SystemTime) -> Self {
        let parent = Context::new().with_remote_span_context(self.0.span_context().clone());
        Self::start(name, SpanKind::Internal, &parent, began)
    }

    fn start(name: &'static str, kind: SpanKind, parent: &Context, began: SystemTime) -> Self {
        let tracer = global::tracer(OUR_TARGETS);
        let builder = tracer.span_builder(name).with_kind(kind).with_start_time(began);
        Self(tracer.build_with_context(builder, parent))
    }

    /// Sets an attribute; names are in [`names`](crate::names).
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.set_attribute(KeyValue::new(name, value));
    }

    /// Sets an attribute to a number; one beyond 63 bits is told as the largest.
    pub fn set_count(&mut self, name: &'static str, value: u64) {
        self.set(name, count(value));
    }

    /// Sets an attribute to a time in microseconds.
    pub fn set_time(&mut self, name: &'static str, time: Duration) {
        self.set_count(name, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Tells that something took so long within this span.
    pub fn event(&mut self, name: &'static str, at: SystemTime, duration: (&'static str, u64)) {
        self.0.add_event_with_timestamp(name, at, vec![KeyValue::new(duration.0, count(duration.1))]);
    }

    /// Marks what the span stands for as failed.
    pub fn fail(&mut self, why: &str) {
        self.0.set_status(Status::error(why.to_owned()));
    }

    /// Where the span is found: its trace id and its own.
    #[must_use]
    pub fn place(&self) -> [u8; PLACE_BYTES] {
        let context = self.0.span_context();
        let mut place = [0; PLACE_BYTES];
        place[..16].copy_from_slice(&context.trace_id().to_bytes());
        place[16..].copy_from_slice(&context.span_id().to_bytes());
        place
    }

    /// Links a sampled span, of this trace or another.
    pub fn link(&mut self, place: [u8; PLACE_BYTES]) {
        let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
        trace_id.copy_from_slice(&place[..16]);
        span_id.copy_from_slice(&place[16..]);
        let context = SpanContext::new(
            TraceId::from_bytes(trace_id),
            SpanId::from_bytes(span_id),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        );
        self.0.add_link(context, Vec::new());
    }

    /// Ends the span at a time that may be past.
    pub fn end(mut self, at: SystemTime) {
        self.0.end_with_timestamp(at);
    }
}

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_tells_times_before_and_after_it() {
        let moment = Moment::now();
        let step = Duration::from_millis(7);
        assert_eq!(moment.time_at(moment.steady), moment.time());
        assert_eq!(moment.time_at(moment.steady + step), moment.time() + step);
        assert_eq!(moment.time_at(moment.steady - step), moment.time() - step);
    }
}
