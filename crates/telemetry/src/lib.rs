//! Logs, OpenTelemetry traces and metrics, and the propagation of traces between services.
//!
//! A process calls [`init`] once, early in `main` and inside its tokio runtime, keeps the returned
//! [`TelemetryGuard`] and ends with [`TelemetryGuard::shutdown`]. Services hand the trace on with
//! [`propagation`], name what they record by [`names`] and [`metrics::names`], and make spans of what has happened already
//! with [`timed`].
//!
//! What this crate does not do: it records nothing by itself, opens no port but the one asked for, and reads no environment of
//! its own accord (binaries flatten [`TelemetryArgs`], and pass a [`TelemetryConfig`]). No function here can make a request
//! fail: an unreachable collector costs spans and metrics, never answers.

pub mod metrics;
pub mod names;
pub mod propagation;
pub mod rpc;
pub mod timed;

mod args;
mod config;
mod logs;
mod setup;
mod traces;

pub use args::{METRICS_LISTEN_VAR, TelemetryArgs};
pub use config::{LogFormat, MetricsExporter, TelemetryConfig, UnknownWord};
pub use opentelemetry::{Context, Value};
pub use setup::{TelemetryError, TelemetryGuard, init};
