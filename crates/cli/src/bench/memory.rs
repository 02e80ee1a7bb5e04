//! How fast the memory delivers: the bound that no pass over weights in memory can beat.
//!
//! A buffer of the size of what a pass reads is summed by as many threads as a pass has, each its own part from front to
//! end. Like a pass, it comes back to the same bytes each time, so that what a processor keeps in its caches between
//! passes it may keep here too.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Times each thread reads its part in one measurement, so that the start of the threads weighs little.
const SWEEPS: u32 = 2;
/// Words that a thread's share is a multiple of: no cache line is read by two.
const LINE: usize = 8;

/// A buffer, and the best speed it was read at.
#[derive(Debug)]
pub(super) struct Memory {
    words: Vec<u64>,
    /// How many of the words are read.
    used: usize,
    threads: usize,
    best_gb_per_s: f64,
}

impl Memory {
    /// A buffer of at most `bytes` bytes, to be read by `threads` threads.
    pub(super) fn new(threads: usize, bytes: u64) -> Self {
        let count = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(size_of::<u64>());
        // Written word by word: memory that was never written is one page of zeros, read from the cache.
        Self { words: (0..count as u64).collect(), used: count, threads: threads.max(1), best_gb_per_s: 0.0 }
    }

    /// From here on, reads only `bytes` bytes; the best speed starts anew.
    pub(super) fn set_bytes(&mut self, bytes: u64) {
        let count = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(size_of::<u64>());
        self.used = count.min(self.words.len());
        self.best_gb_per_s = 0.0;
    }

    /// Threads that read.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// The best of all reads, in 10⁹ bytes per second.
    pub(super) fn best_gb_per_s(&self) -> f64 {
        self.best_gb_per_s
    }

    /// Reads the buffer, and keeps the speed if it is the best so far.
    pub(super) fn read(&mut self) {
        let words = &self.words[..self.used];
        if words.is_empty() {
            return;
        }
        let share = words.len().div_ceil(self.threads).next_multiple_of(LINE);
        let barrier = Barrier::new(words.chunks(share).len());
        let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
            let barrier = &barrier;
            let readers: Vec<_> = words
                .chunks(share)
                .map(|part| {
                    scope.spawn(move || {
                        // The passes before have evicted what the caches can keep of it.
                        black_box(sum(black_box(part)));
                        barrier.wait();
                        let start = Instant::now();
                        for _ in 0..SWEEPS {
                            black_box(sum(black_box(part)));
                        }
                        (start, Instant::now())
                    })
                })
                .collect();
            readers.into_iter().filter_map(|reader| reader.join().ok()).collect()
        });
        let start = spans.iter().map(|span| span.0).min();
        let end = spans.iter().map(|span| span.1).max();
        let time = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
        if time > Duration::ZERO {
            let bytes = size_of_val(words) as f64 * f64::from(SWEEPS);
            self.best_gb_per_s = self.best_gb_per_s.max(bytes / time.as_secs_f64() / 1e9);
        }
    }
}

/// The sum of all words: the cheapest use that makes a reader load every one of them.
///
/// A plain fold, which compilers turn into wide loads and several sums side by side at every target level. Sums kept by hand
/// read slower, with AVX-512 more than ten times.
fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum: u64, &word| sum.wrapping_add(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_size_and_thread_count_gives_a_speed() {
        for threads in [1, 2, 5] {
            let mut memory = Memory::new(threads, 10_001);
            for bytes in [10_001, 8, 1 << 40] {
                memory.set_bytes(bytes);
                assert_eq!(memory.best_gb_per_s(), 0.0);
                memory.read();
                // A few bytes may be read within one tick of the clock.
                assert!(memory.best_gb_per_s() > 0.0 || bytes == 8);
            }
        }
        let mut nothing = Memory::new(2, 0);
        nothing.read();
        assert_eq!(nothing.best_gb_per_s(), 0.0);
    }
}
