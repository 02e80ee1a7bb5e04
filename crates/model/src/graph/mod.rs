//! The graph engine: the same decoder over candle's tensors, on any device candle has.
//!
//! `model.rs` moves the weights to the device, `cache.rs` holds the sessions' rows there, `pass.rs`
//! is the pass. Every linear layer runs once over the rows of all sessions, attention runs per
//! session, the head only over the rows asked for. Their logits stay on the device: `judge.rs`
//! answers for them there, and only where it cannot do they come to the host, all in one copy.
//!
//! Rows are not bit-equal across batches here: matrix kernels of a GPU are chosen by shape and add
//! in an order of their own. They depend on nothing but their session's tokens up to that rounding.
//! Quantised weights multiply in candle's kernels, which round activations to 8 bits.
//!
//! What is proven: on the CPU device, agreement with the reference engine and with the rules. For
//! CUDA and Metal the code is type-checked (`tests/cuda_check`, `tests/metal_check`); it has not been
//! run on a GPU of either kind, and nothing is measured there.

mod cache;
mod copied;
mod judge;
mod linear;
mod model;
mod pass;

use crate::compute::rope::Ropes;
use crate::slots::Slots;
use crate::weights::Weights;
use cache::GraphCache;
use candle_core::{Device, Tensor};
use copied::Copied;
use foretoken_acceptance::Sampling;
use foretoken_runtime::decoder::{
    Decoder, DecoderError, ModelShape, Row, RowAnswer, RowAsk, SessionRows, Slot,
};
use model::GraphModel;
use pass::Pass;
use std::sync::OnceLock;

/// A model as tensors on a device, with the caches of its sessions.
#[derive(Debug)]
pub struct GraphDecoder {
    shape: ModelShape,
    model: GraphModel,
    slots: Slots<GraphCache>,
    /// Rows of `vocab_size` logits of the last pass, on the device.
    logits: Option<Tensor>,
    /// The same on the host, once anyone has read one.
    read: OnceLock<Vec<f32>>,
    copied: Copied,
}

impl GraphDecoder {
    /// Moves the weights to the device, part by part; `shape` must be that of `weights`.
    pub(crate) fn new(
        mut shape: ModelShape,
        weights: Weights,
        ropes: Ropes,
        device: &Device,
    ) -> Result<Self, candle_core::Error> {
        let model = GraphModel::upload(weights, ropes, device)?;
        shape.weight_bytes = model.bytes();
        Ok(Self {
            shape,
            model,
            slots: Slots::default(),
            logits: None,
            read: OnceLock::new(),
            copied: Copied::default(),
        })
    }
}

impl Decoder for GraphDecoder {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, capacity: usize) -> Result<Slot, DecoderError> {
        let model = &self.model;
        let cache = || GraphCache::new(model, capacity).map_err(|error| backend(&error));
        self.slots.allocate(&self.shape, capacity, cache)
    }

    fn len(&self, slot: Slot) -> usize {
        self.slots.len(slot)
    }

    fn truncate(&mut self, slot: Slot, len: usize) {
        self.slots.truncate(slot, len);
    }

    fn release(&mut self, slot: Slot) {
        self.slots.release(slot);
    }

    fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
        let vocab_size = self.shape.vocab_size;
        let spans = self.slots.plan(batch, vocab_size)?;
        (self.logits, self.read) = (None, OnceLock::new());
        if spans.is_empty() {
            return Ok(());
        }
        let logits =
            Pass::run(&self.model, &mut self.slots, batch, &spans).map_err(|error| backend(&error))?;
        // Rows beyond the tokenizer's vocabulary are padding.
        let cut = |logits: Tensor| logits.narrow(1, 0, vocab_size)?.contiguous();
        self.logits = logits.map(cut).transpose().map_err(|error| backend(&error))?;
        // A pass has taken its time when it returns, and fails here if it fails.
        self.model.device.synchronize().map_err(|error| backend(&error))
    }

    fn judge(&self, sampling: &Sampling, asks: &[RowAsk<'_>]) -> Option<Vec<RowAnswer>> {
        judge::judge(self.logits.as_ref()?, sampling, asks, &self.copied).unwrap_or_else(|error| {
            tracing::warn!(%error, "the device did not judge its rows; they are read instead");
            None
        })
    }

    fn copied_to_host(&self) -> u64 {
        self.copied.bytes()
    }

    fn row(&self, index: usize) -> Row<'_> {
        let width = self.shape.vocab_size;
        Row::Host(&self.read.get_or_init(|| self.fetch())[index * width..(index + 1) * width])
    }
}

impl GraphDecoder {
    /// Copies the rows of the last pass to the host. Rows that cannot be fetched read as NaN, which
    /// whoever samples from them refuses.
    fn fetch(&self) -> Vec<f32> {
        let Some(logits) = &self.logits else { return Vec::new() };
        logits.flatten_all().and_then(|rows| self.copied.vector(&rows)).unwrap_or_else(|error| {
            tracing::error!(%error, "logits could not be read from the device");
            vec![f32::NAN; logits.elem_count()]
        })
    }
}

fn backend(error: &candle_core::Error) -> DecoderError {
    DecoderError::Backend(error.to_string())
}
