//! What must not happen: broken messages, bad input, lost and wrong workers, and the faults that other engines report.
//!
//! `../field_faults.md` maps each of those reports to its test. Everything runs on table models under the real
//! services, over real gRPC; `malformed` alone scripts its workers behind the engine's traits.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, helpers included")]

mod acceptance;
mod admission;
mod clients;
mod drafters;
mod draining;
mod ends;
mod input;
mod logprobs;
mod malformed;
mod models;
mod parameters;
mod protocol;
mod samples;
mod support;
mod tables;
mod text;
mod verifiers;
