//! A layer's input rows, as floats and, for quantised weights, as signed bytes in blocks of 32.
//!
//! Rows are taken in chunks that one load of weights serves together; the blocks of a chunk's rows
//! lie side by side, in the order in which a tile of weights meets them. How rows fall into chunks
//! changes nothing in what is computed of a row.

use crate::pack::BLOCK;
use crate::shared::SharedMut;
use crate::simd::{Kernel, LANES, Simd};
use crate::tier::Tier;
use std::ops::Range;

/// One block of one row: `value ≈ code * scale`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct ActivationBlock {
    /// From -127 to 127.
    pub(crate) codes: [i8; BLOCK],
    /// The scale.
    pub(crate) scale: f32,
    /// The scale times the sum of the codes, which meets the weights' minimum.
    pub(crate) weighted_sum: f32,
    /// Sums of the codes of each half, negated, which meet the weights' zero point.
    pub(crate) negated_sums: [i32; 2],
}

/// The input rows of a layer.
#[derive(Debug, Clone)]
pub struct Activations {
    tier: Tier,
    rows: usize,
    cols: usize,
    floats: Vec<f32>,
    blocks: Vec<ActivationBlock>,
}

/// Rows that one load of weights serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The first of its rows.
    pub(crate) first: usize,
    /// How many.
    pub(crate) rows: usize,
}

/// Cuts `rows` into as few chunks of at most `most` rows as there can be, of equal size or nearly so.
pub(crate) fn chunks(rows: usize, most: usize) -> impl Iterator<Item = Chunk> + Clone {
    let count = rows.div_ceil(most);
    (0..count).map(move |index| chunk(rows, count, index))
}

fn chunk(rows: usize, count: usize, index: usize) -> Chunk {
    let first = rows * index / count;
    Chunk { first, rows: rows * (index + 1) / count - first }
}

impl Activations {
    /// No rows yet.
    pub fn new(tier: Tier) -> Self {
        Self { tier, rows: 0, cols: 0, floats: Vec::new(), blocks: Vec::new() }
    }

    /// Makes room for `rows` of `cols` numbers, whose values are then undefined.
    pub fn resize(&mut self, rows: usize, cols: usize) {
        (self.rows, self.cols) = (rows, cols);
        if self.floats.len() < rows * cols {
            self.floats.resize(rows * cols, 0.0);
        }
        let blocks = rows * (cols / BLOCK);
        if self.blocks.len() < blocks {
            let zero =
                ActivationBlock { codes: [0; BLOCK], scale: 0.0, weighted_sum: 0.0, negated_sums: [0; 2] };
            self.blocks.resize(blocks, zero);
        }
    }

    /// Rows held.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The rows, one behind the other.
    pub fn floats(&self) -> &[f32] {
        &self.floats[..self.rows * self.cols]
    }

    /// The rows, to be written; the codes follow when they are asked for.
    pub fn floats_mut(&mut self) -> &mut [f32] {
        &mut self.floats[..self.rows * self.cols]
    }

    /// Lends the parts to the threads of a job.
    pub(crate) fn share(&mut self) -> SharedActivations<'_> {
        SharedActivations {
            tier: self.tier,
            rows: self.rows,
            cols: self.cols,
            floats: SharedMut::new(&mut self.floats[..self.rows * self.cols]),
            blocks: SharedMut::new(&mut self.blocks[..self.rows * (self.cols / BLOCK)]),
        }
    }
}

/// [`Activations`] in a job of several threads.
#[derive(Debug)]
pub(crate) struct SharedActivations<'a> {
    tier: Tier,
    rows: usize,
    cols: usize,
    floats: SharedMut<'a, f32>,
    blocks: SharedMut<'a, ActivationBlock>,
}

impl SharedActivations<'_> {
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// The chunks of the rows.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Chunk> {
        chunks(self.rows, self.tier.columns())
    }

    /// Some columns of a row, to write.
    ///
    /// # Safety
    /// No other thread uses them meanwhile.
    #[allow(clippy::mut_from_ref, reason = "as `SharedMut::slice_mut`")]
    pub(crate) unsafe fn row_mut(&self, row: usize, cols: Range<usize>) -> &mut [f32] {
        assert!(cols.end <= self.cols, "columns {cols:?} of {}", self.cols);
        let start = row * self.cols;
        // SAFETY: the caller's promise.
        unsafe { self.floats.slice_mut(start + cols.start..start + cols.end) }
    }

    /// Rows that all threads read.
    ///
    /// # Safety
    /// Nobody writes them meanwhile, and who wrote them has passed a barrier since.
    pub(crate) unsafe fn rows_of(&self, chunk: Chunk) -> &[f32] {
        // SAFETY: the caller's promise.
        unsafe { self.floats.slice(chunk.first * self.cols..(chunk.first + chunk.rows) * self.cols) }
    }

    /// The blocks of a chunk: for every block of columns those of its rows.
    ///
    /// # Safety
    /// As [`Self::rows_of`].
    pub(crate) unsafe fn blocks_of(&self, chunk: Chunk) -> &[ActivationBlock] {
        let blocks = self.cols / BLOCK;
        // SAFETY: the caller's promise.
        unsafe { self.blocks.slice(chunk.first * blocks..(chunk.first + chunk.rows) * blocks) }
    }

    /// Quantises blocks `range` of one row from its floats.
    ///
    /// # Safety
    /// No other thread writes these columns or uses their codes meanwhile.
    pub(crate) unsafe fn quantise(&self, row: usize, range: Range<usize>) {
        let count = self.rows.div_ceil(self.tier.columns());
        // The chunk that the row is in: the last to begin at or before it.
        let index = ((row + 1) * count - 1) / self.rows;
        let chunk = chunk(self.rows, count, index);
        let first = chunk.first * (self.cols / BLOCK) + (row - chunk.first);
        let start = row * self.cols;
        // SAFETY: the caller keeps writers of these columns away.
        let floats = unsafe { self.floats.slice(start + range.start * BLOCK..start + range.end * BLOCK) };
        let (blocks, step) = (&self.blocks, chunk.rows);
        self.tier.run(Quantise { floats, blocks, first: first + range.start * step, step });
    }
}

