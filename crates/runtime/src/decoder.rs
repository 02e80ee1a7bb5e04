//! What the runtime asks of a model: a ragged pass, the rows asked for or what follows from them, and
//! O(1) truncation.
//!
//! Implemented by `foretoken-model` over candle and by the test kit's table models. Nothing here
//! batches or knows of sessions beyond their cache slots.

use foretoken_acceptance::{Proposal, Sampling};
use thiserror::Error;

/// What a loaded model is and what it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelShape {
    /// Name shown to people and in traces, e.g. `SmolLM2-135M-Instruct`.
    pub name: String,
    /// SHA-256 of the weights file, lower-case hex.
    pub fingerprint: String,
    /// Entries of a logits row: the tokenizer's vocabulary. Padded rows beyond it are cut off by the decoder.
    pub vocab_size: usize,
    /// Positions the model can attend over, prompt included.
    pub max_context: usize,
    /// Resident bytes of the weights.
    pub weight_bytes: u64,
    /// Bytes that one cached position costs over all layers.
    pub kv_bytes_per_token: u64,
    /// `cpu`, `cuda:0`, `metal:0`.
    pub device: String,
}

/// A session's place in the decoder's KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// One session's new rows in a pass.
#[derive(Debug, Clone, Copy)]
pub struct SessionRows<'a> {
    /// Whose cache the rows extend.
    pub slot: Slot,
    /// Tokens to feed behind what the slot's cache holds; at least one.
    pub tokens: &'a [u32],
    /// How many of the *last* rows want logits, at most `tokens.len()`.
    pub logits: usize,
}

/// The next-token logits of one row.
///
/// An enum because a device may come to hand out rows in other forms. What it can answer without
/// giving a row away goes through [`Decoder::judge`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Row<'a> {
    /// `vocab_size` logits in host memory.
    Host(&'a [f32]),
}

/// What is to be known of one row, in a form that a device can answer without giving the row away.
#[derive(Debug, Clone, Copy)]
pub struct RowAsk<'a> {
    /// The row, counted as in [`Decoder::row`].
    pub row: usize,
    /// The token drafted for the row's position and what it was drawn from; none where a token is
    /// only to be drawn.
    pub drafted: Option<(u32, Proposal<'a>)>,
    /// The coin of the draw.
    pub coin: f64,
}

/// The answer to an [`RowAsk`], with p the row's distribution after all sampling parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowAnswer {
    /// min(1, p/q) of the drafted token; 0 without one.
    pub threshold: f64,
    /// Σ min(p, q); 0 without a drafted token.
    pub overlap: f64,
    /// Drawn from norm(max(0, p − q)), or from p without a drafted token.
    pub token: u32,
}

/// Why a decoder could not do what it was asked.
#[derive(Debug, Error)]
pub enum DecoderError {
    /// The slot's cache has no room for the rows.
    #[error("slot {slot} holds {len} of {capacity} positions and was fed {rows} more")]
    Capacity {
        /// The slot's number.
        slot: u32,
        /// Positions held.
        len: usize,
        /// Positions reserved.
        capacity: usize,
        /// Rows fed.
        rows: usize,
    },
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab_size}")]
    Token {
        /// The token.
        token: u32,
        /// The vocabulary's size.
        vocab_size: usize,
    },
    /// The backend failed; the slots of the pass are undefined and must be released.
    #[error("model backend failed: {0}")]
    Backend(String),
}

/// A model that can run several sessions' rows in one pass.
///
/// Invariant: the logits of a row depend on the tokens of its own session before it and on nothing
/// else. They do not depend, on the CPU not by a single bit, on the other sessions of the pass nor on
/// how the session's tokens were split into passes.
pub trait Decoder: Send + 'static {
    /// What the model is and costs.
    fn shape(&self) -> &ModelShape;

    /// Reserves a slot with room for `capacity` positions.
    fn allocate(&mut self, capacity: usize) -> Result<Slot, DecoderError>;

    /// Positions the slot's cache holds.
    fn len(&self, slot: Slot) -> usize;

    /// Forgets all positions from `len` on, in O(1). No effect where the cache is shorter.
    fn truncate(&mut self, slot: Slot, len: usize);

    /// Gives the slot back.
    fn release(&mut self, slot: Slot);

    /// Feeds every session's rows in one pass; a slot appears at most once.
    ///
    /// # Errors
    /// Tokens and capacities are checked before anything is fed, so [`DecoderError::Token`] and
    /// [`DecoderError::Capacity`] leave all slots as they were.
    fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError>;

    /// Answers where the rows lie, to the rounding of `foretoken_acceptance` on the same rows; none
    /// where the decoder would rather have its rows read, as one in host memory always does.
    ///
    /// Rows that are no distribution, such as those with a NaN, are never answered: reading them
    /// tells what is wrong.
    fn judge(&self, _sampling: &Sampling, _asks: &[RowAsk<'_>]) -> Option<Vec<RowAnswer>> {
        None
    }

    /// Bytes copied from the device's memory to the host's since the decoder was made: rows that were read and what
    /// [`judge`](Self::judge) needed. 0 for one whose rows lie in host memory.
    fn copied_to_host(&self) -> u64 {
        0
    }

    /// The `index`-th row asked for in the last pass, counted over the batch in its order.
    ///
    /// # Panics
    /// If the last pass was not asked for that many rows.
    fn row(&self, index: usize) -> Row<'_>;
}
