//! The graph engine: the same decoder over candle's tensors, on any device candle has.
//!
//! `model.rs` moves the weights to the device, `cache.rs` holds the sessions' rows there, `pass.rs`
//! is the pass. Every linear layer runs once over the rows of all sessions, attention runs per
//! session, the head only over the rows asked for, and all their logits come to the host in one
//! copy at the end.
//!
//! Rows are not bit-equal across batches here: matrix kernels of a GPU are chosen by shape and add
//! in an order of their own. They depend on nothing but their session's tokens up to that rounding.
//! Quantised weights multiply in candle's kernels, which round activations to 8 bits.
//!
//! What is proven: on the CPU device, agreement with the reference engine. The code for CUDA is
//! type-checked (`tests/cuda_check`); it has not been run on a GPU, nor has any of it on Metal.

mod cache;
mod linear;
mod model;
mod pass;

use crate::compute::rope::Rope;
use crate::slots::Slots;
use crate::weights::Weights;
use cache::GraphCache;
use candle_core::Device;
use foretoken_runtime::decoder::{Decoder, DecoderError, ModelShape, Row, SessionRows, Slot};
use model::GraphModel;
use pass::Pass;

/// A model as tensors on a device, with the caches of its sessions.
#[derive(Debug)]
pub struct GraphDecoder {
    shape: ModelShape,
    model: GraphModel,
    slots: Slots<GraphCache>,
    /// Rows of `vocab_size` logits of the last pass.
    logits: Vec<f32>,
}

impl GraphDecoder {
    /// Moves the weights to the device, part by part; `shape` must be that of `weights`.
    pub(crate) fn new(
        mut shape: ModelShape,
        weights: Weights,
        rope: Rope,
        device: &Device,
    ) -> Result<Self, candle_core::Error> {
        let model = GraphModel::upload(weights, rope, device)?;
        shape.weight_bytes = model.bytes();
        Ok(Self { shape, model, slots: Slots::default(), logits: Vec::new() })
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
        self.logits.clear();
        if spans.is_empty() {
            return Ok(());
        }
        let logits =
            Pass::run(&self.model, &mut self.slots, batch, &spans).map_err(|error| backend(&error))?;
        if let Some(logits) = logits {
            // Rows beyond the tokenizer's vocabulary are padding.
            let rows = logits.narrow(1, 0, vocab_size).and_then(|rows| rows.flatten_all()?.to_vec1());
            self.logits = rows.map_err(|error| backend(&error))?;
        }
        Ok(())
    }

    fn row(&self, index: usize) -> Row<'_> {
        let width = self.shape.vocab_size;
        Row::Host(&self.logits[index * width..(index + 1) * width])
    }
}

fn backend(error: &candle_core::Error) -> DecoderError {
    DecoderError::Backend(error.to_string())
}
