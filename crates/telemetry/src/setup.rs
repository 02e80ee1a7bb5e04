//! Installs the process's subscriber and takes it down again.

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Tracer};
use thiserror::Error;
use tracing::{Level, Subscriber};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::{EnvFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::{LogFormat, TelemetryConfig};

/// Longest that [`TelemetryGuard::shutdown`] waits for the last spans to leave.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// Our crates' targets all begin so; the exported trace holds nothing else.
pub(crate) const OUR_TARGETS: &str = "foretoken";

/// Why telemetry could not be set up. A process should report it and stop: it is a wrong setting.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The log filter does not parse.
    #[error("log filter {value:?} is not valid: {source}")]
    LogFilter {
        /// What was asked for.
        value: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The sampling ratio is no share.
    #[error("sample ratio {0} is out of range: it must lie between 0 and 1")]
    SampleRatio(f64),
    /// The collector's address cannot be used.
    #[error("OTLP endpoint {endpoint:?} cannot be used: {source}")]
    Endpoint {
        /// What was asked for.
        endpoint: String,
        /// What the exporter says.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The exporter's connection lives on the process's tokio runtime, and there is none here.
    #[error("traces can be exported only from inside a tokio runtime")]
    NoRuntime,
    /// Something else in this process has installed a subscriber already.
    #[error("telemetry is already set up in this process: {0}")]
    AlreadySet(#[from] tracing_subscriber::util::TryInitError),
}

/// Keeps what must be flushed when the process ends.
#[derive(Debug)]
#[must_use = "the last spans are lost unless the guard is kept and shut down"]
pub struct TelemetryGuard {
    /// `None` when nothing is exported.
    provider: Option<SdkTracerProvider>,
}

impl TelemetryGuard {
    /// Sends the spans still waiting, for at most five seconds. Call it after the server has drained.
    ///
    /// A collector that does not answer is worth a warning and nothing more.
    pub async fn shutdown(self) {
        let Some(provider) = self.provider else { return };
        // The provider blocks its thread until the exporter, which needs this runtime, has answered.
        let flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_LIMIT));
        match tokio::time::timeout(FLUSH_LIMIT, flush).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last spans were not exported"),
            Ok(Err(error)) => tracing::warn!(%error, "the span flush ended early"),
            Err(_) => tracing::warn!(limit = ?FLUSH_LIMIT, "the last spans were not exported in time"),
        }
    }
}

/// Sets up logs on standard error and, if an endpoint is given, the export of traces.
///
/// Standard output is left alone: it belongs to a command's result. Call it once per process.
pub fn init(config: &TelemetryConfig) -> Result<TelemetryGuard, TelemetryError> {
    if !(0.0..=1.0).contains(&config.sample_ratio) {
        return Err(TelemetryError::SampleRatio(config.sample_ratio));
    }
    let log_layer = log_layer(config)?;
    let provider = config.otlp_endpoint.as_deref().map(|endpoint| provider(endpoint, config)).transpose()?;
    let trace_layer = provider.as_ref().map(|provider| trace_layer(provider.tracer(OUR_TARGETS)));

    // Our own code propagates without the global (see `propagation`); this serves libraries that look there.
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    tracing_subscriber::registry().with(log_layer).with(trace_layer).try_init()?;
    // Spans whose times are told (see `timed`) ask no subscriber.
    if let Some(provider) = &provider {
        opentelemetry::global::set_tracer_provider(provider.clone());
    }
    Ok(TelemetryGuard { provider })
}

fn log_layer(config: &TelemetryConfig) -> Result<Box<dyn Layer<Registry> + Send + Sync>, TelemetryError> {
    let filter = EnvFilter::try_new(&config.log_filter)
        .map_err(|source| TelemetryError::LogFilter { value: config.log_filter.clone(), source })?;
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    Ok(match config.log_format {
        LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).with_filter(filter).boxed(),
        LogFormat::Json => layer.json().with_filter(filter).boxed(),
    })
}

fn provider(endpoint: &str, config: &TelemetryConfig) -> Result<SdkTracerProvider, TelemetryError> {
    // Without a runtime the exporter's channel would panic when it is made.
    tokio::runtime::Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(FLUSH_LIMIT)
        .build()
        .map_err(|source| TelemetryError::Endpoint { endpoint: endpoint.to_owned(), source })?;
    // The batch processor has a thread and a bounded queue of its own: a slow collector drops spans, and a
    // request never waits for it.
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler(config.sample_ratio))
        .with_resource(Resource::builder().with_service_name(config.service_name).build())
        .build())
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
    use super::*;

    fn config() -> TelemetryConfig {
        TelemetryConfig::new("foretoken-test")
    }

    #[test]
    fn a_bad_log_filter_is_named() {
        let error = init(&TelemetryConfig { log_filter: "info,=loud=".to_owned(), ..config() }).unwrap_err();
        assert!(error.to_string().starts_with("log filter \"info,=loud=\" is not valid"), "{error}");
    }

    #[test]
    fn a_ratio_outside_0_to_1_is_refused() {
        for sample_ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error = init(&TelemetryConfig { sample_ratio, ..config() }).unwrap_err();
            assert!(matches!(error, TelemetryError::SampleRatio(_)), "{sample_ratio}: {error}");
        }
    }

    #[test]
    fn an_endpoint_outside_a_runtime_is_an_error_and_no_panic() {
        let endpoint = Some("http://127.0.0.1:4317".to_owned());
        let error = init(&TelemetryConfig { otlp_endpoint: endpoint, ..config() }).unwrap_err();
        assert!(matches!(error, TelemetryError::NoRuntime), "{error}");
    }

    #[tokio::test]
    async fn a_bad_endpoint_is_named() {
        let error = provider("not a url", &config()).unwrap_err();
        assert!(error.to_string().starts_with("OTLP endpoint \"not a url\" cannot be used"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_dead_collector_delays_shutdown_by_no_more_than_the_limit() {
        // A port that was just free: connecting is refused at once.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);

        let provider = provider(&endpoint, &config()).unwrap();
        let subscriber = tracing_subscriber::registry().with(trace_layer(provider.tracer("test")));
        tracing::subscriber::with_default(subscriber, || drop(tracing::info_span!("lost").entered()));
        let guard = TelemetryGuard { provider: Some(provider) };
        tokio::time::timeout(FLUSH_LIMIT + Duration::from_secs(1), guard.shutdown()).await.unwrap();
    }
}
