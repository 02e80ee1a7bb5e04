//! What can be chosen about logs and traces. Plain values: flags and environment are read by the binaries.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Everything [`init`](crate::init) needs to know.
#[derive(Debug, Clone)]
pub struct TelemetryConfig {
    /// `service.name` of every exported span, e.g. `foretoken-orchestrator`.
    pub service_name: &'static str,
    /// How a log line looks on standard error.
    pub log_format: LogFormat,
    /// Which log lines are written, in the syntax of `RUST_LOG`: `info`, `warn,foretoken_engine=debug`.
    ///
    /// It has no effect on traces: an operator who raises the log level must not flood the collector.
    pub log_filter: String,
    /// Collector that takes OTLP over gRPC, e.g. `http://127.0.0.1:4317`; `None` exports nothing.
    pub otlp_endpoint: Option<String>,
    /// Share of new traces that are recorded, 0 to 1. A request that arrives with a trace keeps that trace's decision.
    pub sample_ratio: f64,
}

impl TelemetryConfig {
    /// Text logs from level `info` on, no export, every trace sampled once an endpoint is set.
    pub fn new(service_name: &'static str) -> Self {
        Self {
            service_name,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
            otlp_endpoint: None,
            sample_ratio: 1.0,
        }
    }
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// One readable line per event, coloured in a terminal.
    #[default]
    Text,
    /// One JSON object per event, for log collectors.
    Json,
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

impl FromStr for LogFormat {
    type Err = ParseLogFormatError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        match value {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(ParseLogFormatError(other.to_owned())),
        }
    }
}

/// A log format that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("log format {0:?} is not known: use text or json")]
pub struct ParseLogFormatError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_formats_parse_as_they_print() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "yaml".parse::<LogFormat>().unwrap_err();
        assert_eq!(error.to_string(), "log format \"yaml\" is not known: use text or json");
    }
}
