//! A few queries over one chunk of positions, and the joining of chunks.
//!
//! A partial softmax is the greatest score, the sum of `e^(score - greatest)`, and the values weighted
//! so. Scores are summed over components, sums over positions by their lane, values over positions,
//! each in the order of the session, however many queries are computed together.

use super::CHUNK;
use crate::kv::{CacheShape, Element, PAGE, SharedCache};
use crate::simd::{LANES, Simd, exp, store_part};
use std::ops::Range;

/// Partial sums of a score.
const CHAINS: usize = 2;

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
    /// Each may see the positions before this one,
    pub(super) visible: [usize; Q],
    /// from this one on.
    pub(super) hidden: [usize; Q],
}

impl<const Q: usize> Queries<'_, Q> {
    /// Whether a query sees something of a chunk.
    #[inline(always)]
    pub(super) fn meets(&self, query: usize, chunk: usize) -> bool {
        self.visible[query] > chunk * CHUNK && self.hidden[query] < (chunk + 1) * CHUNK
    }
}

/// Writes the partials of the queries that see something of the chunk.
#[inline(always)]
pub(super) fn partial<S: Simd, E: Element, const Q: usize>(
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
    let hidden = queries.hidden.map(|hidden| hidden.saturating_sub(start).min(CHUNK));
    let longest = lens.iter().fold(0, |a, &b| a.max(b));
    // What no query sees is left out by whole pages, and the rest of it weighs nothing.
    let unseen = hidden.iter().fold(CHUNK, |a, &b| a.min(b)) / PAGE * PAGE;
    let Some(scores) = scores.as_chunks_mut::<CHUNK>().0.first_chunk_mut::<Q>() else {
        unreachable!("scratch for every query")
    };
    let pages = longest.div_ceil(PAGE);
    let page = |index: usize| source.cache.page(source.slot, start + index * PAGE);
    // SAFETY: behind the barrier nobody writes to the cache.
    let keys = |page| unsafe { source.cache.keys::<E>(page, source.layer, source.head) };
    // SAFETY: as above.
    let values = |page| unsafe { source.cache.values::<E>(page, source.layer, source.head) };
    let dim = queries.numbers.len();
    for index in unseen / PAGE..pages {
        // What is read a page later: the next keys, behind the last ones the first values.
        let later = if index + 1 < pages { keys(page(index + 1)) } else { values(page(unseen / PAGE)) };
        let count = (longest - index * PAGE).div_ceil(LANES);
        for (tile, keys) in keys(page(index)).chunks_exact(dim).enumerate().take(count) {
            let values = score(s, queries.numbers, keys, later, tile * dim);
            let tile = index * PAGE / LANES + tile;
            for i in 0..Q {
                s.store(values[i], &mut scores[i].as_chunks_mut().0[tile]);
            }
        }
    }
    for i in 0..Q {
        if queries.meets(i, chunk) {
            let head = &mut partials[i * state..i * state + 2 * LANES];
            weigh(s, &mut scores[i], hidden[i]..lens[i], head.as_chunks_mut().0);
        }
    }
    let most = queries.visible.iter().fold(0, |a, &b| a.max(b));
    // Behind the last values the next chunk's keys, or those of the head that comes next.
    let beyond = if most > start + CHUNK {
        keys(page(CHUNK / PAGE))
    } else {
        let next = (source.head + 1) % source.cache.shape().heads;
        // SAFETY: as above.
        unsafe { source.cache.keys::<E>(page(0), source.layer, next) }
    };
    let weigh = Weigh {
        source,
        start,
        weights: scores,
        lens: &lens,
        unseen,
        shortest: lens.iter().fold(CHUNK, |a, &b| a.min(b)),
        beyond,
    };
    let vectors = source.cache.shape().value_width() / LANES;
    let mut vector = 0;
    while vector < vectors {
        // As many sums as a tier has registers for.
        if vectors - vector >= 4 && 4 * Q <= 2 * S::QUERIES {
            weigh.values::<S, 4>(s, vector, partials);
            vector += 4;
        } else if vectors - vector >= 2 {
            weigh.values::<S, 2>(s, vector, partials);
            vector += 2;
        } else {
            weigh.values::<S, 1>(s, vector, partials);
            vector += 1;
        }
    }
}

