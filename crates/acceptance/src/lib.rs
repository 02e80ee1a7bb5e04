//! Exact speculative sampling: distributions, acceptance rules and coins.
//!
//! Everything that decides which token becomes text is here, as plain functions over plain numbers: no IO, no
//! async, no tensors. The three services call the same code, each its own half:
//!
//! | who | calls |
//! |---|---|
//! | draft worker | [`Distribution::fill`], [`Lattice::fill`], [`Lattice::draw`] with draft coins |
//! | verifier | [`Distribution::fill`], [`threshold`], [`repair`], [`Distribution::draw`] with [`VerifierKeys`] |
//! | orchestrator | [`accepted_len`] with accept coins |
//!
//! Letters: p is the target's distribution after all sampling parameters, q what a drafted token x was drawn from,
//! a *coin* a uniform number in [0, 1).
//!
//! Between logits and [`Distribution::fill`] stands [`Shaping`] where a request has a bias, penalties or masks.
//!
//! What this crate does not do: it knows no blocks, sessions or frames.

mod adjustments;
mod coins;
mod distribution;
mod exp;
mod history;
mod lattice;
mod logprobs;
mod params;
mod proposal;
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
pub use shaping::Shaping;
pub use token_rule::{accepted_len, overlap, repair, residual, threshold};
