//! Logs, OpenTelemetry traces and their propagation between services.
//!
//! A process calls [`init`] once, early in `main` and inside its tokio runtime, keeps the returned
//! [`TelemetryGuard`] and ends with [`TelemetryGuard::shutdown`]. Services hand the trace on with
//! [`propagation`], name what they record by [`names`], and make spans of what has happened already with [`timed`].
//!
//! What this crate does not do: it records nothing by itself, opens no port, and reads no environment of
//! its own accord (binaries flatten [`TelemetryArgs`], and pass a [`TelemetryConfig`]). No function here can make a request
//! fail: an unreachable collector costs spans, never answers.

pub mod names;
pub mod propagation;
pub mod rpc;
pub mod timed;

mod args;
mod config;
mod setup;

pub use args::TelemetryArgs;
pub use config::{LogFormat, ParseLogFormatError, TelemetryConfig};
pub use opentelemetry::{Context, Value};
pub use setup::{TelemetryError, TelemetryGuard, init};
