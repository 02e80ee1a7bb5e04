//! What can be chosen about logs, traces and metrics. Plain values: flags and environment are read by the binaries.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use thiserror::Error;

/// Everything [`init`](crate::init) needs to know.
#[derive(Debug, Clone)]
pub struct TelemetryConfig {
    /// `service.name` of all that is exported, e.g. `foretoken-orchestrator`.
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
    /// Whether the collector gets metrics too.
    pub metrics_exporter: MetricsExporter,
    /// Where metrics can be scraped, at `/metrics`; `None` opens no port.
    pub metrics_listen: Option<SocketAddr>,
}

impl TelemetryConfig {
    /// Text logs from level `info` on, no export, no port, every trace sampled once an endpoint is set.
    pub fn new(service_name: &'static str) -> Self {
        Self {
            service_name,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
            otlp_endpoint: None,
            sample_ratio: 1.0,
            metrics_exporter: MetricsExporter::Otlp,
            metrics_listen: None,
        }
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)* })
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(value: &str) -> Result<Self, UnknownWord> {
                match value {
                    $($word => Ok(Self::$variant),)*
                    other => Err(UnknownWord { what: $what, value: other.to_owned(), known: &[$($word),*] }),
                }
            }
        }
    };
}

words! {
    /// How a log line looks.
    LogFormat, "log format" {
        /// One readable line per event, coloured in a terminal.
        Text = "text",
        /// One JSON object per event, for log collectors.
        Json = "json",
    }
}

words! {
    /// Where metrics are pushed.
    MetricsExporter, "metrics exporter" {
        /// To the collector that takes traces, if there is one.
        Otlp = "otlp",
        /// Nowhere.
        None = "none",
    }
}

/// A value that a setting does not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} {value:?} is not known: use {}", .known.join(" or "))]
pub struct UnknownWord {
    what: &'static str,
    value: String,
    known: &'static [&'static str],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_parse_as_they_print() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        for exporter in [MetricsExporter::Otlp, MetricsExporter::None] {
            assert_eq!(exporter.to_string().parse(), Ok(exporter));
        }
        let error = "yaml".parse::<LogFormat>().unwrap_err();
        assert_eq!(error.to_string(), "log format \"yaml\" is not known: use text or json");
    }
}
