//! Gumbel coupling: draft and target draw with the same noise.
//!
//! Every token id has an exponential noise E at every position of the text, keyed by seed, sample index and position. A
//! distribution draws the token with the least E/p, which is distributed as p (the Gumbel-max trick in its exponential
//! form). The draft takes x = argmin E/q, the target y = argmin E/p; y is the text, and x saved a pass iff it is y,
//! which happens with probability Σ_i 1 / Σ_j max(p_j/p_i, q_j/q_i).
//!
//! So no q is sent, the text depends on seed and target alone, and it is exact for every drafted token, however it was
//! chosen: what is emitted is y.
//!
//! # The formula
//!
//! With block(key, nonce, counter) as in the coins' formula: word = the (id mod 8)-th eight bytes of block(noise key,
//! position, id div 8) as an integer, u = (2·(word >> 12) + 1) · 2^-53, E = −ln u with `libm`'s logarithm. Equal E/p go
//! to the lowest id.

use std::fmt;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;

use crate::distribution::Distribution;

/// Tokens whose noise is made at a time: four blocks, as many as the generator makes at once.
const TOKENS: u32 = 32;
const BYTES: usize = TOKENS as usize * 8;

/// 2^-52, so that 52 random bits and a half become a number in (0, 1).
const UNIT: f64 = 1.0 / 4_503_599_627_370_496.0;

/// −ln u ≥ 1 − u; less this much it holds for the rounded numbers as well.
const SURELY: f64 = 1.0 - 1.0 / 281_474_976_710_656.0;

/// The noise of one position of the text.
pub struct Noise {
    stream: ChaCha20Rng,
    /// Which [`TOKENS`] the bytes are for.
    chunk: Option<u32>,
    bytes: [u8; BYTES],
}

impl fmt::Debug for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Noise(hidden)")
    }
}

impl Noise {
    /// From a generator at its first block.
    pub(crate) fn new(stream: ChaCha20Rng) -> Self {
        Self { stream, chunk: None, bytes: [0; BYTES] }
    }

    /// A token's uniform number in (0, 1), of which E is −ln. Ids in ascending order cost least.
    fn uniform(&mut self, id: u32) -> f64 {
        let chunk = id / TOKENS;
        if self.chunk != Some(chunk) {
            // Positions count 32-bit words, two to a token.
            self.stream.set_word_pos(u128::from(chunk) * u128::from(TOKENS) * 2);
            self.stream.fill_bytes(&mut self.bytes);
            self.chunk = Some(chunk);
        }
        let start = (id % TOKENS) as usize * 8;
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[start..start + 8]);
        ((u64::from_le_bytes(word) >> 12) as f64 + 0.5) * UNIT
    }

    /// A token's noise E: exponential with mean 1.
    #[must_use]
    pub fn exponential(&mut self, id: u32) -> f64 {
        -libm::log(self.uniform(id))
    }
}

/// The token with the least E/p, the lowest id among equals: distributed as `p`.
#[must_use]
pub fn draw(p: &Distribution, noise: &mut Noise) -> u32 {
    let (mut best, mut least) = (0, f64::INFINITY);
    for (id, p) in p {
        let u = noise.uniform(id);
        // Almost every token is out of the running by this alone, without its logarithm.
        if (1.0 - u) * SURELY >= least * p {
            continue;
        }
        let ratio = -libm::log(u) / p;
        if ratio < least {
            (best, least) = (id, ratio);
        }
    }
    best
}

/// The orchestrator's half: how many drafted tokens are what the target emits, in front of the first that is not.
#[must_use]
pub fn accepted_len(drafted: &[u32], emitted: &[u32]) -> usize {
    drafted.iter().zip(emitted).take_while(|(drafted, emitted)| drafted == emitted).count()
}

#[cfg(test)]
mod tests;
