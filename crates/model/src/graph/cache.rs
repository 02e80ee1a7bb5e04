//! The key and value rows of one session in device memory.
//!
//! Reserved whole when the session opens and written in place: nothing is concatenated or moved,
//! and forgetting is setting the length.

use super::model::GraphModel;
use crate::slots::Positions;
use candle_core::{DType, Result, Tensor};
use std::ops::Range;

/// One session's cache over all layers.
#[derive(Debug)]
pub(super) struct GraphCache {
    layers: Vec<LayerCache>,
    len: usize,
    capacity: usize,
}

/// Both as (key-value heads, capacity, head size), so that a prefix of positions is one matrix a head.
#[derive(Debug)]
struct LayerCache {
    keys: Tensor,
    values: Tensor,
}

impl GraphCache {
    /// Reserves room for `capacity` positions.
    pub(super) fn new(model: &GraphModel, capacity: usize) -> Result<Self> {
        let heads = model.config.heads;
        // A tensor must not be empty, a session may.
        let shape = (heads.key_value, capacity.max(1), heads.dim);
        let zeros = || Tensor::zeros(shape, DType::F32, &model.device);
        let layers = (0..model.config.layers)
            .map(|_| Ok(LayerCache { keys: zeros()?, values: zeros()? }))
            .collect::<Result<_>>()?;
        Ok(Self { layers, len: 0, capacity })
    }

    /// Writes rows of one layer, (key-value heads, rows, head size), behind the held positions.
    pub(super) fn write(&self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        let layer = &self.layers[layer];
        layer.keys.slice_set(keys, 1, self.len)?;
        layer.values.slice_set(values, 1, self.len)
    }

    /// Keys and values of some positions of one layer; views, no copies.
    pub(super) fn context(&self, layer: usize, positions: Range<usize>) -> Result<(Tensor, Tensor)> {
        let layer = &self.layers[layer];
        let view = |all: &Tensor| all.narrow(1, positions.start, positions.len());
        Ok((view(&layer.keys)?, view(&layer.values)?))
    }

    /// Counts `rows` positions, written to every layer, as held.
    pub(super) fn advance(&mut self, rows: usize) {
        self.len += rows;
    }
}

impl Positions for GraphCache {
    fn len(&self) -> usize {
        self.len
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}
