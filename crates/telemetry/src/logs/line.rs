//! A log line with the ids of the span that it was written in, so that logs and traces lead to each other.

use std::fmt;

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Adds `trace_id` and `span_id` to what `inner` writes, inside a sampled span: ids of others lead nowhere.
#[derive(Debug)]
pub(super) struct WithTrace<F> {
    inner: F,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// Behind the line, as `name=value`.
    Behind,
    /// As the first members of the line's JSON object.
    WithinJson,
}

impl<F> WithTrace<F> {
    /// For lines of plain text.
    pub(super) fn behind(inner: F) -> Self {
        Self { inner, place: Place::Behind }
    }

    /// For lines that are JSON objects.
    pub(super) fn within_json(inner: F) -> Self {
        Self { inner, place: Place::WithinJson }
    }
}

impl<S, N, F> FormatEvent<S, N> for WithTrace<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        // The exporting layer makes a span current when it is entered, also where the log filter left it out.
        let current = Context::current();
        let span = current.span();
        let span = span.span_context();
        if !span.is_valid() || !span.is_sampled() {
            return self.inner.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let (trace_id, span_id) = (span.trace_id(), span.span_id());
        match (self.place, line.strip_prefix('{')) {
            (Place::WithinJson, Some(rest)) => {
                write!(writer, r#"{{"trace_id":"{trace_id}","span_id":"{span_id}",{rest}"#)
            }
            _ => writeln!(writer, "{} trace_id={trace_id} span_id={span_id}", line.trim_end_matches('\n')),
        }
    }
}
