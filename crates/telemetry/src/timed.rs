//! Spans whose times are told rather than lived.
//!
//! What happened at a model's thread is known only when its reply is there. A [`TimedSpan`] therefore takes its beginning
//! and its end as values, and is made by the exporter's tracer itself: no tracing span is held open, and no subscriber is
//! asked. Make one only for a trace that is sampled ([`is_sampled`]); in a process that exports nothing it is nothing.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer as _,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::{SdkTracer, Span};

/// Attributes that a span has room for from the start: no span of a round has more.
const ROOM: usize = 24;

/// The process's tracer. Asking the global provider for one would allocate it anew for every span.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// What a span that nobody records says of itself.
static NOWHERE: SpanContext = SpanContext::NONE;

/// Makes the spans of this process by `tracer`, from now on. The first is right: a process exports to one place.
pub(crate) fn export_by(tracer: SdkTracer) {
    let _first = TRACER.set(tracer);
}

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
pub struct TimedSpan(Option<Span>);

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
        self.below(name, SpanKind::Client, began)
    }

    /// The span's own id, which the frames of a call carry.
    #[must_use]
    pub fn id(&self) -> [u8; 8] {
        self.context().span_id().to_bytes()
    }

    /// Begins a span within this one.
    #[must_use]
    pub fn child(&self, name: &'static str, began: SystemTime) -> Self {
        self.below(name, SpanKind::Internal, began)
    }

    fn below(&self, name: &'static str, kind: SpanKind, began: SystemTime) -> Self {
        let parent = Context::new().with_remote_span_context(self.context().clone());
        Self::start(name, kind, &parent, began)
    }

    fn start(name: &'static str, kind: SpanKind, parent: &Context, began: SystemTime) -> Self {
        Self(TRACER.get().map(|tracer| {
            let mut builder = tracer.span_builder(name).with_kind(kind).with_start_time(began);
            builder.attributes = Some(Vec::with_capacity(ROOM));
            tracer.build_with_context(builder, parent)
        }))
    }

    fn context(&self) -> &SpanContext {
        self.0.as_ref().map_or(&NOWHERE, |span| span.span_context())
    }

    /// Sets an attribute; names are in [`names`](crate::names).
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(name, value));
        }
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
        if let Some(span) = &mut self.0 {
            span.add_event_with_timestamp(name, at, vec![KeyValue::new(duration.0, count(duration.1))]);
        }
    }

    /// Marks what the span stands for as failed.
    pub fn fail(&mut self, why: &str) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(why.to_owned()));
        }
    }

    /// Where the span is found: its trace id and its own.
    #[must_use]
    pub fn place(&self) -> [u8; PLACE_BYTES] {
        let context = self.context();
        let mut place = [0; PLACE_BYTES];
        place[..16].copy_from_slice(&context.trace_id().to_bytes());
        place[16..].copy_from_slice(&context.span_id().to_bytes());
        place
    }

    /// Links a sampled span, of this trace or another.
    pub fn link(&mut self, place: [u8; PLACE_BYTES]) {
        let Some(span) = &mut self.0 else { return };
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
        span.add_link(context, Vec::new());
    }

    /// Ends the span at a time that may be past.
    pub fn end(mut self, at: SystemTime) {
        if let Some(span) = &mut self.0 {
            span.end_with_timestamp(at);
        }
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
