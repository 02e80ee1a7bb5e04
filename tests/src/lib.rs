//! Shared helpers of the suites.

pub mod ledger;
pub mod process;
pub mod stats;
