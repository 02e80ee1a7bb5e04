//! The key and value rows of one session, per layer.
//!
//! Positions are only ever appended behind the length; forgetting is setting `len`, and
//! what lies behind it is overwritten by the next rows. Memory grows with use, up to the capacity.

use crate::compute::attention::Context;
use crate::slots::Positions;

/// Positions the first growth makes room for.
const FIRST_GROWTH: usize = 64;

/// One session's cache over all layers.
#[derive(Debug)]
pub(crate) struct SlotCache {
    layers: Vec<LayerCache>,
    len: usize,
    capacity: usize,
}

#[derive(Debug, Clone, Default)]
struct LayerCache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl SlotCache {
    /// An empty cache that will take up to `capacity` positions.
    pub(crate) fn new(layers: usize, capacity: usize) -> Self {
        Self { layers: vec![LayerCache::default(); layers], len: 0, capacity }
    }

    /// Counts `rows` positions, written to every layer, as held.
    pub(crate) fn advance(&mut self, rows: usize) {
        self.len += rows;
    }

    /// Writes rows of one layer behind the held positions; `width` is that of one row.
    pub(crate) fn write(&mut self, layer: usize, keys: &[f32], values: &[f32], width: usize) {
        let (held, most) = (self.len * width, self.capacity * width);
        let layer = &mut self.layers[layer];
        append(&mut layer.keys, held, keys, most, FIRST_GROWTH * width);
        append(&mut layer.values, held, values, most, FIRST_GROWTH * width);
    }

    /// What a row at `position` attends over in one layer: the `window` nearest positions, or all.
    pub(crate) fn context(
        &self,
        layer: usize,
        position: usize,
        window: Option<usize>,
        width: usize,
    ) -> Context<'_> {
        let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
        let floats = first * width..(position + 1) * width;
        let layer = &self.layers[layer];
        Context { keys: &layer.keys[floats.clone()], values: &layer.values[floats] }
    }
}

impl Positions for SlotCache {
    fn len(&self) -> usize {
        self.len
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

/// Puts `rows` at `held`, doubling the memory as needed but never beyond `most` floats.
fn append(floats: &mut Vec<f32>, held: usize, rows: &[f32], most: usize, first: usize) {
    floats.truncate(held);
    let needed = held + rows.len();
    if needed > floats.capacity() {
        let target = needed.max(floats.capacity() * 2).max(first).min(most.max(needed));
        floats.reserve_exact(target - held);
    }
    floats.extend_from_slice(rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_behind_the_length_are_overwritten() {
        let mut cache = SlotCache::new(2, 8);
        for layer in 0..2 {
            cache.write(layer, &[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0], 2);
        }
        cache.advance(2);
        cache.truncate(5);
        assert_eq!(cache.len(), 2);
        cache.truncate(1);
        cache.write(1, &[9.0, 9.5], &[8.0, 8.5], 2);
        cache.advance(1);
        assert_eq!(cache.context(1, 1, None, 2).keys, [1.0, 2.0, 9.0, 9.5]);
        assert_eq!(cache.context(1, 1, None, 2).values, [5.0, 6.0, 8.0, 8.5]);
        assert_eq!(cache.context(0, 1, Some(2), 2).keys, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(cache.context(1, 1, Some(1), 2).values, [8.0, 8.5]);
    }

    #[test]
    fn memory_never_exceeds_the_capacity() {
        let mut cache = SlotCache::new(1, 100);
        for _ in 0..100 {
            cache.write(0, &[0.0], &[0.0], 1);
            cache.advance(1);
        }
        assert_eq!(cache.layers[0].keys.capacity(), 100);
    }
}
