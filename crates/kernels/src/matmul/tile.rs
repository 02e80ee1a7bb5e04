//! Sixteen outputs of some rows: the innermost loops of every linear layer.
//!
//! An output is summed over the blocks of its row in their order, one rounding after the other; how
//! many rows are computed together, `M`, only changes what is done between two steps of one sum.

use super::ahead::Later;
use crate::activations::ActivationBlock;
use crate::pack::{BLOCK, Codes, Float, Scales, Tile};
use crate::simd::{LANES, Simd};

/// The outputs of one tile for the `M` rows of a chunk; what comes later is asked for meanwhile.
#[inline(always)]
pub(super) fn quantised<S: Simd, C: Codes, X: Scales, const ZERO: u32, const M: usize>(
    s: S,
    tile: Tile<'_>,
    blocks: &[ActivationBlock],
    later: Later,
) -> [S::F; M] {
    let mut outputs = [s.splat(0.0); M];
    let rows = blocks.as_chunks::<M>().0;
    let bytes = C::BYTES * X::BLOCKS;
    let turns = Turns::new::<S, C, X>();
    let later = later.units::<C, X>(tile);
    for at in 0..tile.codes.len() / bytes {
        let (codes, unit) = (&tile.codes[at * bytes..][..bytes], &tile.scales[at * X::BYTES..][..X::BYTES]);
        let rows = &rows[at * X::BLOCKS..][..X::BLOCKS];
        let [codes_later, scales_later] = later.at(at);
        let opened = X::open(s, unit);
        scales_later.ask(s, unit);
        for index in 0..X::BLOCKS {
            let (codes, row) = (&codes[index * C::BYTES..][..C::BYTES], &rows[index]);
            codes_later.ask(s, codes);
            let minimum = X::minimum(s, unit, opened, index);
            for half in 0..X::HALVES {
                let scale = X::scale(s, unit, opened, index, half);
                let sums = products::<S, C, X, ZERO, M>(s, codes, row, half, turns);
                for i in 0..M {
                    let factor = s.mul(scale, s.splat(row[i].scale));
                    outputs[i] = s.fma(s.to_float(sums[i]), factor, outputs[i]);
                }
            }
            if X::MIN {
                for i in 0..M {
                    outputs[i] = s.fma(minimum, s.splat(row[i].weighted_sum), outputs[i]);
                }
            }
        }
    }
    outputs
}

/// Pairs of groups of four columns that share a scale.
const fn pairs<X: Scales>() -> usize {
    BLOCK / 8 / X::HALVES
}

/// Pairs of groups between the beginning and the end of sums.
#[derive(Clone, Copy)]
struct Turns {
    step: usize,
    /// As many, but the compiler need not know.
    count: usize,
}

impl Turns {
    #[inline(always)]
    fn new<S: Simd, C: Codes, X: Scales>() -> Self {
        // A pair is two dots.
        let step = (S::dots(C::MOST) / 2).clamp(1, pairs::<X>());
        // Unrolled, all weights of a block are opened before the first row's turn: more than sixteen registers hold.
        // Measured on Zen 3, from the second cache: 2, 3, 4 rows 26, 37, 28 ns a block unrolled, 17, 22, 28 as a loop.
        let loops = S::FEW_REGISTERS && step == pairs::<X>() && !C::BIASED;
        Self { step, count: if loops { std::hint::black_box(step) } else { step } }
    }
}

/// The inner products of a block's codes, or of one half of it, with each row's.
#[inline(always)]
fn products<S: Simd, C: Codes, X: Scales, const ZERO: u32, const M: usize>(
    s: S,
    codes: &[u8],
    row: &[ActivationBlock; M],
    half: usize,
    turns: Turns,
) -> [S::I; M] {
    let negated = |block: &ActivationBlock| {
        let [a, b] = block.negated_sums;
        if X::HALVES == 2 { block.negated_sums[half] } else { a + b }
    };
    let count = pairs::<X>();
    let pairs = half * count..(half + 1) * count;
    if C::BIASED {
        let mut sums = [s.splat_i(0); M];
        for i in 0..M {
            sums[i] = s.begin_biased(negated(&row[i]));
        }
        for z in pairs {
            let (even, odd) = C::pair(s, codes, z);
            for (weights, group) in [(even, 2 * z), (odd, 2 * z + 1)] {
                for i in 0..M {
                    sums[i] = s.dot_biased(sums[i], weights, &row[i].codes.as_chunks().0[group]);
                }
            }
        }
        return sums;
    }
    let mut sums = [s.splat_i(0); M];
    if ZERO > 0 {
        for i in 0..M {
            sums[i] = s.shl_i::<ZERO>(s.splat_i(negated(&row[i])));
        }
    }
    for first in pairs.step_by(turns.step) {
        let mut grown = [s.begin(sums[0]); M];
        for i in 1..M {
            grown[i] = s.begin(sums[i]);
        }
        for turn in 0..turns.count {
            // Within the block whatever the count: an index that could fail would tell how often the loop runs at most.
            let z = (first + turn) % (BLOCK / 8);
            let (even, odd) = C::pair(s, codes, z);
            for (weights, group) in [(even, 2 * z), (odd, 2 * z + 1)] {
                for i in 0..M {
                    grown[i] = s.dot(grown[i], weights, &row[i].codes.as_chunks().0[group]);
                }
            }
        }
        for i in 0..M {
            sums[i] = s.end(sums[i], grown[i]);
        }
    }
    sums
}

/// As [`quantised`], of weights and inputs that are floats.
#[inline(always)]
pub(super) fn floats<S: Simd, T: Float, const M: usize>(
    s: S,
    tile: Tile<'_>,
    inputs: &[f32],
    cols: usize,
    later: Later,
) -> [S::F; M] {
    // Two sums for each output, of even and odd columns, so that they are not one long chain.
    let mut sums = [[s.splat(0.0); 2]; M];
    let bytes = LANES * T::BYTES;
    let later = later.distances();
    let mut rows: [&[f32]; M] = [&[]; M];
    for (row, input) in rows.iter_mut().zip(inputs.chunks_exact(cols)) {
        *row = &input[..cols];
    }
    for (column, weights) in tile.codes.chunks_exact(bytes).take(cols).enumerate() {
        later.ask(s, weights);
        let weights = T::load(s, weights);
        for i in 0..M {
            sums[i][column % 2] = s.fma(weights, s.splat(rows[i][column]), sums[i][column % 2]);
        }
    }
    let mut outputs = [s.splat(0.0); M];
    for i in 0..M {
        outputs[i] = s.add(sums[i][0], sums[i][1]);
    }
    outputs
}
