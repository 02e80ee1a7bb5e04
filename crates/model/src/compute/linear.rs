//! Linear layers over all rows of a pass, split over threads by output feature.
//!
//! Every output is one dot product of one weight row and one input row, so it does not depend on
//! how many rows there are nor on how the outputs are split.

use super::matrix::Matrix;
use super::ops::dot;
use rayon::ThreadPool;
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use std::ops::Range;

/// Weight values widened at a time: they stay in the first-level cache while all input rows pass by.
const TILE_VALUES: usize = 6 * 1024;

/// A thread's share of one layer: a range of outputs, and where they go in every row.
struct Share<'a> {
    weights: &'a Matrix,
    outputs: Range<usize>,
    rows: Vec<&'a mut [f32]>,
}

/// `outs[i] = input · weights[i]ᵀ` for layers that share their input, in one parallel region.
///
/// `input` holds rows of the layers' input width. `outs[i]` holds as many rows, each as wide as it
/// wants outputs: the first of the layer's, all of them usually.
pub(crate) fn linear(
    pool: &ThreadPool,
    input: &[f32],
    layers: &mut [(&Matrix, usize, &mut [f32])],
) -> Result<(), candle_core::Error> {
    let threads = pool.current_num_threads();
    let mut work: Vec<Vec<Share<'_>>> = (0..threads).map(|_| Vec::new()).collect();
    for (weights, width, out) in layers.iter_mut() {
        let bounds: Vec<usize> = (0..=threads).map(|t| *width * t / threads).collect();
        let mut shares: Vec<Share<'_>> =
            bounds.windows(2).map(|b| Share { weights, outputs: b[0]..b[1], rows: Vec::new() }).collect();
        for row in out.chunks_exact_mut(*width) {
            let mut rest = row;
            for share in &mut shares {
                let (mine, others) = rest.split_at_mut(share.outputs.len());
                share.rows.push(mine);
                rest = others;
            }
        }
        for (list, share) in work.iter_mut().zip(shares) {
            list.push(share);
        }
    }
    work.into_par_iter().with_max_len(1).try_for_each_init(Vec::new, |scratch, shares| {
        shares.into_iter().try_for_each(|share| share.compute(input, scratch))
    })
}

impl Share<'_> {
    fn compute(mut self, input: &[f32], scratch: &mut Vec<f32>) -> Result<(), candle_core::Error> {
        let cols = self.weights.cols();
        let tile = (TILE_VALUES / cols).max(1);
        let first = self.outputs.start;
        for start in self.outputs.clone().step_by(tile) {
            let end = (start + tile).min(self.outputs.end);
            let widened = self.weights.widen(start..end, scratch)?;
            for (row, x) in self.rows.iter_mut().zip(input.chunks_exact(cols)) {
                for (y, w) in row[start - first..end - first].iter_mut().zip(widened.chunks_exact(cols)) {
                    *y = dot(w, x);
                }
            }
        }
        Ok(())
    }
}
