//! Metrics: what is measured ([`names`]), the provider that collects it, and its two ways out: pushed over OTLP,
//! and scraped from `endpoint`.
//!
//! Instruments are counters in memory, and reading them is the reader's work: nothing here waits, and a collector
//! that is slow or gone costs nothing but its own data.

mod endpoint;
mod metric;
pub mod names;
mod table;

use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry_otlp::{MetricExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};

pub use metric::{Kind, Metric, Service};
pub use opentelemetry::KeyValue;
pub use opentelemetry::metrics::{Counter, Gauge, Histogram};
pub use table::markdown;

use crate::setup::TelemetryError;
use endpoint::Endpoint;

/// How often metrics are pushed: as often as Prometheus commonly scrapes.
const PUSH_INTERVAL: Duration = Duration::from_secs(15);

/// Longest that one push may take. What a push lost is in the next one: sums are cumulative.
const PUSH_LIMIT: Duration = Duration::from_secs(5);

/// The process's meter provider and what serves it.
#[derive(Debug)]
pub(crate) struct Metrics {
    provider: SdkMeterProvider,
    endpoint: Option<Endpoint>,
}

impl Metrics {
    /// Sets up what is asked for, if anything is, and makes it the process's own.
    pub(crate) fn start(
        otlp_endpoint: Option<&str>,
        listen: Option<SocketAddr>,
        resource: Resource,
    ) -> Result<Option<Self>, TelemetryError> {
        if otlp_endpoint.is_none() && listen.is_none() {
            return Ok(None);
        }
        // Both the exporter's connection and the endpoint live on the process's runtime.
        tokio::runtime::Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
        let mut builder = SdkMeterProvider::builder().with_resource(resource);
        if let Some(endpoint) = otlp_endpoint {
            let exporter = MetricExporter::builder()
                .with_tonic()
                .with_endpoint(endpoint)
                .with_timeout(PUSH_LIMIT)
                .build()
                .map_err(|source| TelemetryError::Endpoint { endpoint: endpoint.to_owned(), source })?;
            builder =
                builder.with_reader(PeriodicReader::builder(exporter).with_interval(PUSH_INTERVAL).build());
        }
        let mut endpoint = None;
        if let Some(address) = listen {
            let registry = prometheus::Registry::new();
            // The names in `names` are what is scraped: nothing is added to them.
            let reader = opentelemetry_prometheus::exporter()
                .with_registry(registry.clone())
                .without_units()
                .without_counter_suffixes()
                .scope_info_enabled(false)
                .build()
                .map_err(|error| TelemetryError::Metrics(error.to_string()))?;
            builder = builder.with_reader(reader);
            let failed = |source| TelemetryError::MetricsListen { address, source };
            endpoint = Some(Endpoint::start(address, registry).map_err(failed)?);
        }
        let provider = builder.build();
        opentelemetry::global::set_meter_provider(provider.clone());
        Ok(Some(Self { provider, endpoint }))
    }

    /// Where they are served, if they are.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().map(Endpoint::address)
    }

    /// Ends the endpoint after the scrapes in progress; the provider is for the caller to shut down, who blocks.
    pub(crate) async fn stop(self) -> SdkMeterProvider {
        if let Some(endpoint) = self.endpoint {
            endpoint.stop().await;
        }
        self.provider
    }
}
