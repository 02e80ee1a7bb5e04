//! How fast the memory delivers: the bound that no pass over weights in memory can beat.
//!
//! As much memory as a pass reads is read by as many threads as a pass has, the way a pass reads its weights. Like a pass,
//! it comes back to the same bytes each time, so that what a processor keeps in its caches between passes it may keep here
//! too.

use std::io;
use std::time::Instant;

use foretoken_kernels::{Stream, Team, Tier};

/// Reads in one measurement, the first of which is not timed: the passes before have evicted what the caches can keep.
const READS: usize = 4;

/// Memory, and the best speed it was read at.
#[derive(Debug)]
pub(super) struct Memory {
    stream: Stream,
    team: Team,
    /// How much of it is read.
    bytes: usize,
    best_gb_per_s: f64,
}

impl Memory {
    /// At most `bytes` bytes, to be read by `threads` threads.
    pub(super) fn new(threads: usize, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let team = Team::new(Tier::detect(), threads)?;
        Ok(Self { stream: Stream::new(bytes), team, bytes, best_gb_per_s: 0.0 })
    }

    /// From here on, reads only `bytes` bytes; the best speed starts anew.
    pub(super) fn set_bytes(&mut self, bytes: u64) {
        self.bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.best_gb_per_s = 0.0;
    }

    /// Threads that read.
    pub(super) fn threads(&self) -> usize {
        self.team.threads()
    }

    /// The best of all reads, in 10⁹ bytes per second.
    pub(super) fn best_gb_per_s(&self) -> f64 {
        self.best_gb_per_s
    }

    /// Reads the memory, and keeps the speed if it is the best so far.
    pub(super) fn read(&mut self) {
        for read in 0..READS {
            let start = Instant::now();
            let bytes = self.stream.read(&mut self.team, self.bytes);
            let seconds = start.elapsed().as_secs_f64();
            if read > 0 && seconds > 0.0 {
                self.best_gb_per_s = self.best_gb_per_s.max(bytes as f64 / seconds / 1e9);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_size_and_thread_count_gives_a_speed() {
        for threads in [1, 2, 5] {
            let mut memory = Memory::new(threads, 10_001).unwrap();
            assert_eq!(memory.threads(), threads);
            for bytes in [10_001, 8, 1 << 40] {
                memory.set_bytes(bytes);
                assert_eq!(memory.best_gb_per_s(), 0.0);
                memory.read();
                // A few bytes may be read within one tick of the clock.
                assert!(memory.best_gb_per_s() > 0.0 || bytes == 8);
            }
        }
        let mut nothing = Memory::new(2, 0).unwrap();
        nothing.read();
        assert_eq!(nothing.best_gb_per_s(), 0.0);
    }
}
