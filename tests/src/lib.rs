//! Shared helpers of the suites.

pub mod process;
pub mod stats;
