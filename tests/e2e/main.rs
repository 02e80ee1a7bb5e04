//! Whole requests through three services over real gRPC: on table models in this process, and on the real
//! model in processes of their own.

mod basics;
mod real_model;
