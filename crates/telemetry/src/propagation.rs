//! Hands a trace from one service to the next.
//!
//! Calls carry it as W3C `traceparent` metadata, a stream's `Open` as the same text in a field, and each frame
//! of a sampled trace as the bare span id of its round. Every function does nothing, quietly, when the
//! process exports no traces.

use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceContextExt};
use opentelemetry::{Context, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::metadata::{Ascii, KeyRef, MetadataKey, MetadataMap, MetadataValue};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::names;
use crate::timed::is_sampled;

const TRACEPARENT: &str = "traceparent";

/// The context of `span`, for spans below it elsewhere; an empty one if nobody records it.
#[must_use]
pub fn context_of(span: &Span) -> Context {
    span.context()
}

/// Sets attributes of `span` that only the trace is told, not the log.
pub fn set_attributes(span: &Span, attributes: impl IntoIterator<Item = (&'static str, Value)>) {
    for (name, value) in attributes {
        span.set_attribute(name, value);
    }
}

/// Marks what `span` stands for as failed, for a reason of the error table or a gRPC code.
pub fn fail(span: &Span, reason: &'static str, why: &str) {
    span.set_attribute(names::ERROR_TYPE, reason);
    span.set_status(Status::error(why.to_owned()));
}

/// Writes the current span's context into a request's metadata.
pub fn inject(metadata: &mut MetadataMap) {
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut MetadataWriter(metadata));
}

/// The context of `span` as `traceparent` text, for a field of a message; `None` if it has none.
pub fn inject_context(span: &Span) -> Option<String> {
    let mut text = Traceparent(None);
    TraceContextPropagator::new().inject_context(&span.context(), &mut text);
    text.0
}

/// The trace that `span` belongs to, in hexadecimal digits, if it is recorded.
#[must_use]
pub fn sampled_trace_id(span: &Span) -> Option<String> {
    sampled(span).map(|span| span.trace_id().to_string())
}

fn sampled(span: &Span) -> Option<SpanContext> {
    let context = span.context();
    is_sampled(&context).then(|| context.span().span_context().clone())
}

/// The caller's context from a request's metadata; an empty one if there is none or it is malformed.
pub fn extract(metadata: &MetadataMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &MetadataReader(metadata))
}

/// The context that [`inject_context`] wrote; an empty one if the text is malformed.
pub fn extract_text(traceparent: &str) -> Context {
    TraceContextPropagator::new()
        .extract_with_context(&Context::new(), &Traceparent(Some(traceparent.to_owned())))
}

/// The id of `span` if its trace is sampled: what a frame carries so that the worker's span hangs below the round's.
pub fn sampled_span_id(span: &Span) -> Option<u64> {
    sampled(span).map(|span| u64::from_be_bytes(span.span_id().to_bytes()))
}

/// The context of another span of the same trace: `session` is what came with `Open`, `span_id` what came with a frame.
pub fn with_span_id(session: &Context, span_id: u64) -> Context {
    let span = session.span();
    let span = span.span_context();
    Context::new().with_remote_span_context(SpanContext::new(
        span.trace_id(),
        SpanId::from_bytes(span_id.to_be_bytes()),
        span.trace_flags(),
        true,
        span.trace_state().clone(),
    ))
}

/// Makes `span` a child of `context`. Call it before the span is first entered: afterwards it is too late.
pub fn set_parent(span: &Span, context: Context) {
    // An error says that nobody records this span (filtered out, or no export): not a reason to fail a request.
    let _ = span.set_parent(context);
}

struct MetadataWriter<'a>(&'a mut MetadataMap);

impl Injector for MetadataWriter<'_> {
    fn set(&mut self, key: &str, value: String) {
        let key = key.parse::<MetadataKey<Ascii>>();
        let value = value.parse::<MetadataValue<Ascii>>();
        // Both are hex text of the propagator's making; a pair that is not ASCII is left out.
        if let (Ok(key), Ok(value)) = (key, value) {
            self.0.insert(key, value);
        }
    }
}

struct MetadataReader<'a>(&'a MetadataMap);

impl Extractor for MetadataReader<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0
            .keys()
            .filter_map(|key| match key {
                KeyRef::Ascii(key) => Some(key.as_str()),
                KeyRef::Binary(_) => None,
            })
            .collect()
    }
}

/// A carrier that holds `traceparent` only: `tracestate` is a vendor's, and no service here writes any.
struct Traceparent(Option<String>);

