//! Table models, scripted workers and an in-process cluster, for tests only.
//!
//! [`table`] models have exactly known probabilities and run under the *real* runtime and services;
//! [`ngrams`] makes small tables of n-grams; [`cluster`] starts services in one process on port 0, and
//! [`client`] calls them over any [`link_proxy`]; [`scripted`] workers follow a script behind the engine's link traits, and
//! [`wrong_rules`] and [`adjusted::Mistake`] make the field's mistakes there; [`otlp`] collects the traces that services
//! export; [`pki`] issues the certificates that they listen and connect with.

pub mod adjusted;
pub mod client;
pub mod cluster;
pub mod link_proxy;
pub mod ngrams;
pub mod otlp;
pub mod pki;
pub mod scripted;
pub mod table;
pub mod vocabulary;
pub mod wrong_rules;
