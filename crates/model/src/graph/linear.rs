//! A weight matrix on the device: a linear layer, and as the embedding a table of rows.

use crate::compute::blocks::Kind;
use crate::compute::matrix::{Matrix, Store, super_blocks};
use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor, QuantizedType};
use candle_core::{DType, Device, Module, Result, Tensor};
use std::sync::Arc;

/// A matrix of output by input features.
#[derive(Debug, Clone)]
pub(super) enum Linear {
    /// One number a weight, in the file's precision; on the CPU in `f32`, the only one it multiplies fast.
    Dense(Tensor),
    /// Blocks as in the file.
    Quantised(Arc<QTensor>, QMatMul),
}

impl Linear {
    /// Moves a matrix to the device.
    pub(super) fn upload(matrix: Matrix, device: &Device) -> Result<Self> {
        let (rows, cols, store) = matrix.into_parts();
        let shape = (rows, cols);
        let dense = match store {
            Store::F32(values) => Tensor::from_vec(values, shape, device)?,
            Store::F16(values) => Tensor::from_vec(values, shape, device)?,
            Store::Bf16(values) => Tensor::from_vec(values, shape, device)?,
            Store::Blocks(kind, bytes) => {
                return Self::quantised(super_blocks(dtype(kind), &bytes), shape, device);
            }
            Store::Super(blocks) => return Self::quantised(blocks, shape, device),
        };
        Ok(Self::Dense(if device.is_cpu() { dense.to_dtype(DType::F32)? } else { dense }))
    }

    fn quantised(blocks: Box<dyn QuantizedType>, shape: (usize, usize), device: &Device) -> Result<Self> {
        let host = QTensor::new(QStorage::Cpu(blocks), shape)?;
        let tensor = if device.is_cpu() {
            host
        } else {
            QTensor::new(QStorage::from_data(host.data()?, device, host.dtype())?, shape)?
        };
        let tensor = Arc::new(tensor);
        Ok(Self::Quantised(tensor.clone(), QMatMul::from_arc(tensor)?))
    }

    /// `input · weightsᵀ` of `f32` rows, as `f32` rows.
    pub(super) fn forward(&self, input: &Tensor) -> Result<Tensor> {
        match self {
            Self::Dense(weights) => {
                input.to_dtype(weights.dtype())?.matmul(&weights.t()?)?.to_dtype(DType::F32)
            }
            Self::Quantised(_, weights) => weights.forward(input),
        }
    }

    /// The numbered rows as `f32`.
    pub(super) fn rows(&self, ids: &Tensor) -> Result<Tensor> {
        match self {
            Self::Dense(weights) => weights.index_select(ids, 0)?.to_dtype(DType::F32),
            Self::Quantised(weights, _) => weights.embedding(ids),
        }
    }

    /// Bytes of device memory.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Dense(weights) => weights.elem_count() * weights.dtype().size_in_bytes(),
            Self::Quantised(weights, _) => weights.storage_size_in_bytes(),
        };
        bytes as u64
    }
}

/// Candle's name of a block type.
fn dtype(kind: Kind) -> GgmlDType {
    match kind {
        Kind::Q4_0 => GgmlDType::Q4_0,
        Kind::Q4_1 => GgmlDType::Q4_1,
        Kind::Q5_0 => GgmlDType::Q5_0,
        Kind::Q5_1 => GgmlDType::Q5_1,
        Kind::Q8_0 => GgmlDType::Q8_0,
    }
}
