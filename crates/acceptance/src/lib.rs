//! Exact speculative sampling: distributions, acceptance rules and coins.
//!
//! Everything that decides which token becomes text is here, as plain functions over plain numbers: no IO, no
//! async, no tensors. The three services call the same code, each its own half:
//!
//! | who | calls |
//! |---|---|
//! | draft worker | [`Distribution::fill`], [`Lattice::fill`], [`Lattice::draw`] with draft coins; [`gumbel::draw`] |
//! | verifier | [`Distribution::fill`], then [`threshold`] and [`repair`], or [`block_rule::BlockRule`], or [`gumbel::draw`]; [`Distribution::draw`] with [`VerifierKeys`] |
//! | orchestrator | [`accepted_len`] with accept coins, [`block_rule::accepted_len`], [`gumbel::accepted_len`] |
//!
//! Letters: p is the target's distribution after all sampling parameters, q what a drafted token x was drawn from,
//! a *coin* a uniform number in [0, 1).
//!
//! Between logits and [`Distribution::fill`] stands [`Shaping`] where a request has a bias, penalties or masks.
//!
//! What this crate does not do: it knows no blocks, sessions or frames.

mod adjustments;
pub mod block_rule;
mod coins;
mod distribution;
mod exp;
pub mod gumbel;
mod history;
mod lattice;
mod logprobs;
mod params;
mod proposal;
mod rule;
mod scratch;
mod select;
mod shaping;
mod token_rule;

pub use adjustments::{
    AdjustmentError, AdjustmentParams, Adjustments, MAX_BIASES, MAX_END_IDS, MAX_MASKED_IDS,
};
pub use coins::{CoinKey, Purpose, RequestKeys, VerifierKeys};
pub use distribution::{Distribution, LogitsError, SupportIter};
pub use lattice::{Lattice, LatticeError, LatticeIter, LatticeShape, ShapeError};
pub use logprobs::{Logprobs, LogprobsBuffer, MAX_LOGPROBS};
pub use params::{ParamError, Sampling};
pub use proposal::{Proposal, ProposalIter};
pub use rule::{Rule, UnknownRule};
pub use shaping::Shaping;
pub use token_rule::{accepted_len, overlap, repair, residual, threshold};
