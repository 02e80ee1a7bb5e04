//! Whole requests through three services over real gRPC, on table models.

mod basics;
