//! Counts of values in buckets, written by one thread and read by any.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bounds of the buckets of a time, microseconds: from a tenth of a millisecond to ten seconds.
pub const TIME_BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];
/// Bounds of the buckets of a count of rows or sessions.
pub const COUNT_BOUNDS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// A histogram with `N` bounds; a value is in the first bucket whose bound it does not exceed.
#[derive(Debug)]
pub(crate) struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    buckets: [AtomicU64; N],
    beyond: AtomicU64,
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramSnapshot<const N: usize> {
    /// The greatest value of each bucket.
    pub bounds: &'static [u64; N],
    /// Values of each bucket alone, not those of the buckets before.
    pub buckets: [u64; N],
    /// Values above all bounds.
    pub beyond: u64,
    /// Of all values.
    pub sum: u64,
}

impl<const N: usize> Histogram<N> {
    pub(crate) fn new(bounds: &'static [u64; N]) -> Self {
        Self {
            bounds,
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            beyond: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, value: u64) {
        let index = self.bounds.partition_point(|&bound| bound < value);
        self.buckets.get(index).unwrap_or(&self.beyond).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> HistogramSnapshot<N> {
        HistogramSnapshot {
            bounds: self.bounds,
            buckets: std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed)),
            beyond: self.beyond.load(Ordering::Relaxed),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

impl<const N: usize> HistogramSnapshot<N> {
    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum::<u64>() + self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::new(&COUNT_BOUNDS);
        for value in [0, 1, 2, 3, 4, 1024, 1025, 9999] {
            histogram.record(value);
        }
        let seen = histogram.snapshot();
        assert_eq!(seen.buckets, [2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((seen.beyond, seen.count(), seen.sum), (2, 8, 12_058));
    }
}
