//! Coins: every random number of a request, computed from its keys instead of drawn from a stream, so that a round
//! asked again, on another worker too, has the same coins.
//!
//! # The formula
//!
//! One function: block(key, nonce, counter), the 64 bytes of the ChaCha20 block with a 64-bit nonce and a 64-bit
//! counter (Bernstein's layout), all integers little-endian.
//!
//! * root key = seed (8 bytes) ‖ sample index (4 bytes) ‖ "foretoken coins v1\0\0" (20 bytes);
//! * child(key, label) = the first 32 bytes of block(key, label, 0), a label being 8 ASCII bytes padded with zeros;
//! * accept key = child(root, "accept"), draft key = child(root, "draft"), verifier key = child(root, "verifier");
//! * repair, bonus, plain and noise keys = child(verifier key, "repair"), "bonus", "plain", "noise";
//! * word(key, position, epoch) = the first 8 bytes of block(key, position, epoch) as an integer;
//! * coin = (word >> 11) · 2^-53;
//! * noise of a token at a position: see [`gumbel`](crate::gumbel).
//!
//! A key either has children, or makes coins, or makes noise, and no two (position, epoch) share a block.
//!
//! # Who may know what
//!
//! Derivation is one-way: a draft worker is handed the draft key (under Gumbel coupling the noise key instead), a
//! verifier the verifier key, and neither can compute the accept coins from it, nor a draft worker the verifier's. That hides the keys, not a guessable seed: seeds are small numbers,
//! so whoever can try them all finds the one that fits. Seeds of requests served by workers that are not trusted must
//! be chosen at random from the full range.

use std::fmt;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::gumbel::Noise;

/// Fills the root key behind seed and sample index; names the formula's version.
const TAG: [u8; 20] = *b"foretoken coins v1\0\0";

/// 2^-53, so that 53 random bits become a number in [0, 1).
const UNIT: f64 = 1.0 / 9_007_199_254_740_992.0;

const VERIFIER: u64 = label(*b"verifier");

/// What a coin decides. Purposes never share a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Which token the draft proposes; owned by the draft worker.
    Draft,
    /// Whether a proposed token stands; owned by the orchestrator.
    Accept,
    /// What replaces a rejected token; owned by the verifier.
    Repair,
    /// What follows a block that stands whole; owned by the verifier.
    Bonus,
    /// Tokens of plain decoding; owned by the verifier.
    Plain,
    /// The noise of Gumbel coupling; owned by the verifier, shared with the draft worker under that rule.
    Noise,
}

impl Purpose {
    const fn label(self) -> u64 {
        label(match self {
            Self::Draft => *b"draft\0\0\0",
            Self::Accept => *b"accept\0\0",
            Self::Repair => *b"repair\0\0",
            Self::Bonus => *b"bonus\0\0\0",
            Self::Plain => *b"plain\0\0\0",
            Self::Noise => *b"noise\0\0\0",
        })
    }
}

const fn label(text: [u8; 8]) -> u64 {
    u64::from_le_bytes(text)
}

/// All coins of one purpose of one request.
#[derive(Clone, PartialEq, Eq)]
pub struct CoinKey([u8; 32]);

impl CoinKey {
    /// A key that was handed over.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key, to hand it to the worker that owns its coins and to nobody else.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// The coin for token number `position` of the text in `epoch`: 53 bits, uniform in [0, 1).
    #[must_use]
    pub fn coin(&self, position: u64, epoch: u64) -> f64 {
        (self.word(position, epoch) >> 11) as f64 * UNIT
    }

    /// The same as 64 uniform bits, for [`Lattice::draw`](crate::Lattice::draw). It is the coin's own randomness:
    /// use one or the other for a purpose, not both.
    #[must_use]
    pub fn word(&self, position: u64, epoch: u64) -> u64 {
        block(&self.0, position, epoch).next_u64()
    }

    /// The noise of token number `position` of the text, which does not depend on the epoch. Only of a
    /// [noise key](VerifierKeys::noise), which makes no coins.
    #[must_use]
    pub fn noise(&self, position: u64) -> Noise {
        Noise::new(block(&self.0, position, 0))
    }
}