/// The scores of sixteen positions; as much of `later`, from vector `from` on, is asked for meanwhile.
#[inline(always)]
fn score<S: Simd, E: Element, const Q: usize>(
    s: S,
    queries: &[[f32; Q]],
    keys: &[[E; LANES]],
    later: &[[E; LANES]],
    from: usize,
) -> [S::F; Q] {
    let mut sums = [[s.splat(0.0); CHAINS]; Q];
    let (whole_keys, rest_keys) = keys.as_chunks::<CHAINS>();
    let (whole_queries, rest_queries) = queries.as_chunks::<CHAINS>();
    for (pair, (keys, queries)) in whole_keys.iter().zip(whole_queries).enumerate() {
        for j in 0..CHAINS {
            s.prefetch(later, (from + pair * CHAINS + j) * size_of::<[E; LANES]>());
            let key = E::load(s, &keys[j]);
            for i in 0..Q {
                sums[i][j] = s.fma(s.splat(queries[j][i]), key, sums[i][j]);
            }
        }
    }
    for (j, (key, queries)) in rest_keys.iter().zip(rest_queries).enumerate().take(CHAINS - 1) {
        let key = E::load(s, key);
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

/// Turns the scores that are `seen` into weights, those before them into 0; writes the greatest score and the sum of
/// weights.
#[inline(always)]
fn weigh<S: Simd>(s: S, scores: &mut [f32; CHUNK], seen: Range<usize>, head: &mut [[f32; LANES]]) {
    let tiles = &mut scores.as_chunks_mut::<LANES>().0[..seen.end.div_ceil(LANES)];
    let (before, from) = tiles.split_at_mut(seen.start / LANES);
    before.as_flattened_mut().fill(0.0);
    let first = before.len();
    // The seen lanes of a tile, `other` in those behind and before them.
    let only = |tile: usize, lanes: S::F, other: S::F| {
        let start = (first + tile) * LANES;
        s.first(seen.start.saturating_sub(start), other, s.first(seen.end - start, lanes, other))
    };
    let mut greatest = s.splat(f32::NEG_INFINITY);
    for (tile, scores) in from.iter().enumerate() {
        greatest = s.max(greatest, only(tile, s.load(scores), s.splat(f32::NEG_INFINITY)));
    }
    let greatest = s.splat(s.greatest(greatest));
    let mut sum = s.splat(0.0);
    for (tile, scores) in from.iter_mut().enumerate() {
        let weights = exp(s, s.sub(s.load(scores), greatest));
        let weights = only(tile, weights, s.splat(0.0));
        sum = s.add(sum, weights);
        s.store(weights, scores);
    }
    s.store(greatest, &mut head[0]);
    s.store(s.splat(s.sum(sum)), &mut head[1]);
}

/// The weighing of a chunk's values.
struct Weigh<'a, E, const Q: usize> {
    source: &'a Source<'a>,
    /// The chunk's first position.
    start: usize,
    weights: &'a [[f32; CHUNK]; Q],
    /// Positions of the chunk that each query sees, and those that all of them see.
    lens: &'a [usize; Q],
    shortest: usize,
    /// Positions of whole pages before those that some query sees.
    unseen: usize,
    /// What is read behind the values.
    beyond: &'a [[E; LANES]],
}

impl<E: Element, const Q: usize> Weigh<'_, E, Q> {
    /// The values of the page that holds a position of the chunk.
    #[inline(always)]
    fn page(&self, position: usize) -> &[[E; LANES]] {
        let Source { cache, slot, layer, head } = *self.source;
        // SAFETY: behind the barrier nobody writes to the cache.
        unsafe { cache.values::<E>(cache.page(slot, self.start + position), layer, head) }
    }

    /// Weighs `V` vectors of the values, from the `first`-th on.
    #[inline(always)]
    fn values<S: Simd, const V: usize>(&self, s: S, first: usize, partials: &mut [f32]) {
        let state = partials.len() / super::QUERIES;
        let width = self.source.cache.shape().value_width() / LANES;
        let mut sums = [[s.splat(0.0); V]; Q];
        for from in (self.unseen..self.shortest).step_by(PAGE) {
            let count = (self.shortest - from).min(PAGE);
            let later = if from + PAGE < self.shortest { self.page(from + PAGE) } else { self.beyond };
            let rows = self.page(from).chunks_exact(width).take(count);
            add_weighted(s, rows, first, self.weights, from, later, &mut sums);
        }
        for i in 0..Q {
            // What this query sees beyond the others, in the same order.
            for position in self.shortest..self.lens[i] {
                let row = &self.page(position)[position % PAGE * width + first..];
                for v in 0..V {
                    let weight = s.splat(self.weights[i][position]);
                    sums[i][v] = s.fma(weight, E::load(s, &row[v]), sums[i][v]);
                }
            }
            let out = partials[i * state + 2 * LANES..(i + 1) * state].as_chunks_mut::<LANES>().0;
            for v in 0..V {
                s.store(sums[i][v], &mut out[first + v]);
            }
        }
    }
}

/// Adds the `V` vectors of each row from the `first` on, times the weights of the positions `from` on, to `sums`;
/// the same vectors of `later` are asked for meanwhile.
///
/// Meanwhile the sums are in variables of its own, one by one: the caller's array, which is indexed by what only the
/// run tells, lies in memory, and each sum would go there and back.
#[inline(always)]
fn add_weighted<'a, S: Simd, E: Element, const Q: usize, const V: usize>(
    s: S,
    rows: impl Iterator<Item = &'a [[E; LANES]]>,
    first: usize,
    weights: &[[f32; CHUNK]; Q],
    from: usize,
    later: &[[E; LANES]],
    kept: &mut [[S::F; V]; Q],
) {
    let mut sums = [[s.splat(0.0); V]; Q];
    for i in 0..Q {
        for v in 0..V {
            sums[i][v] = kept[i][v];
        }
    }
    for (position, row) in rows.enumerate() {
        let Some(vectors) = row[first..].first_chunk::<V>() else { break };
        let mut values = [s.splat(0.0); V];
        for v in 0..V {
            s.prefetch(later, (position * row.len() + first + v) * size_of::<[E; LANES]>());
            values[v] = E::load(s, &vectors[v]);
        }
        for i in 0..Q {
            let weight = s.splat(weights[i][(from + position) % CHUNK]);
            for v in 0..V {
                sums[i][v] = s.fma(weight, values[v], sums[i][v]);
            }
        }
    }
    for i in 0..Q {
        for v in 0..V {
            kept[i][v] = sums[i][v];
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
