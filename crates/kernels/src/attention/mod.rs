//! Causal attention of a pass: every row over the cached positions of its own session.
//!
//! One job of the pool, in stages. First keys are normed and rotated and enter the cache with the values of the
//! new rows. Then queries, normed and rotated too, meet keys, in blocks of up to [`QUERIES`] that share a key
//! head. A query's positions are taken in chunks of [`CHUNK`], counted from the session's first; each chunk gives
//! a partial softmax, and the partials are joined in their order. Chunks are spread over the threads and their
//! partials joined behind a barrier; where the partials would take too much memory, a thread does all chunks of
//! its own queries. Both do the same arithmetic in the same order.
//!
//! What one thread writes and another reads goes from cache to cache, line by line, and takes longer than a short
//! context's arithmetic. So a thread turns the queries that it lets meet, and enters the keys where it has all that
//! meet them; elsewhere keys are shared out in the order in which queries are.

mod chunk;
#[cfg(test)]
mod tests;
mod work;

use crate::activations::{Activations, SharedActivations};
use crate::kv::{Cache, CacheShape, Element, Half, Precision, SharedCache};
use crate::matmul::{Source, Team};
use crate::norm::rms_norm_in_place;
use crate::pack::BLOCK;
use crate::pool::Part;
use crate::rope::{Angles, rotate};
use crate::shared::SharedMut;
use crate::simd::{Kernel, LANES, Simd, load_part, parts, store_part};
use crate::tier::Tier;
use chunk::{Partial, Queries, finish, join};
use std::marker::PhantomData;
use std::ops::Range;
use work::{Item, Work};

/// Positions of a chunk; a whole number of pages.
pub(crate) const CHUNK: usize = 256;
/// Queries that share one load of keys and values, at most.
pub(crate) const QUERIES: usize = 12;
/// What a key head and its values cost to enter, in query heads to turn: keys go to a cache line each component.
const KEY_COST: usize = 3;

/// One session's part of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its slot in the cache, which has pages for the new rows.
    pub slot: usize,
    /// Index of its first row among the rows of the pass.
    pub first: usize,
    /// New rows.
    pub rows: usize,
}

/// Norms of heads before the rotation.
#[derive(Debug, Clone, Copy)]
pub struct HeadNorms<'a> {
    /// Scale of a query head.
    pub query: &'a [f32],
    /// Scale of a key head.
    pub key: &'a [f32],
    /// Added to the mean square.
    pub eps: f32,
}

/// What is the same for all rows.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// The decoder layer, by its place in the cache.
    pub layer: usize,
    /// Query heads, a multiple of the cache's key heads.
    pub heads: usize,
    /// What the inner product of a query and a key is multiplied by.
    pub scale: f32,
    /// Positions that a row sees, its own among them, where it does not see all before it.
    pub window: Option<usize>,
    /// Norms of queries and keys, where the model has them.
    pub norms: Option<HeadNorms<'a>>,
    /// Whether what is found is wanted as codes too.
    pub codes: bool,
}

/// The first position that a row sees, of the `visible` ones up to itself.
fn first_visible(window: Option<usize>, visible: usize) -> usize {
    window.map_or(0, |window| visible.saturating_sub(window))
}

