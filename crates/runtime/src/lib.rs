//! One model on one thread: sessions, continuous batching, verdicts.

pub mod decoder;
