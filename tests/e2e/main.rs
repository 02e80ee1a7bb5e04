//! Whole requests through three services over real gRPC: on table models in this process, and on the real
//! model in processes of their own.

#![allow(clippy::unwrap_used, reason = "a suite stops where its premises fail")]

mod basics;
mod padding;
mod real_model;
