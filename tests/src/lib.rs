//! Shared helpers of the suites.
