//! Shared helpers of the suites.

pub mod stats;