impl Team {
    /// Puts the rows' keys and values into the cache and writes what their queries find.
    ///
    /// A row of `qkv` holds the queries, the keys and the values of all heads; queries and keys are
    /// rotated in place. `out` gets a row of queries' width each, and its codes where they are wanted and a head is a
    /// whole number of their blocks: returned is what a layer has to begin from.
    ///
    /// # Panics
    /// If sizes do not fit each other, a session lacks pages, a slot is in two spans, or a window is empty.
    pub fn attend(
        &mut self,
        attention: Attention<'_>,
        spans: &[Span],
        angles: &Angles,
        qkv: &mut [f32],
        cache: &mut Cache,
        out: &mut Activations,
    ) -> Source<'static> {
        let shape = cache.shape();
        let (query_width, key_width) = (attention.heads * shape.dim, shape.heads * shape.dim);
        let (rows, width) = (out.rows(), query_width + 2 * key_width);
        assert!(attention.heads.is_multiple_of(shape.heads), "query heads are a multiple of the key heads");
        assert!(attention.window != Some(0), "a row sees itself at least");
        assert!(qkv.len() == rows * width && out.cols() == query_width && angles.rows() == rows);
        assert_eq!(spans.iter().map(|span| span.rows).sum::<usize>(), rows, "each row is in one span");
        for (i, span) in spans.iter().enumerate() {
            let twice = spans[..i].iter().any(|other| other.slot == span.slot);
            assert!(!twice, "a session is in a pass once");
        }
        let (tier, threads) = (self.tier(), self.threads());
        let cache = cache.share();
        let work = Work::new(spans, &cache, attention, tier.queries().min(QUERIES), threads);
        let state = Partial::floats(shape);
        let own = QUERIES * (shape.dim + CHUNK + 2 * state);
        let partials = work.partials();
        let (pool, scratch) = self.parts(threads * own + partials * state);
        let (owned, partial_cells) = scratch.split_at_mut(threads * own);
        let codes = attention.codes && shape.dim.is_multiple_of(BLOCK);
        let job = Job {
            attention: Attention { codes, ..attention },
            spans,
            angles,
            work,
            shape,
            width,
            qkv: SharedMut::new(qkv),
            cache,
            out: out.share(),
            partials: SharedMut::new(&mut partial_cells[..partials * state]),
        };
        let owned = SharedMut::new(owned);
        pool.run(|part| {
            if !job.work.whole() {
                // SAFETY: shares do not overlap, and a position is of one row.
                unsafe { job.enter(tier, part) };
                part.barrier();
            }
            // SAFETY: each thread has its own.
            let scratch = unsafe { owned.slice_mut(part.index * own..(part.index + 1) * own) };
            let job = &job;
            job.work.for_each(job.spans, &job.cache, part.index, part.count, |item| {
                if job.work.whole() {
                    let span = &job.spans[item.span];
                    // SAFETY: nobody else has queries that meet this key head of the session.
                    unsafe { job.enter_keys(tier, span, item.head, 0..span.rows) };
                }
                match shape.precision {
                    Precision::F32 => job.meet::<f32>(tier, item, scratch),
                    Precision::F16 => job.meet::<Half>(tier, item, scratch),
                }
            });
            if partials > 0 {
                part.barrier();
                tier.run(Join { job, part, scratch: &mut scratch[..state] });
            }
        });
        if codes { Source::Ready } else { Source::Floats }
    }
}

/// An attention job as its threads see it.
struct Job<'a> {
    attention: Attention<'a>,
    spans: &'a [Span],
    angles: &'a Angles,
    work: Work,
    shape: CacheShape,
    /// Floats of a row of `qkv`.
    width: usize,
    qkv: SharedMut<'a, f32>,
    cache: SharedCache<'a>,
    out: SharedActivations<'a>,
    /// Partials of all chunks of all queries, where threads share them.
    partials: SharedMut<'a, f32>,
}

