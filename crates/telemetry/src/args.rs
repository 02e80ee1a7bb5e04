//! The flags by which a service's logs and traces are chosen.

use clap::Args;

use crate::config::{LogFormat, TelemetryConfig};

/// Logs and traces. Flatten it into a service's arguments.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Telemetry")]
pub struct TelemetryArgs {
    /// How log lines on standard error look: text or json
    #[arg(long, env = "FORETOKEN_LOG_FORMAT", value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Which log lines are written, e.g. info or warn,foretoken_engine=debug
    #[arg(long, env = "RUST_LOG", value_name = "FILTER", default_value = "info")]
    pub log_filter: String,

    /// OpenTelemetry collector that takes OTLP over gRPC, e.g. http://127.0.0.1:4317; none exports nothing
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,

    /// Share of new traces that are recorded, 0 to 1
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", value_name = "RATIO", default_value_t = 1.0)]
    pub trace_ratio: f64,
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
        }
    }
}
