//! Linear layers: several packed matrices over one input, side by side in one output row.

use super::ahead::Ahead;
use super::tile;
use crate::activations::{Chunk, SharedActivations};
use crate::pack::{Codes, Float, Packed, Scales, Visitor};
use crate::pool::Part;
use crate::shared::SharedMut;
use crate::simd::{Kernel, LANES, Simd, load_part, store_part};
use crate::tier::Tier;
use std::ops::Range;

/// Matrices that share their input; their outputs follow each other in a row.
#[derive(Debug)]
pub struct Linear {
    segments: Vec<Segment>,
    inputs: usize,
    outputs: usize,
}

/// One matrix of a layer.
#[derive(Debug)]
pub(super) struct Segment {
    weights: Packed,
    /// Added to its outputs.
    bias: Option<Vec<f32>>,
    /// Where its outputs begin in a row.
    first: usize,
}

impl Linear {
    /// A layer of these matrices, each with or without a bias.
    ///
    /// # Panics
    /// If they differ in their input's width, or a bias is not as long as its matrix has rows.
    pub fn new(matrices: Vec<(Packed, Option<Vec<f32>>)>) -> Self {
        let inputs = matrices.first().map_or(0, |(weights, _)| weights.cols());
        let mut outputs = 0;
        let mut segments = Vec::with_capacity(matrices.len());
        for (weights, bias) in matrices {
            assert_eq!(weights.cols(), inputs, "matrices of one layer share their input");
            assert!(bias.as_ref().is_none_or(|bias| bias.len() == weights.rows()), "a bias an output");
            let first = outputs;
            outputs += weights.rows();
            segments.push(Segment { weights, bias, first });
        }
        Self { segments, inputs, outputs }
    }

    /// Width of an input row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Width of an output row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let bias = |segment: &Segment| segment.bias.as_ref().map_or(0, |bias| size_of_val(bias.as_slice()));
        self.segments.iter().map(|segment| segment.weights.bytes() + bias(segment)).sum()
    }

    /// The matrices.
    pub fn matrices(&self) -> impl Iterator<Item = &Packed> {
        self.segments.iter().map(|segment| &segment.weights)
    }

    /// Whether some matrix wants its input quantised.
    pub fn wants_codes(&self) -> bool {
        self.segments.iter().any(|segment| segment.weights.format().is_quantised())
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

impl Segment {
    /// Tiles that hold some of the first `width` outputs of the layer.
    fn tiles_within(&self, width: usize) -> usize {
        width.saturating_sub(self.first).div_ceil(LANES).min(self.weights.tiles())
    }

    pub(super) fn tiles(&self) -> usize {
        self.weights.tiles()
    }

    /// The weights from a tile on.
    pub(super) fn tail(&self, tile: usize) -> &[u8] {
        self.weights.tail(tile)
    }
}

/// The tiles of each segment that are `part`'s, equal in bytes over the whole layer.
pub(super) fn split<'a>(
    layer: &'a Linear,
    width: usize,
    part: Part<'_>,
) -> impl Iterator<Item = (&'a Segment, Range<usize>)> {
    let bytes = move |segment: &Segment| segment.tiles_within(width) * segment.weights.tile_bytes();
    let total: usize = layer.segments.iter().map(bytes).sum();
    let (mut before, index, count) = (0, part.index, part.count);
    layer.segments.iter().map(move |segment| {
        let (tiles, size) = (segment.tiles_within(width), segment.weights.tile_bytes().max(1));
        let bound = |index: usize| {
            let share = total * index / count;
            // The nearest tile's bound.
            ((share.saturating_sub(before) + size / 2) / size).min(tiles)
        };
        let mine = bound(index)..if index + 1 == count { tiles } else { bound(index + 1) };
        before += bytes(segment);
        (segment, mine)
    })
}

/// Where outputs go.
#[derive(Debug)]
pub(crate) struct Outputs<'a> {
    cells: SharedMut<'a, f32>,
    /// From one row to the next, and the number of outputs of a row that are wanted.
    width: usize,
    /// Whether outputs are added to what is there.
    add: bool,
}

impl<'a> Outputs<'a> {
    /// Outputs into `cells`, rows of `width`.
    pub(crate) fn new(cells: &'a mut [f32], width: usize, add: bool) -> Self {
        Self { cells: SharedMut::new(cells), width, add }
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn add(&self) -> bool {
        self.add
    }

    /// Some outputs of a row.
    ///
    /// # Safety
    /// No other thread uses them meanwhile.
    #[allow(clippy::mut_from_ref, reason = "as `SharedMut::slice_mut`")]
    #[inline(always)]
    pub(crate) unsafe fn row(&self, row: usize, cols: Range<usize>) -> &mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.cells.slice_mut(row * self.width + cols.start..row * self.width + cols.end) }
    }
}

