//! A few queries over one chunk of positions, and the joining of chunks.
//!
//! A partial softmax is the greatest score, the sum of `e^(score - greatest)`, and the values weighted
//! so. Scores are summed over components, sums over positions by their lane, values over positions,
//! each in the order of the session, however many queries are computed together.

use super::CHUNK;
use crate::kv::{CacheShape, PAGE, SharedCache};
use crate::simd::{LANES, Simd, exp, store_part};

/// Partial sums of a score.
const CHAINS: usize = 2;
/// How far ahead of their use keys and values are asked for.
const AHEAD: usize = 8 << 10;
/// Vectors of values that are weighted at a time.
const VECTORS: usize = 2;

/// The layout of a partial: two vectors for greatest and sum, then the weighted values.
pub(super) struct Partial;

impl Partial {
    /// Floats of one partial.
    pub(super) fn floats(shape: CacheShape) -> usize {
        2 * LANES + shape.value_width()
    }
}

/// Where the keys and values are.
pub(super) struct Source<'a> {
    pub(super) cache: &'a SharedCache<'a>,
    pub(super) slot: usize,
    pub(super) layer: usize,
    pub(super) head: usize,
}

/// Queries side by side, component by component.
pub(super) struct Queries<'a, const Q: usize> {
    pub(super) numbers: &'a [[f32; Q]],
    /// Positions that each may see.
    pub(super) visible: [usize; Q],
}

/// Writes the partials of the queries that see something of the chunk.
#[inline(always)]
pub(super) fn partial<S: Simd, const Q: usize>(
    s: S,
    source: &Source<'_>,
    queries: &Queries<'_, Q>,
    chunk: usize,
    scores: &mut [f32],
    partials: &mut [f32],
) {
    let state = partials.len() / super::QUERIES;
    let start = chunk * CHUNK;
    let lens = queries.visible.map(|visible| visible.saturating_sub(start).min(CHUNK));
    let longest = lens.iter().fold(0, |a, &b| a.max(b));
    let mut rows = scores.as_chunks_mut::<CHUNK>().0.iter_mut();
    let scores: [&mut [f32; CHUNK]; Q] = std::array::from_fn(|_| match rows.next() {
        Some(row) => row,
        None => unreachable!("scratch for every query"),
    });
    for first in (0..longest).step_by(PAGE) {
        // SAFETY: behind the barrier nobody writes to the cache.
        let keys = unsafe {
            source.cache.keys(source.cache.page(source.slot, start + first), source.layer, source.head)
        };
        let dim = queries.numbers.len();
        for (tile, keys) in keys.chunks_exact(dim).enumerate().take((longest - first).div_ceil(LANES)) {
            let tile = first / LANES + tile;
            let values = score(s, queries.numbers, keys);
            for i in 0..Q {
                s.store(values[i], &mut scores[i].as_chunks_mut().0[tile]);
            }
        }
    }
    for i in 0..Q {
        if lens[i] > 0 {
            let head = &mut partials[i * state..i * state + 2 * LANES];
            weigh(s, scores[i], lens[i], head.as_chunks_mut().0);
        }
    }
    let shortest = lens.iter().fold(CHUNK, |a, &b| a.min(b));
    let vectors = source.cache.shape().value_width() / LANES;
    let mut vector = 0;
    while vector < vectors {
        if vectors - vector >= VECTORS {
            values::<S, Q, VECTORS>(s, source, start, &scores, &lens, shortest, vector, partials);
            vector += VECTORS;
        } else {
            values::<S, Q, 1>(s, source, start, &scores, &lens, shortest, vector, partials);
            vector += 1;
        }
    }
}

/// The scores of sixteen positions.
#[inline(always)]
fn score<S: Simd, const Q: usize>(s: S, queries: &[[f32; Q]], keys: &[[f32; LANES]]) -> [S::F; Q] {
    let mut sums = [[s.splat(0.0); CHAINS]; Q];
    let (whole_keys, rest_keys) = keys.as_chunks::<CHAINS>();
    let (whole_queries, rest_queries) = queries.as_chunks::<CHAINS>();
    for (keys, queries) in whole_keys.iter().zip(whole_queries) {
        for j in 0..CHAINS {
            s.prefetch(&keys[j], AHEAD);
            let key = s.load(&keys[j]);
            for i in 0..Q {
                sums[i][j] = s.fma(s.splat(queries[j][i]), key, sums[i][j]);
            }
        }
    }
    for (j, (key, queries)) in rest_keys.iter().zip(rest_queries).enumerate().take(CHAINS - 1) {
        let key = s.load(key);
        for i in 0..Q {
            sums[i][j] = s.fma(s.splat(queries[i]), key, sums[i][j]);
        }
    }
    let mut scores = [s.splat(0.0); Q];
    for i in 0..Q {
        scores[i] = s.add(sums[i][0], sums[i][1]);
    }
    scores
}

