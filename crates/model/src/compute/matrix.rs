//! A weight matrix in the form its file has it, widened to `f32` a few rows at a time.
//!
//! Weights stay as small in memory as on disk. What a pass needs is one thing only: some rows as
//! `f32`, for a dot product or as an embedding.

use super::blocks::Kind;
use candle_core::CpuStorage;
use candle_core::quantized::{GgmlDType, QuantizedType};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// How the numbers of a [`Matrix`] are stored.
pub(crate) enum Store {
    /// Single precision.
    F32(Vec<f32>),
    /// Half precision.
    F16(Vec<f16>),
    /// Brain floats.
    Bf16(Vec<bf16>),
    /// Blocks of 32 values, bytes as in the file.
    Blocks(Kind, Vec<u8>),
    /// Blocks of 256 values, widened by candle.
    Super(Box<dyn QuantizedType>),
}

/// A matrix of `rows` output features by `cols` input features, row-major.
pub(crate) struct Matrix {
    rows: usize,
    cols: usize,
    store: Store,
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} x {}, {} bytes)", self.rows, self.cols, self.bytes())
    }
}

impl Matrix {
    /// Takes the numbers of a matrix, or says why they cannot be its numbers.
    pub(crate) fn new(rows: usize, cols: usize, store: Store) -> Result<Self, String> {
        let held = match &store {
            Store::F32(v) => v.len(),
            Store::F16(v) => v.len(),
            Store::Bf16(v) => v.len(),
            Store::Blocks(kind, bytes) => {
                whole_blocks(cols, super::blocks::BLOCK)?;
                bytes.len() / kind.block_bytes() * super::blocks::BLOCK
            }
            Store::Super(blocks) => {
                whole_blocks(cols, blocks.block_size())?;
                blocks.storage_size_in_bytes() / blocks.dtype().type_size() * blocks.block_size()
            }
        };
        if rows.checked_mul(cols) != Some(held) {
            return Err(format!("holds {held} values where {rows} x {cols} are needed"));
        }
        Ok(Self { rows, cols, store })
    }

    /// Rows, columns and the numbers themselves.
    pub(crate) fn into_parts(self) -> (usize, usize, Store) {
        (self.rows, self.cols, self.store)
    }

    /// Input features.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes held in memory.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match &self.store {
            Store::F32(v) => v.len() * 4,
            Store::F16(v) => v.len() * 2,
            Store::Bf16(v) => v.len() * 2,
            Store::Blocks(_, bytes) => bytes.len(),
            Store::Super(blocks) => blocks.storage_size_in_bytes(),
        };
        bytes as u64
    }

    /// The rows of `range` as `f32`, row-major; `scratch` is where they are widened to if they must be.
    pub(crate) fn widen<'a>(
        &'a self,
        range: Range<usize>,
        scratch: &'a mut Vec<f32>,
    ) -> Result<&'a [f32], candle_core::Error> {
        let values = range.start * self.cols..range.end * self.cols;
        if let Store::F32(v) = &self.store {
            return Ok(&v[values]);
        }
        scratch.resize(values.len(), 0.0);
        match &self.store {
            Store::F32(_) => {}
            Store::F16(v) => v[values].convert_to_f32_slice(scratch),
            Store::Bf16(v) => {
                // A brain float is the upper half of a single: one shift, which vectorises.
                for (o, b) in scratch.iter_mut().zip(&v[values]) {
                    *o = f32::from_bits(u32::from(b.to_bits()) << 16);
                }
            }
            Store::Blocks(kind, bytes) => {
                let row_bytes = self.cols / super::blocks::BLOCK * kind.block_bytes();
                kind.widen(&bytes[range.start * row_bytes..range.end * row_bytes], scratch);
            }
            Store::Super(blocks) => {
                let ids: Vec<u32> = range.map(|row| row as u32).collect();
                if let CpuStorage::F32(widened) = blocks.embedding(&ids, self.rows, self.cols)? {
                    *scratch = widened;
                }
            }
        }
        Ok(scratch)
    }
}

/// Copies file bytes of a 256-value kind into candle's own blocks.
pub(crate) fn super_blocks(dtype: GgmlDType, bytes: &[u8]) -> Box<dyn QuantizedType> {
    /// The strictest alignment of candle's blocks; it refuses, by a panic, bytes that lack it.
    const ALIGN: usize = 8;
    let mut aligned = vec![0u8; bytes.len() + ALIGN];
    let start = aligned.as_ptr().align_offset(ALIGN).min(ALIGN);
    let window = &mut aligned[start..start + bytes.len()];
    window.copy_from_slice(bytes);
    dtype.from_data(Cow::Borrowed(window))
}

fn whole_blocks(cols: usize, block: usize) -> Result<(), String> {
    if cols.is_multiple_of(block) {
        return Ok(());
    }
    Err(format!("has rows of {cols} values, which are no whole blocks of {block}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::QTensor;
    use candle_core::{Device, Tensor};

    #[test]
    fn super_blocks_widen_row_by_row() {
        let values: Vec<f32> = (0..3 * 512).map(|i| (i as f32 * 0.7).sin()).collect();
        let tensor = Tensor::from_slice(&values, (3, 512), &Device::Cpu).unwrap();
        for dtype in [GgmlDType::Q2K, GgmlDType::Q3K, GgmlDType::Q4K, GgmlDType::Q5K, GgmlDType::Q6K] {
            let quantized = QTensor::quantize(&tensor, dtype).unwrap();
            let want = quantized.dequantize(&Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
            let store = Store::Super(super_blocks(dtype, &quantized.data().unwrap()));
            let matrix = Matrix::new(3, 512, store).unwrap();
            let mut scratch = Vec::new();
            assert_eq!(matrix.widen(1..3, &mut scratch).unwrap(), want[1..].concat(), "{dtype:?}");
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        assert!(Matrix::new(2, 3, Store::F32(vec![0.0; 5])).unwrap_err().contains("2 x 3"));
        assert!(Matrix::new(usize::MAX, 3, Store::F32(vec![0.0; 5])).is_err());
        let blocks = Store::Blocks(Kind::Q8_0, vec![0; 34 * 3]);
        assert!(Matrix::new(2, 48, blocks).unwrap_err().contains("whole blocks of 32"));
    }
}
