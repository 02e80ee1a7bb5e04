//! Sixteen outputs of some rows: the innermost loops of every linear layer.
//!
//! An output is summed over the blocks of its row in their order, one rounding after the other; how
//! many rows are computed together, `M`, only changes what is done between two steps of one sum.

use crate::activations::ActivationBlock;
use crate::pack::{BLOCK, Codes, Float, Scales, Tile};
use crate::simd::{LANES, Simd};

/// How far ahead of their use the weights are asked for.
///
/// Measured: at 4 KiB a pass of five rows still waits for the memory, at 16 KiB it costs hardly more
/// than one of a single row, and beyond that lines are pushed out again before their turn.
pub(super) const AHEAD: usize = 16 << 10;

/// The outputs of one tile for the `M` rows of a chunk; bytes `ahead` of the tile are asked for meanwhile.
#[inline(always)]
pub(super) fn quantised<S: Simd, C: Codes, X: Scales, const ZERO: u32, const M: usize>(
    s: S,
    tile: Tile<'_>,
    blocks: &[ActivationBlock],
    ahead: usize,
) -> [S::F; M] {
    let mut outputs = [s.splat(0.0); M];
    // Scales lie behind the codes of their tile: those as far ahead are some whole tiles away.
    let scales_ahead = if ahead == AHEAD { tile.bytes * AHEAD.div_ceil(tile.bytes.max(1)) } else { ahead };
    let rows = blocks.as_chunks::<M>().0.chunks_exact(X::BLOCKS);
    let units =
        tile.codes.chunks_exact(C::BYTES * X::BLOCKS).zip(tile.scales.chunks_exact(X::BYTES)).zip(rows);
    for ((codes, unit), rows) in units {
        let opened = X::open(s, unit);
        for line in (0..X::BYTES).step_by(64) {
            s.prefetch(unit, scales_ahead.wrapping_add(line));
        }
        for index in 0..X::BLOCKS {
            let (codes, row) = (&codes[index * C::BYTES..][..C::BYTES], &rows[index]);
            for line in (0..C::BYTES).step_by(64) {
                s.prefetch(codes, ahead.wrapping_add(line));
            }
            let minimum = X::minimum(s, unit, opened, index);
            for half in 0..X::HALVES {
                let scale = X::scale(s, unit, opened, index, half);
                let mut sums = [s.splat_i(0); M];
                for i in 0..M {
                    let [a, b] = row[i].negated_sums;
                    let negated = if X::HALVES == 2 { row[i].negated_sums[half] } else { a + b };
                    if C::BIASED {
                        sums[i] = s.begin_biased(negated);
                    } else if ZERO > 0 {
                        sums[i] = s.shl_i::<ZERO>(s.splat_i(negated));
                    }
                }
                let groups = BLOCK / 8 / X::HALVES;
                for z in half * groups..(half + 1) * groups {
                    let (even, odd) = C::pair(s, codes, z);
                    for i in 0..M {
                        let x = row[i].codes.as_chunks::<4>().0;
                        sums[i] = dot::<S, C>(s, sums[i], even, &x[2 * z]);
                    }
                    for i in 0..M {
                        let x = row[i].codes.as_chunks::<4>().0;
                        sums[i] = dot::<S, C>(s, sums[i], odd, &x[2 * z + 1]);
                    }
                }
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

#[inline(always)]
fn dot<S: Simd, C: Codes>(s: S, sums: S::I, weights: S::B, x: &[i8; 4]) -> S::I {
    if C::BIASED { s.dot_biased(sums, weights, x) } else { s.dot(sums, weights, x) }
}

/// As [`quantised`], of weights and inputs that are floats.
#[inline(always)]
pub(super) fn floats<S: Simd, T: Float, const M: usize>(
    s: S,
    tile: Tile<'_>,
    inputs: &[f32],
    cols: usize,
    ahead: usize,
) -> [S::F; M] {
    // Two sums for each output, of even and odd columns, so that they are not one long chain.
    let mut sums = [[s.splat(0.0); 2]; M];
    let bytes = LANES * T::BYTES;
    let mut rows: [&[f32]; M] = [&[]; M];
    for (row, input) in rows.iter_mut().zip(inputs.chunks_exact(cols)) {
        *row = &input[..cols];
    }
    for (column, weights) in tile.codes.chunks_exact(bytes).take(cols).enumerate() {
        s.prefetch(weights, ahead);
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
