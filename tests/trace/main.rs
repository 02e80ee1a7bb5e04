//! One trace per request across the three services: its shape, in this process and in a real Jaeger, and what becomes of
//! requests whose collector is dead.
//!
//! Spans of services in this process go through the real exporter to the test kit's collector. What needs service
//! processes, the default model or Jaeger is ignored where they are not at hand; `tests/run` has all three.

#![allow(clippy::unwrap_used, reason = "a suite stops where its premises fail")]

mod collected;
mod collectors;
mod in_process;
mod jaeger;
mod query;
mod shape;
mod workers;
