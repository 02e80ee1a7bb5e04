//! Linear layers over all rows of a pass, split over threads by output.
//!
//! Each function is one job of the pool. Rows are prepared (norm, quantisation) by their shares first;
//! a few rows are prepared by the caller alone, which is cheaper than to wait for each other.

mod ahead;
mod gate;
mod linear;
#[cfg(test)]
mod tests;
mod tile;

pub(crate) use ahead::{FAR, NEAR};
pub use gate::Gate;
pub use linear::Linear;

use crate::activations::{Activations, SharedActivations};
use crate::norm::RmsNorm;
use crate::pack::BLOCK;
use crate::pool::{Part, Pool};
use crate::shared::SharedMut;
use crate::simd::LANES;
use crate::tier::Tier;
use gate::Gated;
use linear::{Outputs, Segment, run_tiles, split};
use std::ops::Range;

/// Rows that the caller prepares alone.
const FEW_ROWS: usize = 2;

/// The threads of a decoder and the instructions they use.
#[derive(Debug)]
pub struct Team {
    tier: Tier,
    pool: Pool,
    /// What attention keeps between its stages.
    scratch: Vec<f32>,
}

/// Where a layer's input comes from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// From the floats that are in the [`Activations`] already.
    Floats,
    /// From the [`Activations`], whose codes are up to date too.
    Ready,
    /// From these rows, normed.
    Norm {
        /// As many rows as the [`Activations`] have.
        rows: &'a [f32],
        /// Of the norm.
        weight: &'a [f32],
        /// Added to the mean square.
        eps: f32,
    },
}

/// The layer that is computed next. Its first weights are asked for while the last of this one are used, so that
/// the memory does not rest between them.
#[derive(Debug, Clone, Copy)]
pub enum Next<'a> {
    /// Not known.
    Unknown,
    /// By [`Team::linear`].
    Linear(&'a Linear),
    /// By [`Team::gated`].
    Gated(&'a Linear),
}

impl<'a> Next<'a> {
    /// The first weights of a thread's share.
    fn first(self, part: Part<'_>) -> Option<&'a [u8]> {
        match self {
            Self::Unknown => None,
            Self::Linear(layer) => split(layer, layer.outputs(), part).find(|(_, tiles)| !tiles.is_empty()),
            Self::Gated(layer) => {
                layer.segments().first().map(|gate| (gate, gate_tiles(layer, part, gate.tiles())))
            }
        }
        .map(|(segment, tiles)| segment.tail(tiles.start))
    }
}

/// Blocks of a gated layer's outputs that are `part`'s: whole ones, so that it has all it needs to quantise them.
fn gate_blocks(layer: &Linear, part: Part<'_>) -> Range<usize> {
    part.share((layer.outputs() / 2).div_ceil(BLOCK))
}

/// The tiles of a gated layer's matrix that hold the outputs of these blocks.
fn gate_tiles(layer: &Linear, part: Part<'_>, count: usize) -> Range<usize> {
    let (blocks, per_block) = (gate_blocks(layer, part), BLOCK / LANES);
    (blocks.start * per_block).min(count)..(blocks.end * per_block).min(count)
}

impl Team {
    /// A team on `threads` threads.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(tier: Tier, threads: usize) -> std::io::Result<Self> {
        Ok(Self { tier, pool: Pool::new(threads)?, scratch: Vec::new() })
    }

    /// Its instructions.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Its threads, the caller's among them.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Its threads, and its scratch of at least `floats` numbers.
    pub(crate) fn parts(&mut self, floats: usize) -> (&mut Pool, &mut [f32]) {
        if self.scratch.len() < floats {
            self.scratch.resize(floats, 0.0);
        }
        (&mut self.pool, &mut self.scratch)
    }

    /// `out = layer(input)`, or `out += layer(input)` if `add`; rows of `width` outputs, the first of the
    /// layer's.
    ///
    /// # Panics
    /// If the slices' sizes do not fit the layer and the rows.
    #[allow(clippy::too_many_arguments, reason = "the operands of one job, each of its own kind")]
    pub fn linear(
        &mut self,
        input: &mut Activations,
        source: Source<'_>,
        layer: &Linear,
        out: &mut [f32],
        width: usize,
        add: bool,
        next: Next<'_>,
    ) {
        let tier = self.tier;
        assert_eq!(input.cols(), layer.inputs(), "the input's width is the layer's");
        assert!(width <= layer.outputs() && out.len() == input.rows() * width, "a row of outputs an input");
        let prepare = Prepare { tier, source, codes: layer.wants_codes() };
        let input = input.share();
        let early = prepare.early(&input);
        let outputs = Outputs::new(out, width, add);
        self.pool.run(|part| {
            if !early {
                // SAFETY: nobody uses the rows before the barrier.
                unsafe { prepare.share(&input, part) };
                part.barrier();
            }
            let mut runs = split(layer, width, part).filter(|(_, tiles)| !tiles.is_empty()).peekable();
            while let Some((segment, tiles)) = runs.next() {
                let within = runs.peek().map(|(segment, tiles)| segment.tail(tiles.start));
                let after = within.or_else(|| next.first(part));
                // SAFETY: the split gives each tile to one thread; the inputs were finished before
                // the job or the barrier.
                unsafe { run_tiles(tier, segment, tiles, after, &input, &outputs) };
            }
        });
    }

    /// `out = act(gate(input)) * up(input)`, for a layer of two matrices, the gate's and the other.
    /// The codes of `out` are up to date behind it if `codes`.
    ///
    /// # Panics
    /// If the layer is not one of two matrices with equally many outputs, or sizes do not fit.
    #[allow(clippy::too_many_arguments, reason = "the operands of one job, each of its own kind")]
    pub fn gated(
        &mut self,
        act: Gate,
        input: &mut Activations,
        source: Source<'_>,
        layer: &Linear,
        both: &mut [f32],
        out: &mut Activations,
        codes: bool,
        next: Next<'_>,
    ) {
        let tier = self.tier;
        let [gate, up] = layer.segments() else { panic!("a gated layer has two matrices") };
        let width = layer.outputs() / 2;
        assert_eq!(input.cols(), layer.inputs(), "the input's width is the layer's");
        assert!(both.len() == input.rows() * 2 * width && out.rows() == input.rows() && out.cols() == width);
        let prepare = Prepare { tier, source, codes: layer.wants_codes() };
        let (input, out) = (input.share(), out.share());
        let early = prepare.early(&input);
        let outputs = Outputs::new(both, 2 * width, false);
        self.pool.run(|part| {
            if !early {
                // SAFETY: nobody uses the rows before the barrier.
                unsafe { prepare.share(&input, part) };
                part.barrier();
            }
            let blocks = gate_blocks(layer, part);
            let tiles = |segment: &Segment| gate_tiles(layer, part, segment.tiles());
            // SAFETY: shares do not overlap; the inputs were finished before the job or the barrier.
            unsafe {
                run_tiles(tier, gate, tiles(gate), Some(up.tail(tiles(up).start)), &input, &outputs);
                run_tiles(tier, up, tiles(up), next.first(part), &input, &outputs);
            }
            let cols = (blocks.start * BLOCK).min(width)..(blocks.end * BLOCK).min(width);
            for row in 0..input.rows() {
                // SAFETY: these columns are of tiles and blocks that are this thread's alone.
                unsafe {
                    let gate = outputs.row(row, cols.clone());
                    let up = outputs.row(row, width + cols.start..width + cols.end);
                    tier.run(Gated { act, gate, up, out: out.row_mut(row, cols.clone()) });
                    if codes {
                        out.quantise(row, blocks.clone());
                    }
                }
            }
        });
    }
}

impl Team {
    /// `out += rows / rms(rows) * weight`, row by row.
    ///
    /// # Panics
    /// If the slices' sizes do not fit.
    pub fn add_normed(&mut self, rows: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let (tier, width) = (self.tier, weight.len());
        assert!(rows.len() == out.len() && rows.len().is_multiple_of(width), "rows as wide as the weight");
        let count = rows.len() / width;
        let add = |row: usize, out: &mut [f32]| {
            tier.run(RmsNorm { x: &rows[row * width..(row + 1) * width], weight, eps, out, add: true });
        };
        if count <= FEW_ROWS {
            out.chunks_exact_mut(width).enumerate().for_each(|(row, out)| add(row, out));
            return;
        }
        let out = SharedMut::new(out);
        self.pool.run(|part| {
            for row in part.share(count) {
                // SAFETY: shares do not overlap.
                add(row, unsafe { out.slice_mut(row * width..(row + 1) * width) });
            }
        });
    }
}

/// How the rows of an input become floats and codes.
struct Prepare<'a> {
    tier: Tier,
    source: Source<'a>,
    codes: bool,
}

