//! The `foretoken` command and the service processes, as people and operators use them.
//!
//! Ignored where the binary and the default model are not at hand; `tests/run` has both.

#![allow(clippy::unwrap_used, reason = "a suite stops where its premises fail")]

mod chat;
mod clients;
mod command;
mod lifecycle;
mod ngram;
mod tls;