/// Computes some tiles of a segment for all rows; `after` are the weights that the thread uses next.
///
/// # Safety
/// No other thread uses the outputs of these tiles meanwhile, and whoever wrote the inputs has
/// passed a barrier since.
pub(super) unsafe fn run_tiles(
    tier: Tier,
    segment: &Segment,
    tiles: Range<usize>,
    after: Option<&[u8]>,
    input: &SharedActivations<'_>,
    outputs: &Outputs<'_>,
) {
    // A tile stays in the first cache while all chunks pass by; where there is but one chunk, one
    // call streams all tiles.
    let step = if input.rows() <= tier.columns() { tiles.len().max(1) } else { 1 };
    let end = segment.weights.tile_bytes() * tiles.end;
    for first in tiles.clone().step_by(step) {
        for chunk in input.chunks() {
            let ahead = Ahead { end, after, asked: chunk.first > 0 };
            let tiles = first..(first + step).min(tiles.end);
            segment.weights.visit(Run { tier, segment, tiles, ahead, input, chunk, outputs });
        }
    }
}

/// Some tiles of a segment for one chunk of rows, the types of which are to be found.
struct Run<'a> {
    tier: Tier,
    segment: &'a Segment,
    tiles: Range<usize>,
    ahead: Ahead<'a>,
    input: &'a SharedActivations<'a>,
    chunk: Chunk,
    outputs: &'a Outputs<'a>,
}

/// Calls a kernel that is generic in the number of rows.
macro_rules! for_rows {
    ($rows:expr, $tier:expr, $m:ident => $kernel:expr) => {
        match $rows {
            1 => {
                const $m: usize = 1;
                $tier.run($kernel)
            }
            2 => {
                const $m: usize = 2;
                $tier.run($kernel)
            }
            3 => {
                const $m: usize = 3;
                $tier.run($kernel)
            }
            4 => {
                const $m: usize = 4;
                $tier.run($kernel)
            }
            5 => {
                const $m: usize = 5;
                $tier.run($kernel)
            }
            6 => {
                const $m: usize = 6;
                $tier.run($kernel)
            }
            7 => {
                const $m: usize = 7;
                $tier.run($kernel)
            }
            _ => {
                const $m: usize = 8;
                $tier.run($kernel)
            }
        }
    };
}

impl Visitor for Run<'_> {
    type Output = ();
    fn blocks<C: Codes, X: Scales, const ZERO: u32>(self) {
        // SAFETY: `run_tiles` demands that the inputs are finished.
        let inputs = unsafe { self.input.blocks_of(self.chunk) };
        for_rows!(self.chunk.rows, self.tier, M => Quantised::<C, X, ZERO, M> { run: self, inputs, form: Default::default() });
    }
    fn floats<T: Float>(self) {
        // SAFETY: as above.
        let inputs = unsafe { self.input.rows_of(self.chunk) };
        for_rows!(self.chunk.rows, self.tier, M => Floats::<T, M> { run: self, inputs, form: Default::default() });
    }
}

struct Quantised<'a, C, X, const ZERO: u32, const M: usize> {
    run: Run<'a>,
    inputs: &'a [crate::activations::ActivationBlock],
    form: std::marker::PhantomData<(C, X)>,
}

impl<C: Codes, X: Scales, const ZERO: u32, const M: usize> Kernel for Quantised<'_, C, X, ZERO, M> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if M > S::COLUMNS {
            return;
        }
        for index in self.run.tiles.clone() {
            let tile = self.run.segment.weights.tile(index);
            let later = self.run.ahead.of(tile.codes, index * tile.bytes);
            let outputs = tile::quantised::<S, C, X, ZERO, M>(s, tile, self.inputs, later);
            self.run.finish(s, index, &outputs);
        }
    }
}

struct Floats<'a, T, const M: usize> {
    run: Run<'a>,
    inputs: &'a [f32],
    form: std::marker::PhantomData<T>,
}

impl<T: Float, const M: usize> Kernel for Floats<'_, T, M> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if M > S::COLUMNS {
            return;
        }
        let cols = self.run.segment.weights.cols();
        for index in self.run.tiles.clone() {
            let tile = self.run.segment.weights.tile(index);
            let later = self.run.ahead.of(tile.codes, index * tile.bytes);
            let outputs = tile::floats::<S, T, M>(s, tile, self.inputs, cols, later);
            self.run.finish(s, index, &outputs);
        }
    }
}

impl Run<'_> {
    /// Writes a tile's outputs, of the rows of the chunk.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, tile: usize, values: &[S::F]) {
        let segment = self.segment;
        let from = tile * LANES;
        let to = (from + LANES).min(segment.weights.rows()).min(self.outputs.width() - segment.first);
        let bias = segment.bias.as_ref().map(|bias| load_part(s, &bias[from..to]));
        for (i, &value) in values.iter().enumerate() {
            // SAFETY: `run_tiles` demands that these outputs are this thread's alone.
            let cells =
                unsafe { self.outputs.row(self.chunk.first + i, segment.first + from..segment.first + to) };
            let value = bias.map_or(value, |bias| s.add(value, bias));
            let value = if self.outputs.add() { s.add(load_part(s, cells), value) } else { value };
            store_part(s, value, cells);
        }
    }
}
