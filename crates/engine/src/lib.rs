//! The conversation between orchestrator and workers, and the speculative round.
//!
//! [`conversation`] holds the frames and the two ends' view of the text: pure state machines, used by
//! the orchestrator and by the workers alike. [`generate`] is the round loop over the [`link`] traits:
//! draft, verify, accept, commit. [`ngram`] drafts without weights; [`ledger`] counts what an answer cost.
//!
//! Never here: gRPC (services translate to these types) and tensors (workers hide them behind frames).

pub mod conversation;
pub mod generate;
pub mod ledger;
pub mod link;
pub mod ngram;

pub use acceptance::{
    AdjustmentError, AdjustmentParams, Adjustments, CoinKey, Lattice, LatticeShape, Logprobs, MAX_END_IDS,
    MAX_LOGPROBS, RequestKeys, Rule, Sampling, VerifierKeys,
};
use foretoken_acceptance as acceptance;
