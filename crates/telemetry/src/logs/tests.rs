//! Lines as they come out.

use std::io::Write;
use std::sync::{Arc, Mutex};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider};
use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::traces::trace_layer;

#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn read(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

/// What is logged and what is exported while `work` runs.
fn logged(
    log_format: LogFormat,
    filter: &str,
    sampler: Sampler,
    work: impl FnOnce(),
) -> (Vec<String>, Vec<opentelemetry_sdk::trace::SpanData>) {
    let config =
        TelemetryConfig { log_format, log_filter: filter.to_owned(), ..TelemetryConfig::new("test") };
    let lines = Lines::default();
    let writer = lines.clone();
    let exporter = InMemorySpanExporter::default();
    let provider =
        SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).with_sampler(sampler).build();
    let subscriber = tracing_subscriber::registry()
        .with(layer(&config, move || writer.clone()).unwrap())
        .with(trace_layer(provider.tracer("test")));
    tracing::subscriber::with_default(subscriber, work);
    (lines.read(), exporter.get_finished_spans().unwrap())
}

fn request() {
    let request = tracing::info_span!("generate", request_id = "r-7");
    request.in_scope(|| {
        tracing::warn!(worker = "w", "first \"line\"");
        tracing::info_span!("round").in_scope(|| tracing::warn!("second"));
    });
    tracing::warn!("outside");
}

#[test]
fn json_lines_of_a_sampled_span_lead_to_it() {
    // The filter leaves out what the spans are written at: they are followed nevertheless.
    let (lines, spans) = logged(LogFormat::Json, "warn", Sampler::AlwaysOn, request);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    for (line, name) in lines.iter().zip(["generate", "round"]) {
        let span = spans.iter().find(|span| span.name == name).unwrap();
        assert_eq!(line["trace_id"], span.span_context.trace_id().to_string());
        assert_eq!(line["span_id"], span.span_context.span_id().to_string());
        assert_eq!(line["spans"][0]["request_id"], "r-7");
    }
    assert_eq!(lines[0]["fields"]["message"], "first \"line\"");
    assert_eq!(lines[0]["fields"]["worker"], "w");
    assert!(lines[2].get("trace_id").is_none());
}

#[test]
fn text_lines_of_a_sampled_span_lead_to_it() {
    let (lines, spans) = logged(LogFormat::Text, "warn", Sampler::AlwaysOn, request);
    assert_eq!(lines.len(), 3);
    let round = spans.iter().find(|span| span.name == "round").unwrap();
    let ids = format!(" trace_id={} span_id={}", round.span_context.trace_id(), round.span_context.span_id());
    assert!(lines[1].contains("second") && lines[1].ends_with(&ids), "{}", lines[1]);
    assert!(lines[1].contains("request_id=\"r-7\""), "{}", lines[1]);
    assert!(!lines[2].contains("trace_id"), "{}", lines[2]);
}

#[test]
fn a_span_that_nobody_records_leaves_no_ids_and_still_names_the_request() {
    let (lines, spans) = logged(LogFormat::Json, "warn", Sampler::AlwaysOff, request);
    assert!(spans.is_empty());
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert!(line.get("trace_id").is_none());
    assert_eq!(line["span"]["request_id"], "r-7");
}

#[test]
fn an_exporter_that_fails_again_and_again_is_heard_once() {
    let complain = || {
        for _ in 0..50 {
            tracing::error!(target: "opentelemetry_sdk", "the batch was not exported");
        }
        tracing::error!("of ours");
        tracing::error!("of ours");
    };
    let (lines, _) = logged(LogFormat::Text, "info", Sampler::AlwaysOn, complain);
    assert_eq!(lines.iter().filter(|line| line.contains("not exported")).count(), 1, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("of ours")).count(), 2);
}
