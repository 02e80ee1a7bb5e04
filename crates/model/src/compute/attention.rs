//! Causal attention of one pass: every new row over the cached positions of its own session.

use super::ops::{add_scaled, dot, softmax_weights};
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

/// How a model's attention heads are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heads {
    /// Query heads.
    pub(crate) query: usize,
    /// Key and value heads; each serves `query / key_value` query heads.
    pub(crate) key_value: usize,
    /// Components of one head.
    pub(crate) dim: usize,
}

impl Heads {
    /// Width of a row of queries.
    pub(crate) fn query_width(&self) -> usize {
        self.query * self.dim
    }

    /// Width of a row of keys or of values.
    pub(crate) fn key_value_width(&self) -> usize {
        self.key_value * self.dim
    }
}

/// What one row attends over: the keys and values of its session that it sees, itself the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    /// Rows of keys, rotated.
    pub(crate) keys: &'a [f32],
    /// Rows of values.
    pub(crate) values: &'a [f32],
}

/// Writes `softmax(scale q kᵀ) v` of every row, in parallel over rows and key heads.
///
/// `queries` and `out` hold a row of query heads for each of `contexts`.
pub(crate) fn attend(heads: Heads, scale: f32, queries: &[f32], contexts: &[Context<'_>], out: &mut [f32]) {
    let group = heads.query / heads.key_value * heads.dim;
    out.par_chunks_mut(group).enumerate().for_each_init(Vec::new, |scores, (unit, out)| {
        let (row, kv_head) = (unit / heads.key_value, unit % heads.key_value);
        let queries = &queries[unit * group..][..group];
        for (q, o) in queries.chunks_exact(heads.dim).zip(out.chunks_exact_mut(heads.dim)) {
            attend_head(heads, scale, kv_head, q, contexts[row], scores, o);
        }
    });
}

fn attend_head(
    heads: Heads,
    scale: f32,
    kv_head: usize,
    query: &[f32],
    context: Context<'_>,
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    let width = heads.key_value_width();
    let columns = kv_head * heads.dim..(kv_head + 1) * heads.dim;
    scores.clear();
    scores.extend(context.keys.chunks_exact(width).map(|row| dot(query, &row[columns.clone()]) * scale));
    let normaliser = softmax_weights(scores);
    out.fill(0.0);
    for (&weight, row) in scores.iter().zip(context.values.chunks_exact(width)) {
        add_scaled(out, weight, &row[columns.clone()]);
    }
    for o in out {
        *o *= normaliser;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_average_the_values() {
        let heads = Heads { query: 4, key_value: 2, dim: 8 };
        let keys = vec![0.5; 3 * 16];
        let values: Vec<f32> = (0..3 * 16).map(|i| (i / 16) as f32).collect();
        let context = Context { keys: &keys, values: &values };
        let mut out = vec![9.0; 2 * 32];
        let first = Context { keys: &keys[..16], values: &values[..16] };
        attend(heads, 0.3, &vec![1.0; 2 * 32], &[first, context], &mut out);
        assert!(out[..32].iter().all(|&o| o == 0.0), "{out:?}");
        assert!(out[32..].iter().all(|&o| (o - 1.0).abs() < 1e-6), "{out:?}");
    }
}
