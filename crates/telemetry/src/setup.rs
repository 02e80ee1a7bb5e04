//! Installs the process's subscriber and takes it down again.

use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use thiserror::Error;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{MetricsExporter, TelemetryConfig};
use crate::logs;
use crate::metrics::Metrics;
use crate::timed;
use crate::traces::{OUR_TARGETS, provider, trace_layer};

/// Longest that [`TelemetryGuard::shutdown`] waits for the last spans to leave, and longest that one batch may take.
pub(crate) const FLUSH_LIMIT: Duration = Duration::from_secs(5);

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
    #[error("traces and metrics can be exported only from inside a tokio runtime")]
    NoRuntime,
    /// The address for scrapes cannot be listened at.
    #[error("metrics cannot be served at {address}: {source}; choose another address with --metrics-listen")]
    MetricsListen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The collection of metrics cannot be set up.
    #[error("metrics cannot be collected: {0}")]
    Metrics(String),
    /// Something else in this process has installed a subscriber already.
    #[error("telemetry is already set up in this process: {0}")]
    AlreadySet(#[from] tracing_subscriber::util::TryInitError),
}

/// Keeps what must be flushed when the process ends.
#[derive(Debug)]
#[must_use = "the last spans are lost unless the guard is kept and shut down"]
pub struct TelemetryGuard {
    /// `None` when no traces are exported.
    traces: Option<SdkTracerProvider>,
    /// `None` when metrics are neither exported nor served.
    metrics: Option<Metrics>,
}

impl TelemetryGuard {
    /// Where metrics are served, if they are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(Metrics::address)
    }

    /// Sends the spans and metrics still waiting, for at most five seconds each, and closes the metrics' port. Call it
    /// after the server has drained.
    ///
    /// A collector that does not answer is worth a warning and nothing more.
    pub async fn shutdown(self) {
        if let Some(traces) = self.traces {
            flush("spans", move || traces.shutdown_with_timeout(FLUSH_LIMIT)).await;
        }
        if let Some(metrics) = self.metrics {
            let provider = metrics.stop().await;
            flush("metrics", move || provider.shutdown_with_timeout(FLUSH_LIMIT)).await;
        }
    }
}

async fn flush(what: &str, shutdown: impl FnOnce() -> OTelSdkResult + Send + 'static) {
    // The provider blocks its thread until the exporter, which needs this runtime, has answered.
    let flush = tokio::task::spawn_blocking(shutdown);
    match tokio::time::timeout(FLUSH_LIMIT, flush).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, "the last {what} were not exported"),
        Ok(Err(error)) => tracing::warn!(%error, "the flush of {what} ended early"),
        Err(_) => tracing::warn!(limit = ?FLUSH_LIMIT, "the last {what} were not exported in time"),
    }
}

/// Sets up logs on standard error; if an endpoint is given, the export of traces and metrics; and if an address for
/// them is given, the scraping of metrics.
///
/// Standard output is left alone: it belongs to a command's result. Call it once per process.
pub fn init(config: &TelemetryConfig) -> Result<TelemetryGuard, TelemetryError> {
    if !(0.0..=1.0).contains(&config.sample_ratio) {
        return Err(TelemetryError::SampleRatio(config.sample_ratio));
    }
    let log_layer = logs::layer(config, std::io::stderr)?;
    let endpoint = config.otlp_endpoint.as_deref();
    let traces = endpoint.map(|endpoint| provider(endpoint, config)).transpose()?;
    let trace_layer = traces.as_ref().map(|provider| trace_layer(provider.tracer(OUR_TARGETS)));
    let pushed_to = endpoint.filter(|_| config.metrics_exporter == MetricsExporter::Otlp);
    let metrics = Metrics::start(pushed_to, config.metrics_listen, resource(config))?;

    // Our own code propagates without the global (see `propagation`); this serves libraries that look there.
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    tracing_subscriber::registry().with(log_layer).with(trace_layer).try_init()?;
    // Spans whose times are told ask no subscriber.
    if let Some(provider) = &traces {
        timed::export_by(provider.tracer(OUR_TARGETS));
        // No code of ours looks there; libraries may.
        opentelemetry::global::set_tracer_provider(provider.clone());
    }
    let guard = TelemetryGuard { traces, metrics };
    if let Some(address) = guard.metrics_address() {
        tracing::info!(%address, "serving /metrics");
    }
    Ok(guard)
}

/// What everything exported says of the process.
pub(crate) fn resource(config: &TelemetryConfig) -> Resource {
    Resource::builder().with_service_name(config.service_name).build()
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
    async fn an_address_for_scrapes_that_is_taken_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let metrics_listen = Some(address);
        let error = init(&TelemetryConfig { metrics_listen, ..config() }).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
        assert!(error.contains("--metrics-listen"), "{error}");
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
        let guard = TelemetryGuard { traces: Some(provider), metrics: None };
        tokio::time::timeout(FLUSH_LIMIT + Duration::from_secs(1), guard.shutdown()).await.unwrap();
    }
}
