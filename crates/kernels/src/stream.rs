//! Memory that is read for its own sake: how fast weights could come if nothing were computed with them.
//!
//! It lies where weights lie, in large pages, and is asked for ahead as they are; each thread of a team has its share.

use crate::buffer::Buffer;
use crate::matmul::{FAR, NEAR, Team};
use crate::simd::{Kernel, LANES, Simd};
use std::hint::black_box;

/// Bytes of a vector, which are a line of the cache.
const VECTOR: usize = LANES * size_of::<f32>();
/// Vectors that are added side by side.
const CHAINS: usize = 4;

/// A number of bytes to read.
#[derive(Debug)]
pub struct Stream {
    numbers: Buffer<f32>,
}

impl Stream {
    /// At least `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self { numbers: Buffer::zeroed(bytes.div_ceil(VECTOR * CHAINS) * LANES * CHAINS) }
    }

    /// Bytes there are.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.numbers)
    }

    /// Reads the first `bytes`, rounded up, or all if there are fewer; returns how many were read.
    pub fn read(&self, team: &mut Team, bytes: usize) -> usize {
        let lines = self.numbers.as_chunks::<{ LANES * CHAINS }>().0;
        let lines = &lines[..bytes.div_ceil(VECTOR * CHAINS).min(lines.len())];
        let tier = team.tier();
        let (pool, _) = team.parts(0);
        pool.run(|part| {
            black_box(tier.run(Sum { lines: &lines[part.share(lines.len())] }));
        });
        size_of_val(lines)
    }
}

/// The sum of all numbers: the cheapest use that makes a thread load every one of them.
struct Sum<'a> {
    lines: &'a [[f32; LANES * CHAINS]],
}

impl Kernel for Sum<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); CHAINS];
        for line in self.lines {
            for (i, vector) in line.as_chunks::<LANES>().0.iter().enumerate() {
                s.prefetch_far(vector, FAR);
                s.prefetch(vector, NEAR);
                sums[i % CHAINS] = s.add(sums[i % CHAINS], s.load(vector));
            }
        }
        s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;

    #[test]
    fn as_many_bytes_are_read_as_there_are_and_are_wanted() {
        for tier in Tier::available() {
            for threads in [1, 3] {
                let mut team = Team::new(tier, threads).unwrap();
                let stream = Stream::new(10_001);
                assert_eq!(stream.bytes(), 10_240);
                assert_eq!(stream.read(&mut team, 1), VECTOR * CHAINS);
                assert_eq!(stream.read(&mut team, 5_120), 5_120);
                assert_eq!(stream.read(&mut team, usize::MAX), 10_240);
                assert_eq!(Stream::new(0).read(&mut team, 1), 0);
            }
        }
    }
}
