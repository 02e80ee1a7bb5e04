//! Copies from the device to the host, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::{Result, Tensor, WithDType};

/// Bytes copied so far. Every copy of the graph engine goes through here.
#[derive(Debug, Default)]
pub(super) struct Copied(AtomicU64);

impl Copied {
    /// A tensor of one dimension.
    pub(super) fn vector<T: WithDType>(&self, tensor: &Tensor) -> Result<Vec<T>> {
        let values = tensor.to_vec1::<T>()?;
        self.count::<T>(values.len());
        Ok(values)
    }

    /// A tensor of two, row by row.
    pub(super) fn rows<T: WithDType>(&self, tensor: &Tensor) -> Result<Vec<Vec<T>>> {
        let rows = tensor.to_vec2::<T>()?;
        self.count::<T>(rows.iter().map(Vec::len).sum());
        Ok(rows)
    }

    /// All of them.
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn count<T>(&self, values: usize) {
        self.0.fetch_add((values * size_of::<T>()) as u64, Ordering::Relaxed);
    }
}
