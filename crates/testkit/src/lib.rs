//! Table models, scripted workers and an in-process cluster, for tests only.
//!
//! [`table`] models have exactly known probabilities and run under the *real* runtime and services;
//! [`cluster`] starts all three services in one process on port 0; [`scripted`] workers follow a script
//! behind the engine's link traits; [`wrong_rules`] are the field's mistakes behind the same traits.

pub mod table;