/// Turns the first `len` scores into weights; writes the greatest score and the sum of weights.
#[inline(always)]
fn weigh<S: Simd>(s: S, scores: &mut [f32; CHUNK], len: usize, head: &mut [[f32; LANES]]) {
    let tiles = &mut scores.as_chunks_mut::<LANES>().0[..len.div_ceil(LANES)];
    let mut greatest = s.splat(f32::NEG_INFINITY);
    for (tile, scores) in tiles.iter().enumerate() {
        let seen = s.first(len - tile * LANES, s.load(scores), s.splat(f32::NEG_INFINITY));
        greatest = s.max(greatest, seen);
    }
    let greatest = s.splat(s.greatest(greatest));
    let mut sum = s.splat(0.0);
    for (tile, scores) in tiles.iter_mut().enumerate() {
        let weights = exp(s, s.sub(s.load(scores), greatest));
        let weights = s.first(len - tile * LANES, weights, s.splat(0.0));
        sum = s.add(sum, weights);
        s.store(weights, scores);
    }
    s.store(greatest, &mut head[0]);
    s.store(s.splat(s.sum(sum)), &mut head[1]);
}

/// Weighs `V` vectors of the values, from the `first`-th on.
#[allow(clippy::too_many_arguments, reason = "one step of `partial`, whose locals they are")]
#[inline(always)]
fn values<S: Simd, const Q: usize, const V: usize>(
    s: S,
    source: &Source<'_>,
    start: usize,
    weights: &[&mut [f32; CHUNK]; Q],
    lens: &[usize; Q],
    shortest: usize,
    first: usize,
    partials: &mut [f32],
) {
    let state = partials.len() / super::QUERIES;
    let width = source.cache.shape().value_width() / LANES;
    let mut sums = [[s.splat(0.0); V]; Q];
    for (page, from) in (0..shortest).step_by(PAGE).enumerate() {
        // SAFETY: behind the barrier nobody writes to the cache.
        let rows = unsafe {
            source.cache.values(source.cache.page(source.slot, start + from), source.layer, source.head)
        };
        let mut pages = [&[0.0; PAGE]; Q];
        for i in 0..Q {
            pages[i] = &weights[i].as_chunks::<PAGE>().0[page];
        }
        let count = (shortest - from).min(PAGE);
        for (position, row) in rows.chunks_exact(width).take(count).enumerate() {
            let Some(row) = row[first..].first_chunk::<V>() else { break };
            for v in 0..V {
                s.prefetch(&row[v], AHEAD);
                let value = s.load(&row[v]);
                for i in 0..Q {
                    sums[i][v] = s.fma(s.splat(pages[i][position % PAGE]), value, sums[i][v]);
                }
            }
        }
    }
    for i in 0..Q {
        // What this query sees beyond the others, in the same order.
        for position in shortest..lens[i] {
            let page = source.cache.page(source.slot, start + position);
            // SAFETY: as above.
            let rows = unsafe { source.cache.values(page, source.layer, source.head) };
            let row = &rows[position % PAGE * width + first..];
            for v in 0..V {
                sums[i][v] = s.fma(s.splat(weights[i][position]), s.load(&row[v]), sums[i][v]);
            }
        }
        let out = partials[i * state + 2 * LANES..(i + 1) * state].as_chunks_mut::<LANES>().0;
        for v in 0..V {
            s.store(sums[i][v], &mut out[first + v]);
        }
    }
}

/// Adds a chunk's partial to those before it.
#[inline(always)]
pub(super) fn join<S: Simd>(s: S, joined: &mut [f32], fresh: &[f32], first: bool) {
    if first {
        joined.copy_from_slice(fresh);
        return;
    }
    let (joined, fresh) = (joined.as_chunks_mut::<LANES>().0, fresh.as_chunks::<LANES>().0);
    let (old, new) = (s.load(&joined[0]), s.load(&fresh[0]));
    let greatest = s.max(old, new);
    let (keep, take) = (exp(s, s.sub(old, greatest)), exp(s, s.sub(new, greatest)));
    s.store(greatest, &mut joined[0]);
    for (joined, fresh) in joined[1..].iter_mut().zip(&fresh[1..]) {
        let value = s.fma(s.load(fresh), take, s.mul(s.load(joined), keep));
        s.store(value, joined);
    }
}

/// Divides the weighted values by the sum of weights.
#[inline(always)]
pub(super) fn finish<S: Simd>(s: S, joined: &[f32], out: &mut [f32]) {
    let joined = joined.as_chunks::<LANES>().0;
    let inverse = s.div(s.splat(1.0), s.load(&joined[1]));
    for (values, out) in joined[2..].iter().zip(out.chunks_mut(LANES)) {
        store_part(s, s.mul(s.load(values), inverse), out);
    }
}
