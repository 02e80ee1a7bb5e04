//! The export of traces: the provider, its sampler and its queue, and the layer that hands spans to it.

use std::time::Duration;

use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanExporter as SpanExport, Tracer,
};
use tracing::{Level, Subscriber};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::config::TelemetryConfig;
use crate::setup::{FLUSH_LIMIT, TelemetryError, resource};

/// Spans that wait for the collector, at most: a few MiB. A request has one span per round and call, so this is some
/// seconds of a busy service; with the collector down the newest are dropped.
const SPAN_QUEUE: usize = 8192;

/// Spans of one export: far below gRPC's default limit of 4 MiB per message.
const SPAN_BATCH: usize = 512;

/// Longest that a span waits for others before it is sent.
const SPAN_DELAY: Duration = Duration::from_secs(2);

/// Our crates' targets all begin so; the exported trace holds nothing else.
pub(crate) const OUR_TARGETS: &str = "foretoken";

/// Sends traces to the collector at `endpoint`. Needs a tokio runtime.
pub(crate) fn provider(
    endpoint: &str,
    config: &TelemetryConfig,
) -> Result<SdkTracerProvider, TelemetryError> {
    // Without a runtime the exporter's channel would panic when it is made.
    tokio::runtime::Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(FLUSH_LIMIT)
        .build()
        .map_err(|source| TelemetryError::Endpoint { endpoint: endpoint.to_owned(), source })?;
    Ok(SdkTracerProvider::builder()
        .with_span_processor(batches(exporter))
        .with_sampler(sampler(config.sample_ratio))
        .with_resource(resource(config))
        .build())
}

/// Sends spans in batches, from a thread and a bounded queue of its own: a slow collector drops spans, and a request
/// never waits for it.
fn batches(exporter: impl SpanExport + 'static) -> BatchSpanProcessor {
    let limits = BatchConfigBuilder::default()
        .with_max_queue_size(SPAN_QUEUE)
        .with_max_export_batch_size(SPAN_BATCH)
        .with_scheduled_delay(SPAN_DELAY)
        .build();
    BatchSpanProcessor::builder(exporter).with_batch_config(limits).build()
}

/// The first service of a request decides; all others follow, so a trace is whole or absent.
fn sampler(ratio: f64) -> Sampler {
    Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)))
}

/// The exporting layer with its own filter.
///
/// The HTTP/2 stack below us opens hundreds of spans per stream, and the exporter would trace its own
/// requests: only our crates pass, at `info`, whatever the log filter says. Code locations and thread names
/// are left out because they repeat in every span what its name already tells.
pub(crate) fn trace_layer<S>(tracer: Tracer) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    OpenTelemetryLayer::new(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target(OUR_TARGETS, Level::INFO))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Condvar, Mutex};
    use std::time::Instant;

    use opentelemetry::trace::{Tracer as _, TracerProvider};
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::SpanData;

    use super::*;

    fn config() -> TelemetryConfig {
        TelemetryConfig::new("foretoken-test")
    }

    #[tokio::test]
    async fn a_bad_endpoint_is_named() {
        let error = provider("not a url", &config()).unwrap_err();
        assert!(error.to_string().starts_with("OTLP endpoint \"not a url\" cannot be used"), "{error}");
    }

    /// Takes nothing until it is let go.
    #[derive(Debug, Clone, Default)]
    struct Stuck {
        gate: Arc<(Mutex<bool>, Condvar)>,
        exported: Arc<AtomicUsize>,
    }

    impl SpanExport for Stuck {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            let (open, opened) = &*self.gate;
            drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            self.exported.fetch_add(batch.len(), Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_stuck_collector_holds_up_nobody_and_takes_bounded_memory() {
        let exporter = Stuck::default();
        let provider = SdkTracerProvider::builder().with_span_processor(batches(exporter.clone())).build();
        let tracer = provider.tracer("test");
        let began = Instant::now();
        let spans = 4 * SPAN_QUEUE;
        (0..spans).for_each(|_| drop(tracer.start("lost")));
        assert!(began.elapsed() < FLUSH_LIMIT, "{:?}", began.elapsed());
        let (open, opened) = &*exporter.gate;
        *open.lock().unwrap() = true;
        opened.notify_all();
        provider.shutdown_with_timeout(FLUSH_LIMIT).unwrap();
        let kept = exporter.exported.load(Ordering::Relaxed);
        assert!((SPAN_QUEUE..=SPAN_QUEUE + SPAN_BATCH).contains(&kept), "{kept} of {spans}");
    }
}
