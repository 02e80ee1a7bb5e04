//! Which queries and chunks there are, and whose they are: a static split by their cost.

use super::chunk::Partial;
use super::{Attention, CHUNK, Span, first_visible};
use crate::activations::{Chunk, chunks};
use crate::kv::SharedCache;
use std::ops::Range;

/// Floats of partials that may be kept: beyond it the pass is a long prompt's, whose queries are many
/// enough for each thread to do all chunks of its own.
const MOST_PARTIALS: usize = 4 << 20;

/// Items for each thread below which it matters that all have as many.
const FEW_ITEMS: usize = 4;

/// The items of a pass.
#[derive(Debug)]
pub(super) struct Work {
    key_heads: usize,
    heads: usize,
    window: Option<usize>,
    group: usize,
    /// Queries of an item, at most.
    block: usize,
    /// Blocks more than the queries of a key head need, so that all threads have as many.
    more: usize,
    rows: usize,
    /// Chunks of the longest session.
    chunks: usize,
    spread: bool,
    /// Whether each key head of a session is one item.
    whole: bool,
    /// Positions times queries, over all items.
    cost: usize,
}

/// Some queries of one key head, and chunks of positions that they meet.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// Index of the span.
    pub(super) span: usize,
    pub(super) head: usize,
    /// The first query; they are counted row by row, a row's query heads of this key head in turn.
    pub(super) first: usize,
    /// How many.
    pub(super) queries: usize,
    pub(super) chunks: Range<usize>,
}

impl Work {
    pub(super) fn new(
        spans: &[Span],
        cache: &SharedCache<'_>,
        attention: Attention<'_>,
        block: usize,
        threads: usize,
    ) -> Self {
        let Attention { heads, window, .. } = attention;
        let key_heads = cache.shape().heads;
        let group = heads / key_heads;
        let rows = spans.iter().map(|span| span.rows).sum();
        let longest = spans.iter().map(|span| cache.len(span.slot) + span.rows).max().unwrap_or(0);
        let chunks = longest.div_ceil(CHUNK);
        let floats = rows * heads * chunks * Partial::floats(cache.shape());
        let spread = chunks > 1 && floats <= MOST_PARTIALS;
        let items: usize = spans.iter().map(|span| (span.rows * group).div_ceil(block) * key_heads).sum();
        let uneven = !spread && items < FEW_ITEMS * threads && !items.is_multiple_of(threads);
        let more = usize::from(uneven);
        let whole = false;
        let mut work =
            Self { key_heads, heads, window, group, block, more, rows, chunks, spread, whole, cost: 0 };
        work.whole = !spread && spans.iter().all(|span| work.blocks(span) == 1);
        let mut cost = 0;
        work.visit(spans, cache, |_, item_cost| cost += item_cost);
        work.cost = cost;
        work
    }

    /// Whether partials are kept for a later stage.
    pub(super) fn spread(&self) -> bool {
        self.spread
    }

    /// Whether all queries that meet a key head of a session are one item.
    pub(super) fn whole(&self) -> bool {
        self.whole
    }

    /// Blocks that the queries of a key head are taken in.
    fn blocks(&self, span: &Span) -> usize {
        let fewest = (span.rows * self.group).div_ceil(self.block);
        // A single row's queries are so few that to read keys and values twice costs more than to wait.
        if span.rows > 1 { fewest + self.more } else { fewest }
    }

    /// Partials to keep.
    pub(super) fn partials(&self) -> usize {
        if self.spread { self.rows * self.heads * self.chunks } else { 0 }
    }

    /// The place of a partial.
    pub(super) fn partial(&self, row: usize, head: usize, chunk: usize) -> usize {
        (row * self.heads + head) * self.chunks + chunk
    }

    /// Calls `f` with the items of one thread: those whose middle lies in its share of the cost.
    pub(super) fn for_each(
        &self,
        spans: &[Span],
        cache: &SharedCache<'_>,
        thread: usize,
        threads: usize,
        mut f: impl FnMut(Item),
    ) {
        let mine = self.cost * thread / threads..self.cost * (thread + 1) / threads;
        let mut before = 0;
        self.visit(spans, cache, |item, cost| {
            if mine.contains(&(before + cost / 2)) {
                f(item);
            }
            before += cost;
        });
    }

    /// Calls `f` with every item and its cost.
    fn visit(&self, spans: &[Span], cache: &SharedCache<'_>, mut f: impl FnMut(Item, usize)) {
        for (index, span) in spans.iter().enumerate() {
            let queries = span.rows * self.group;
            for head in 0..self.key_heads {
                let blocks = chunks(queries, queries.div_ceil(self.blocks(span))).map(
                    |Chunk { first, rows: count }| {
                        // What the first query sees first, and the last one last.
                        let visible = |query: usize| cache.len(span.slot) + query / self.group + 1;
                        (first, count, first_visible(self.window, visible(first))..visible(first + count - 1))
                    },
                );
                let item = |first, queries, chunks| Item { span: index, head, first, queries, chunks };
                if !self.spread {
                    for (first, count, seen) in blocks {
                        let chunks = seen.start / CHUNK..seen.end.div_ceil(CHUNK);
                        f(item(first, count, chunks), seen.len() * count);
                    }
                    continue;
                }
                // All queries meet a chunk while it is in the second cache.
                for chunk in 0..(cache.len(span.slot) + span.rows).div_ceil(CHUNK) {
                    for (first, count, seen) in blocks.clone() {
                        let end = seen.end.min((chunk + 1) * CHUNK);
                        let positions = end.saturating_sub(seen.start.max(chunk * CHUNK));
                        if positions > 0 {
                            f(item(first, count, chunk..chunk + 1), positions * count);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Cache, CacheShape, Precision};

    #[test]
    fn threads_have_nearly_as_much_to_do_as_each_other_where_items_are_few() {
        let mut cache = Cache::new(CacheShape { layers: 1, heads: 3, dim: 64, precision: Precision::F32 });
        let slot = cache.allocate(200);
        cache.reserve(slot, 128);
        cache.advance(slot, 128);
        let attention = Attention { layer: 0, heads: 9, scale: 1.0, window: None, norms: None, codes: false };
        for most in [4, 8, 12] {
            for rows in 2..=8 {
                let (spans, cache) = ([Span { slot, first: 0, rows }], cache.share());
                let work = Work::new(&spans, &cache, attention, most, 2);
                let (mut costs, mut queries) = ([0, 0], 0);
                for (thread, cost) in costs.iter_mut().enumerate() {
                    work.for_each(&spans, &cache, thread, 2, |item| {
                        assert!(item.queries <= most);
                        *cost += item.queries;
                        queries += item.queries;
                    });
                }
                assert_eq!(queries, rows * 9, "each query is in one item");
                assert!(costs[0].abs_diff(costs[1]) * 4 <= queries, "{rows} rows by {most}: {costs:?}");
            }
        }
    }
}