impl Job<'_> {
    /// One item, with keys and values kept as `E`.
    fn meet<E: Element>(&self, tier: Tier, item: Item, scratch: &mut [f32]) {
        let (job, kept) = (self, PhantomData::<E>);
        match item.queries {
            1 => tier.run(Meet::<E, 1> { job, item, scratch, kept }),
            2 => tier.run(Meet::<E, 2> { job, item, scratch, kept }),
            3 => tier.run(Meet::<E, 3> { job, item, scratch, kept }),
            4 => tier.run(Meet::<E, 4> { job, item, scratch, kept }),
            5 => tier.run(Meet::<E, 5> { job, item, scratch, kept }),
            6 => tier.run(Meet::<E, 6> { job, item, scratch, kept }),
            7 => tier.run(Meet::<E, 7> { job, item, scratch, kept }),
            8 => tier.run(Meet::<E, 8> { job, item, scratch, kept }),
            9 => tier.run(Meet::<E, 9> { job, item, scratch, kept }),
            10 => tier.run(Meet::<E, 10> { job, item, scratch, kept }),
            11 => tier.run(Meet::<E, 11> { job, item, scratch, kept }),
            _ => tier.run(Meet::<E, QUERIES> { job, item, scratch, kept }),
        }
    }

    /// Writes what a row's head has found, all of it `joined`.
    ///
    /// # Safety
    /// No other thread uses the row's part of `out` meanwhile.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, row: usize, head: usize, joined: &[f32]) {
        let dim = self.shape.dim;
        let cols = head * dim..(head + 1) * dim;
        // SAFETY: the caller's promise.
        unsafe {
            finish(s, joined, self.out.row_mut(row, cols.clone()));
            if self.attention.codes {
                self.out.quantise(row, cols.start / BLOCK..cols.end / BLOCK);
            }
        }
    }

    /// Enters a thread's share of the keys and values; turns its share of the queries where not those do it that let
    /// them meet.
    ///
    /// The rows of a session are taken as they share tiles of the cache: threads that wrote keys of one tile would
    /// wait for each other's cache lines.
    ///
    /// # Safety
    /// No other thread uses the share's heads or their positions in the cache meanwhile.
    unsafe fn enter(&self, tier: Tier, part: Part<'_>) {
        let (keys, group) = (self.shape.heads, self.attention.heads / self.shape.heads);
        let turned = if self.work.spread() { group } else { 0 };
        let cost = KEY_COST + turned;
        let (mine, mut before) = (part.share(self.out.rows() * keys * cost), 0);
        let mut is_mine = |cost: usize| {
            let middle = before + cost / 2;
            before += cost;
            mine.contains(&middle)
        };
        for span in self.spans {
            let held = self.cache.len(span.slot);
            for head in 0..keys {
                let mut first = 0;
                while first < span.rows {
                    let rows = first..(first + LANES - (held + first) % LANES).min(span.rows);
                    if is_mine(rows.len() * KEY_COST) {
                        // SAFETY: the caller's promise.
                        unsafe { self.enter_keys(tier, span, head, rows.clone()) };
                    }
                    first = rows.end;
                    if turned > 0 && is_mine(rows.len() * turned) {
                        for row in rows {
                            for query in 0..group {
                                let (row, head) = (span.first + row, head * group + query);
                                // The caller's promise.
                                tier.run(Turn { job: self, row, head });
                            }
                        }
                    }
                }
            }
        }
    }

    /// Norms and rotates a key head of some rows of a span, and caches it with its values.
    ///
    /// # Safety
    /// No other thread uses them meanwhile.
    unsafe fn enter_keys(&self, tier: Tier, span: &Span, head: usize, rows: Range<usize>) {
        let (dim, heads, held) = (self.shape.dim, self.attention.heads, self.cache.len(span.slot));
        for row in rows {
            let position = held + row;
            let page = self.cache.page(span.slot, position);
            let row = span.first + row;
            // The caller's promise.
            tier.run(Turn { job: self, row, head: heads + head });
            let at = |index: usize| row * self.width + index * dim..row * self.width + (index + 1) * dim;
            // SAFETY: the caller's promise.
            let (key, value) = unsafe {
                (self.qkv.slice(at(heads + head)), self.qkv.slice(at(heads + self.shape.heads + head)))
            };
            let layer = self.attention.layer;
            // SAFETY: a session is in one span, a position is of one row.
            unsafe {
                match self.shape.precision {
                    Precision::F32 => self.cache.write::<f32>(page, layer, head, position, key, value),
                    Precision::F16 => self.cache.write::<Half>(page, layer, head, position, key, value),
                }
            }
        }
    }

    /// Norms and rotates a query head or key head of a row, in place.
    ///
    /// # Safety
    /// No other thread uses it meanwhile.
    #[inline(always)]
    unsafe fn turn<S: Simd>(&self, s: S, row: usize, head: usize) {
        let (attention, is_query) = (self.attention, head < self.attention.heads);
        let start = row * self.width + head * self.shape.dim;
        // SAFETY: the caller's promise.
        let head = unsafe { self.qkv.slice_mut(start..start + self.shape.dim) };
        if let Some(norms) = attention.norms {
            let weight = if is_query { norms.query } else { norms.key };
            rms_norm_in_place(s, head, weight, norms.eps);
        }
        let (cos, sin) = self.angles.row(row);
        rotate(s, head, cos, sin);
        if is_query {
            // A query is scaled once, not each of its scores.
            let scale = s.splat(attention.scale);
            for part in parts(head.len()) {
                let part = &mut head[part];
                store_part(s, s.mul(load_part(s, part), scale), part);
            }
        }
    }
}

/// [`Job::turn`], whose promise it demands.
struct Turn<'a, 'b> {
    job: &'a Job<'b>,
    row: usize,
    head: usize,
}

impl Kernel for Turn<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: who makes it promises it.
        unsafe { self.job.turn(s, self.row, self.head) };
    }
}

