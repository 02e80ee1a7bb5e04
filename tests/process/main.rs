//! The `foretoken` command and the service processes, as people and operators use them.
//!
//! Ignored where the binary and the default model are not at hand; `tests/run` has both.

mod clients;
mod command;
mod lifecycle;
