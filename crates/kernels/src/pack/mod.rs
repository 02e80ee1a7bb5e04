//! Weights in the order the kernels read them.
//!
//! A matrix is cut into tiles of sixteen output rows. A tile holds, for every four input columns in
//! turn, the codes of its sixteen rows side by side, so that one load feeds sixteen sums; behind the
//! codes lie its scales. Tiles follow each other without gaps that matter: a thread reads its share of
//! a matrix front to back. Rows that are missing in the last tile are zero.

mod codes;
mod format;
mod scales;
mod source;

pub(crate) use codes::{Bytes, Codes, Fives, Nibbles, Sixes};
pub use format::Format;
pub(crate) use scales::{Half, HalfMin, Scales, Super, SuperSigned};

use crate::buffer::Buffer;
use crate::simd::{LANES, Portable, Simd};
use std::fmt;
use thiserror::Error;

/// Input columns that share a block of codes.
pub(crate) const BLOCK: usize = 32;
/// Tiles begin at cache lines.
const LINE: usize = 64;

/// Bytes that are not the matrix they should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PackError {
    /// Rows that are no whole number of blocks.
    #[error("has rows of {cols} values, which are no whole blocks of {block} as {format:?} needs")]
    Width {
        /// The format.
        format: Format,
        /// Values of a row.
        cols: usize,
        /// Values of a block.
        block: usize,
    },
    /// Too few or too many bytes.
    #[error("holds {bytes} bytes, which are not the {rows} x {cols} values of {format:?}")]
    Length {
        /// The format.
        format: Format,
        /// Output rows.
        rows: usize,
        /// Input columns.
        cols: usize,
        /// Bytes given.
        bytes: usize,
    },
}

/// A weight matrix of `rows` output features by `cols` input features.
pub struct Packed {
    format: Format,
    rows: usize,
    cols: usize,
    /// Bytes of a tile's codes, or of its values where they are floats.
    code_bytes: usize,
    tile_bytes: usize,
    bytes: Buffer<u8>,
}

/// What a generic function over the quantised forms is called with; see [`Packed::visit`].
pub(crate) trait Visitor {
    type Output;
    /// `ZERO` is the shift of what codes stand for above themselves: `code - (1 << ZERO)`, 0 for none.
    fn blocks<C: Codes, X: Scales, const ZERO: u32>(self) -> Self::Output;
    fn floats<T: Float>(self) -> Self::Output;
}

/// Weights that are floats.
pub(crate) trait Float {
    /// Bytes of one value.
    const BYTES: usize;
    /// Sixteen values, widened; `from` has exactly their bytes.
    fn load<S: Simd>(s: S, from: &[u8]) -> S::F;
}

/// [`Format::F32`].
pub(crate) struct Single;
/// [`Format::F16`].
pub(crate) struct HalfFloat;
/// [`Format::Bf16`].
pub(crate) struct BrainFloat;

impl Float for Single {
    const BYTES: usize = 4;
    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[u8]) -> S::F {
        let mut lanes = [0.0; LANES];
        for (lane, bytes) in lanes.iter_mut().zip(from.as_chunks().0) {
            *lane = f32::from_le_bytes(*bytes);
        }
        s.load(&lanes)
    }
}

impl Float for HalfFloat {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[u8]) -> S::F {
        from.first_chunk().map_or(s.splat(0.0), |from| s.load_f16(from))
    }
}

impl Float for BrainFloat {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[u8]) -> S::F {
        from.first_chunk().map_or(s.splat(0.0), |from| s.load_bf16(from))
    }
}

impl Packed {
    /// Packs the rows of `bytes`, which are in the file's order.
    ///
    /// # Errors
    /// If `bytes` cannot be such a matrix.
    pub fn new(format: Format, rows: usize, cols: usize, bytes: &[u8]) -> Result<Self, PackError> {
        Self::reordered(format, rows, cols, bytes, |row| row)
    }

    /// As [`new`](Self::new), with row `source(r)` of the file as row `r`.
    ///
    /// # Errors
    /// If `bytes` cannot be such a matrix.
    ///
    /// # Panics
    /// If `source` gives a row that does not exist.
    pub fn reordered(
        format: Format,
        rows: usize,
        cols: usize,
        bytes: &[u8],
        source: impl Fn(usize) -> usize,
    ) -> Result<Self, PackError> {
        let (block, block_bytes) = (format.block_values(), format.block_bytes());
        if !cols.is_multiple_of(block) {
            return Err(PackError::Width { format, cols, block });
        }
        let row_bytes = cols / block * block_bytes;
        if rows.checked_mul(row_bytes) != Some(bytes.len()) {
            return Err(PackError::Length { format, rows, cols, bytes: bytes.len() });
        }
        let (code_bytes, scale_bytes) = visit(format, Sizes { cols });
        let tile_bytes = (code_bytes + scale_bytes).next_multiple_of(LINE);
        let mut packed = Buffer::<u8>::zeroed(rows.div_ceil(LANES) * tile_bytes);
        if row_bytes > 0 {
            for row in 0..rows {
                let from = &bytes[source(row) * row_bytes..][..row_bytes];
                let tile = &mut packed[row / LANES * tile_bytes..][..tile_bytes];
                let (codes, scales) = tile.split_at_mut(code_bytes);
                source::put_row(format, from, row % LANES, codes, scales);
            }
        }
        Ok(Self { format, rows, cols, code_bytes, tile_bytes, bytes: packed })
    }