impl Injector for Traceparent {
    fn set(&mut self, key: &str, value: String) {
        if key == TRACEPARENT {
            self.0 = Some(value);
        }
    }
}

impl Extractor for Traceparent {
    fn get(&self, key: &str) -> Option<&str> {
        (key == TRACEPARENT).then_some(self.0.as_deref()).flatten()
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider, SpanData};
    use tracing::info_span;
    use tracing_subscriber::layer::SubscriberExt;

    /// Runs `body` under the real trace layer and returns what it exported.
    fn exported(sampler: Sampler, body: impl FnOnce()) -> Vec<SpanData> {
        let exporter = InMemorySpanExporter::default();
        let provider =
            SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).with_sampler(sampler).build();
        let layer = crate::traces::trace_layer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), body);
        provider.force_flush().unwrap();
        exporter.get_finished_spans().unwrap()
    }

    fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
        spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no span {name}"))
    }

    #[test]
    fn a_trace_crosses_metadata() {
        let spans = exported(Sampler::AlwaysOn, || {
            let mut metadata = MetadataMap::new();
            info_span!("client").in_scope(|| inject(&mut metadata));
            let server = info_span!("server");
            set_parent(&server, extract(&metadata));
            server.in_scope(|| info_span!("inner").in_scope(|| {}));
        });
        let (client, server, inner) =
            (named(&spans, "client"), named(&spans, "server"), named(&spans, "inner"));
        assert_eq!(server.span_context.trace_id(), client.span_context.trace_id());
        assert_eq!(server.parent_span_id, client.span_context.span_id());
        assert!(server.parent_span_is_remote);
        assert_eq!(inner.parent_span_id, server.span_context.span_id());
        assert_eq!(spans.len(), 3);
    }

    #[test]
    fn a_trace_crosses_a_text_field_and_a_span_id() {
        let spans = exported(Sampler::AlwaysOn, || {
            let request = info_span!("request");
            let session = extract_text(&inject_context(&request).unwrap());
            let round = info_span!(parent: &request, "round");
            let id = sampled_span_id(&round).unwrap();
            let trace = sampled_trace_id(&round).unwrap();
            assert_eq!(inject_context(&round).unwrap().split('-').nth(1), Some(trace.as_str()));
            let pass = info_span!("pass");
            set_parent(&pass, with_span_id(&session, id));
            pass.in_scope(|| {});
        });
        let (request, round, pass) =
            (named(&spans, "request"), named(&spans, "round"), named(&spans, "pass"));
        assert_eq!(pass.parent_span_id, round.span_context.span_id());
        assert_eq!(pass.span_context.trace_id(), request.span_context.trace_id());
    }

    #[test]
    fn an_unsampled_trace_stays_unsampled() {
        let spans = exported(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)), || {
            let mut metadata = MetadataMap::new();
            let client = info_span!("client");
            assert_eq!(sampled_span_id(&client), None);
            assert_eq!(sampled_trace_id(&client), None);
            client.in_scope(|| inject(&mut metadata));
            assert!(metadata.get(TRACEPARENT).unwrap().to_str().unwrap().ends_with("-00"));
            let server = info_span!("server");
            set_parent(&server, extract(&metadata));
            server.in_scope(|| {});
        });
        assert!(spans.is_empty());
    }

    #[test]
    fn without_export_nothing_is_written_and_nothing_fails() {
        let span = info_span!("quiet");
        let mut metadata = MetadataMap::new();
        span.in_scope(|| inject(&mut metadata));
        assert!(metadata.is_empty());
        assert_eq!(inject_context(&span), None);
        assert_eq!(sampled_span_id(&span), None);
        set_parent(&span, extract(&metadata));
    }

    #[test]
    fn a_malformed_traceparent_starts_a_new_trace() {
        for text in ["", "00", "00-0-0-01", "zz-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
            assert!(!extract_text(text).span().span_context().is_valid(), "{text:?}");
        }
    }

    #[test]
    fn spans_of_other_crates_and_lower_levels_stay_out() {
        let spans = exported(Sampler::AlwaysOn, || {
            tracing::span!(target: "h2::proto", tracing::Level::INFO, "foreign").in_scope(|| {});
            tracing::debug_span!("detail").in_scope(|| {});
            info_span!("ours").in_scope(|| {});
        });
        assert_eq!(spans.iter().map(|span| span.name.as_ref()).collect::<Vec<_>>(), ["ours"]);
    }
}