/// One item: its queries meet keys and values.
struct Meet<'a, 'b, E, const Q: usize> {
    job: &'a Job<'b>,
    item: Item,
    scratch: &'a mut [f32],
    kept: PhantomData<E>,
}

impl<E: Element, const Q: usize> Kernel for Meet<'_, '_, E, Q> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if Q <= S::QUERIES {
            meet::<S, E, Q>(s, self.job, &self.item, self.scratch);
        }
    }
}

/// One item: `Q` queries of one key head over one chunk, or over all.
#[inline(always)]
fn meet<S: Simd, E: Element, const Q: usize>(s: S, job: &Job<'_>, item: &Item, scratch: &mut [f32]) {
    let (dim, state) = (job.shape.dim, Partial::floats(job.shape));
    let (queries, scratch) = scratch.split_at_mut(QUERIES * dim);
    let (scores, scratch) = scratch.split_at_mut(QUERIES * CHUNK);
    let (joined, fresh) = scratch.split_at_mut(QUERIES * state);
    let group = job.attention.heads / job.shape.heads;
    let span = job.spans[item.span];
    let place = |i: usize| {
        let query = item.first + i;
        (
            span.first + query / group,
            item.head * group + query % group,
            job.cache.len(span.slot) + query / group + 1,
        )
    };
    let (mut visible, mut hidden) = ([0; Q], [0; Q]);
    let mut rows: [&[f32]; Q] = [&[]; Q];
    for i in 0..Q {
        let (row, head, len) = place(i);
        visible[i] = len;
        hidden[i] = first_visible(job.attention.window, len);
        let start = row * job.width + head * dim;
        // SAFETY: where chunks are not spread a query is in one item; else nobody writes it behind the barrier.
        rows[i] = unsafe {
            if !job.work.spread() {
                job.turn(s, row, head);
            }
            job.qkv.slice(start..start + dim)
        };
    }
    let numbers = &mut queries.as_chunks_mut::<Q>().0[..dim];
    for (component, numbers) in numbers.iter_mut().enumerate() {
        for i in 0..Q {
            numbers[i] = rows[i][component];
        }
    }
    let queries = Queries { numbers, visible, hidden };
    for chunk in item.chunks.clone() {
        let source =
            chunk::Source { cache: &job.cache, slot: span.slot, layer: job.attention.layer, head: item.head };
        chunk::partial::<S, E, Q>(s, &source, &queries, chunk, scores, fresh);
        for i in 0..Q {
            if !queries.meets(i, chunk) {
                continue;
            }
            let fresh = &fresh[i * state..(i + 1) * state];
            if job.work.spread() {
                let (row, head, _) = place(i);
                let at = job.work.partial(row, head, chunk) * state;
                // SAFETY: a chunk of a query is in one item.
                unsafe { job.partials.slice_mut(at..at + state) }.copy_from_slice(fresh);
            } else {
                join(s, &mut joined[i * state..(i + 1) * state], fresh, chunk == hidden[i] / CHUNK);
            }
        }
    }
    if !job.work.spread() {
        for i in 0..Q {
            let (row, head, _) = place(i);
            // SAFETY: a query is in one item.
            unsafe { job.write(s, row, head, &joined[i * state..(i + 1) * state]) };
        }
    }
}

/// Joins the partials of this thread's share of the queries.
struct Join<'a, 'b> {
    job: &'a Job<'b>,
    part: Part<'a>,
    scratch: &'a mut [f32],
}

impl Kernel for Join<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { job, part, scratch } = self;
        let (heads, state) = (job.attention.heads, Partial::floats(job.shape));
        let mine = part.share(job.out.rows() * heads);
        for span in job.spans {
            for row in span.first..span.first + span.rows {
                let visible = job.cache.len(span.slot) + row - span.first + 1;
                for head in 0..heads {
                    if !mine.contains(&(row * heads + head)) {
                        continue;
                    }
                    let first = first_visible(job.attention.window, visible) / CHUNK;
                    for chunk in first..visible.div_ceil(CHUNK) {
                        let at = job.work.partial(row, head, chunk) * state;
                        // SAFETY: all partials were written before the barrier.
                        let fresh = unsafe { job.partials.slice(at..at + state) };
                        join(s, scratch, fresh, chunk == first);
                    }
                    // SAFETY: shares do not overlap.
                    unsafe { job.write(s, row, head, scratch) };
                }
            }
        }
    }
}
