//! Log lines on standard error: which are written ([`filter`]) and how they look ([`line`]).

mod filter;
mod line;

use std::io::IsTerminal;

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{JsonFields, format};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{LogFormat, TelemetryConfig};
use crate::setup::TelemetryError;
use filter::LogFilter;
use line::WithTrace;

/// The layer that writes log lines to `writer`.
pub(crate) fn layer<S, W>(
    config: &TelemetryConfig,
    writer: W,
) -> Result<Box<dyn Layer<S> + Send + Sync>, TelemetryError>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let chosen = EnvFilter::try_new(&config.log_filter)
        .map_err(|source| TelemetryError::LogFilter { value: config.log_filter.clone(), source })?;
    let filter = LogFilter::new(chosen);
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    Ok(match config.log_format {
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            let format = WithTrace::behind(format().with_ansi(ansi));
            layer.with_ansi(ansi).event_format(format).with_filter(filter).boxed()
        }
        LogFormat::Json => {
            let format = WithTrace::within_json(format().json());
            layer.fmt_fields(JsonFields::new()).event_format(format).with_filter(filter).boxed()
        }
    })
}

#[cfg(test)]
mod tests;