impl Prepare<'_> {
    /// Prepares a few rows at once; returns whether there is nothing left to prepare.
    fn early(&self, input: &SharedActivations<'_>) -> bool {
        let nothing = match self.source {
            Source::Ready => true,
            Source::Floats => !self.codes,
            Source::Norm { rows, .. } => {
                assert_eq!(rows.len(), input.rows() * input.cols(), "a row to norm for each of the input's");
                false
            }
        };
        let few = input.rows() <= FEW_ROWS;
        if few && !nothing {
            for row in 0..input.rows() {
                // SAFETY: no job runs.
                unsafe { self.row(input, row) };
            }
        }
        few || nothing
    }

    /// Prepares this thread's share of the rows.
    ///
    /// # Safety
    /// No thread reads the rows before a barrier.
    unsafe fn share(&self, input: &SharedActivations<'_>, part: Part<'_>) {
        for row in part.share(input.rows()) {
            // SAFETY: shares do not overlap, and nobody reads them yet.
            unsafe { self.row(input, row) };
        }
    }

    /// # Safety
    /// No other thread uses the row meanwhile.
    unsafe fn row(&self, input: &SharedActivations<'_>, row: usize) {
        let cols = input.cols();
        if let Source::Norm { rows, weight, eps } = self.source {
            // SAFETY: the caller's promise.
            let out = unsafe { input.row_mut(row, 0..cols) };
            self.tier.run(RmsNorm { x: &rows[row * cols..(row + 1) * cols], weight, eps, out, add: false });
        }
        if self.codes {
            // SAFETY: the caller's promise.
            unsafe { input.quantise(row, 0..cols / BLOCK) };
        }
    }
}
