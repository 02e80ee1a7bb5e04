//! The flags by which a service's logs, traces and metrics are chosen.

use std::net::SocketAddr;

use clap::Args;

use crate::config::{LogFormat, MetricsExporter, TelemetryConfig};

/// The variable for `--metrics-listen`: not one for processes of one machine to share.
pub const METRICS_LISTEN_VAR: &str = "FORETOKEN_METRICS_LISTEN";

/// Logs, traces and metrics. Flatten it into a service's arguments.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Telemetry")]
pub struct TelemetryArgs {
    /// How log lines on standard error look: text or json
    #[arg(long, env = "FORETOKEN_LOG_FORMAT", value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Which log lines are written, e.g. info or warn,foretoken_engine=debug
    #[arg(long, env = "RUST_LOG", value_name = "FILTER", default_value = "info")]
    pub log_filter: String,

    /// OpenTelemetry collector that takes traces and metrics as OTLP over gRPC, e.g. http://127.0.0.1:4317; none exports nothing
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,

    /// Share of new traces that are recorded, 0 to 1
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", value_name = "RATIO", default_value_t = 1.0)]
    pub trace_ratio: f64,

    /// Whether metrics go to the collector too: otlp, or none for one that takes traces only, such as Jaeger
    #[arg(long, env = "OTEL_METRICS_EXPORTER", value_name = "EXPORTER", default_value_t = MetricsExporter::Otlp)]
    pub metrics_exporter: MetricsExporter,

    /// Address where Prometheus can scrape /metrics, e.g. 0.0.0.0:9464; port 0 takes a free one and logs it; none opens no port
    #[arg(long, env = METRICS_LISTEN_VAR, value_name = "ADDR")]
    pub metrics_listen: Option<SocketAddr>,
}

impl TelemetryArgs {
    /// What [`init`](crate::init) needs.
    #[must_use]
    pub fn config(&self, service_name: &'static str) -> TelemetryConfig {
        TelemetryConfig {
            service_name,
            log_format: self.log_format,
            log_filter: self.log_filter.clone(),
            otlp_endpoint: self.otlp_endpoint.clone(),
            sample_ratio: self.trace_ratio,
            metrics_exporter: self.metrics_exporter,
            metrics_listen: self.metrics_listen,
        }
    }
}