/// Quantises some blocks of a row; each block's fate is its own.
struct Quantise<'a> {
    floats: &'a [f32],
    blocks: &'a SharedMut<'a, ActivationBlock>,
    /// Index of the first block to write.
    first: usize,
    /// From one block of the row to the next.
    step: usize,
}

impl Kernel for Quantise<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (index, values) in self.floats.as_chunks::<BLOCK>().0.iter().enumerate() {
            let at = self.first + index * self.step;
            // SAFETY: the block is of a row and columns that the caller of `quantise` has alone.
            let block = unsafe { &mut self.blocks.slice_mut(at..at + 1)[0] };
            quantise(s, values, block);
        }
    }
}

/// Writes `values` as codes: the largest in size becomes 127 or -127.
#[inline(always)]
fn quantise<S: Simd>(s: S, values: &[f32; BLOCK], block: &mut ActivationBlock) {
    let halves = values.as_chunks::<LANES>().0;
    let (a, b) = (s.load(&halves[0]), s.load(&halves[1]));
    let largest = s.greatest(s.max(s.abs(a), s.abs(b)));
    let inverse = s.splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
    let (a, b) = (s.to_int(s.mul(a, inverse)), s.to_int(s.mul(b, inverse)));
    let sums = s.store_codes(a, b, &mut block.codes);
    block.scale = largest / 127.0;
    block.weighted_sum = block.scale * (sums[0] + sums[1]) as f32;
    block.negated_sums = [-sums[0], -sums[1]];
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantised(tier: Tier, rows: usize, cols: usize, floats: &[f32]) -> Activations {
        let mut activations = Activations::new(tier);
        activations.resize(rows, cols);
        activations.floats_mut().copy_from_slice(floats);
        let shared = activations.share();
        for row in 0..rows {
            // SAFETY: nothing else uses the rows.
            unsafe { shared.quantise(row, 0..cols / BLOCK) };
        }
        activations
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 2 } else { 64 }, ..ProptestConfig::default() })]
        #[test]
        fn codes_are_near_their_values_and_equal_in_every_tier(
            rows in 1usize..20, blocks in 1usize..4, scale in prop::sample::select(vec![0.0f32, 1e-20, 1.0, 1e20]),
            seed in prop::collection::vec(-1.0f32..1.0, 37),
        ) {
            let cols = blocks * BLOCK;
            let floats: Vec<f32> = (0..rows * cols).map(|i| seed[i % 37] * seed[i % 31] * scale).collect();
            let want = quantised(Tier::portable(), rows, cols, &floats);
            let shared = &want;
            for row in 0..rows {
                let chunk = chunks(rows, Tier::portable().columns()).find(|c| (c.first..c.first + c.rows).contains(&row)).unwrap();
                for b in 0..blocks {
                    let block = shared.blocks[chunk.first * blocks + b * chunk.rows + row - chunk.first];
                    let values = &floats[row * cols + b * BLOCK..][..BLOCK];
                    for (code, value) in block.codes.iter().zip(values) {
                        prop_assert!((f32::from(*code) * block.scale - value).abs() <= block.scale * 0.5001);
                    }
                    let sum: i32 = block.codes.iter().map(|&c| i32::from(c)).sum();
                    prop_assert_eq!(block.negated_sums[0] + block.negated_sums[1], -sum);
                    prop_assert_eq!(block.weighted_sum.to_bits(), (block.scale * sum as f32).to_bits());
                }
            }
            for tier in Tier::available() {
                // One row is one chunk in every tier, so that blocks stand in one order.
                let want = quantised(Tier::portable(), 1, cols, &floats[..cols]);
                let got = quantised(tier, 1, cols, &floats[..cols]);
                for (got, want) in got.blocks.iter().zip(&want.blocks) {
                    prop_assert_eq!(got.codes, want.codes);
                    prop_assert_eq!(got.scale.to_bits(), want.scale.to_bits());
                    prop_assert_eq!(got.weighted_sum.to_bits(), want.weighted_sum.to_bits());
                    prop_assert_eq!(got.negated_sums, want.negated_sums);
                }
            }
        }

        #[test]
        fn chunks_cover_all_rows_and_rows_find_theirs(rows in 1usize..100, most in 1usize..9) {
            let count = rows.div_ceil(most);
            let mut next = 0;
            for (index, chunk) in chunks(rows, most).enumerate() {
                prop_assert_eq!(chunk.first, next);
                prop_assert!(chunk.rows >= 1 && chunk.rows <= most);
                next += chunk.rows;
                for row in chunk.first..next {
                    prop_assert_eq!(((row + 1) * count - 1) / rows, index);
                }
            }
            prop_assert_eq!(next, rows);
        }
    }
}
