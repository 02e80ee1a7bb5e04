//! Whole requests through three services over real gRPC: on table models in this process, and on the real
//! model in processes of their own.

#![allow(clippy::unwrap_used, reason = "a suite stops where its premises fail")]
#![allow(clippy::print_stdout, reason = "a suite on a real model tells what it measured")]

mod basics;
mod padding;
mod parameters;
mod real_model;