impl fmt::Debug for CoinKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CoinKey(hidden)")
    }
}

/// The keys of one sample of one request. Only the orchestrator has them.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestKeys {
    accept: CoinKey,
    draft: CoinKey,
    verifier: VerifierKeys,
}

impl RequestKeys {
    /// Derives all keys of sample number `sample_index` of a request with this seed.
    #[must_use]
    pub fn new(seed: u64, sample_index: u32) -> Self {
        let mut root = [0; 32];
        root[..8].copy_from_slice(&seed.to_le_bytes());
        root[8..12].copy_from_slice(&sample_index.to_le_bytes());
        root[12..].copy_from_slice(&TAG);
        Self {
            accept: CoinKey(child(&root, Purpose::Accept.label())),
            draft: CoinKey(child(&root, Purpose::Draft.label())),
            verifier: VerifierKeys::from_bytes(child(&root, VERIFIER)),
        }
    }

    /// The accept coins, which stay with the orchestrator.
    #[must_use]
    pub fn accept(&self) -> CoinKey {
        self.accept.clone()
    }

    /// The draft coins, for the draft worker.
    #[must_use]
    pub fn draft(&self) -> CoinKey {
        self.draft.clone()
    }

    /// What a verifier may know.
    #[must_use]
    pub fn verifier(&self) -> VerifierKeys {
        self.verifier.clone()
    }

    /// The coins of any purpose.
    #[must_use]
    pub fn purpose(&self, purpose: Purpose) -> CoinKey {
        match purpose {
            Purpose::Draft => self.draft(),
            Purpose::Accept => self.accept(),
            Purpose::Repair => self.verifier.repair(),
            Purpose::Bonus => self.verifier.bonus(),
            Purpose::Plain => self.verifier.plain(),
            Purpose::Noise => self.verifier.noise(),
        }
    }
}

impl fmt::Debug for RequestKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestKeys(hidden)")
    }
}

/// The part of a request's keys that its verifier needs: repair, bonus and plain coins, and the noise. Neither the seed nor the
/// accept and draft keys can be computed from it.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifierKeys {
    key: [u8; 32],
    repair: CoinKey,
    bonus: CoinKey,
    plain: CoinKey,
    noise: CoinKey,
}

impl VerifierKeys {
    /// The keys behind a verifier key that was handed over.
    #[must_use]
    pub fn from_bytes(key: [u8; 32]) -> Self {
        let derive = |purpose: Purpose| CoinKey(child(&key, purpose.label()));
        Self {
            key,
            repair: derive(Purpose::Repair),
            bonus: derive(Purpose::Bonus),
            plain: derive(Purpose::Plain),
            noise: derive(Purpose::Noise),
        }
    }

    /// The verifier key, to hand it to the verifier.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        self.key
    }

    /// The coins of tokens that replace rejected ones.
    #[must_use]
    pub fn repair(&self) -> CoinKey {
        self.repair.clone()
    }

    /// The coins of tokens that follow whole blocks.
    #[must_use]
    pub fn bonus(&self) -> CoinKey {
        self.bonus.clone()
    }

    /// The coins of plain decoding.
    #[must_use]
    pub fn plain(&self) -> CoinKey {
        self.plain.clone()
    }

    /// The noise that couples draft and target; under Gumbel coupling the draft worker is handed it too.
    #[must_use]
    pub fn noise(&self) -> CoinKey {
        self.noise.clone()
    }
}

impl fmt::Debug for VerifierKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifierKeys(hidden)")
    }
}

/// A generator that stands at the start of one ChaCha20 block.
fn block(key: &[u8; 32], nonce: u64, counter: u64) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::from_seed(*key);
    rng.set_stream(nonce);
    // Positions count 32-bit words, 16 to a block.
    rng.set_word_pos(u128::from(counter) * 16);
    rng
}

/// A key of which `key` cannot be found again.
fn child(key: &[u8; 32], label: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    block(key, label, 0).fill_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