    /// The format it was packed from.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes in memory, which are those a pass reads.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Writes one row, widened.
    ///
    /// # Panics
    /// If there is no such row, or `out` is not as wide as a row.
    pub fn widen_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.cols, "row {row} of {} into {}", self.rows, out.len());
        let (tile, lane) = (self.tile(row / LANES), row % LANES);
        self.visit(WidenRow { tile, lane, out });
    }

    /// Tiles of sixteen rows, the last one filled up with zeros.
    pub(crate) fn tiles(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Bytes of one tile.
    pub(crate) fn tile_bytes(&self) -> usize {
        self.tile_bytes
    }

    /// The bytes of one tile.
    #[inline(always)]
    pub(crate) fn tile(&self, index: usize) -> Tile<'_> {
        let tile = &self.bytes[index * self.tile_bytes..][..self.tile_bytes];
        let (codes, scales) = tile.split_at(self.code_bytes);
        Tile { codes, scales, bytes: self.tile_bytes }
    }

    /// The bytes from a tile on.
    pub(crate) fn tail(&self, index: usize) -> &[u8] {
        &self.bytes[(index * self.tile_bytes).min(self.bytes.len())..]
    }

    /// Calls the visitor with the types that the format is read by.
    pub(crate) fn visit<V: Visitor>(&self, visitor: V) -> V::Output {
        visit(self.format, visitor)
    }
}

/// Sixteen rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile<'a> {
    pub(crate) codes: &'a [u8],
    pub(crate) scales: &'a [u8],
    /// From this tile to the next.
    pub(crate) bytes: usize,
}

/// The one table of formats and the types that read them.
fn visit<V: Visitor>(format: Format, visitor: V) -> V::Output {
    match format {
        Format::Q4_0 => visitor.blocks::<Nibbles, Half, 3>(),
        Format::Q4_1 => visitor.blocks::<Nibbles, HalfMin, 0>(),
        Format::Q5_0 => visitor.blocks::<Fives, Half, 4>(),
        Format::Q5_1 => visitor.blocks::<Fives, HalfMin, 0>(),
        Format::Q8_0 => visitor.blocks::<Bytes, Half, 7>(),
        Format::Q4K => visitor.blocks::<Nibbles, Super, 0>(),
        Format::Q5K => visitor.blocks::<Fives, Super, 0>(),
        Format::Q6K => visitor.blocks::<Sixes, SuperSigned, 5>(),
        Format::F16 => visitor.floats::<HalfFloat>(),
        Format::Bf16 => visitor.floats::<BrainFloat>(),
        Format::F32 => visitor.floats::<Single>(),
    }
}

/// Asks for the bytes of the two parts of a tile: codes and scales.
struct Sizes {
    cols: usize,
}

impl Visitor for Sizes {
    type Output = (usize, usize);
    fn blocks<C: Codes, X: Scales, const ZERO: u32>(self) -> Self::Output {
        let blocks = self.cols / BLOCK;
        (blocks * C::BYTES, blocks / X::BLOCKS * X::BYTES)
    }
    fn floats<T: Float>(self) -> Self::Output {
        (self.cols * LANES * T::BYTES, 0)
    }
}

/// Widens one lane of a tile.
struct WidenRow<'a> {
    tile: Tile<'a>,
    lane: usize,
    out: &'a mut [f32],
}

impl Visitor for WidenRow<'_> {
    type Output = ();
    fn blocks<C: Codes, X: Scales, const ZERO: u32>(self) {
        let s = Portable;
        let zero = if ZERO > 0 { 1i32 << ZERO } else { 0 };
        let blocks = self.tile.codes.chunks_exact(C::BYTES).zip(self.out.as_chunks_mut::<BLOCK>().0);
        for (index, (codes, out)) in blocks.enumerate() {
            let unit = &self.tile.scales[index / X::BLOCKS * X::BYTES..][..X::BYTES];
            let opened = X::open(s, unit);
            let within = index % X::BLOCKS;
            let minimum = X::minimum(s, unit, opened, within)[self.lane];
            for z in 0..BLOCK / 8 {
                let scale = X::scale(s, unit, opened, within, z * X::HALVES / 4)[self.lane];
                let (low, high) = C::pair(s, codes, z);
                for j in 0..4 {
                    let value = |byte: u8| (i32::from(byte) - zero) as f32;
                    out[z * 8 + j] = value(low[self.lane * 4 + j]) * scale + minimum;
                    out[z * 8 + 4 + j] = value(high[self.lane * 4 + j]) * scale + minimum;
                }
            }
        }
    }
    fn floats<T: Float>(self) {
        for (values, out) in self.tile.codes.chunks_exact(LANES * T::BYTES).zip(self.out) {
            *out = T::load(Portable, values)[self.lane];
        }
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({:?}, {} x {})", self.format, self.rows, self.cols)
    }
}
