//! Metrics as operators meet them: scraped from running services, by hand and by a real Prometheus; pushed to a
//! collector; named in the dashboard and the alerts.
//!
//! Ignored where the binary, the default model or Prometheus are not at hand; `tests/run` has them.

#![allow(clippy::unwrap_used, reason = "a suite stops where its premises fail")]

mod artifacts;
mod collector;
mod exposition;
mod logs;
mod measured;
mod numbers;
mod prometheus;
