//! q as integers: n_x of N shares for each of the K likeliest tokens. The draft makes this *before* drawing and draws
//! an integer below N, so drafter and verifier hold identical numbers and the rule is exact for them, at about
//! 120 bytes a token on the wire.

use crate::distribution::Distribution;
use crate::scratch::Scratch;
use crate::select::{self, Scored};

/// The most shares a lattice may have: beyond, it would cost more on the wire and gain nothing.
const MAX_N: u32 = 1 << 20;

/// How coarse a lattice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatticeShape {
    /// At most this many tokens.
    pub k: u32,
    /// Into this many shares.
    pub n: u32,
}

/// A lattice's shape out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lattice has k {k} and n {n}; they must satisfy 1 <= k <= n <= {MAX_N}")]
pub struct ShapeError {
    /// The refused number of tokens.
    pub k: u32,
    /// The refused number of shares.
    pub n: u32,
}

impl LatticeShape {
    /// Checks 1 ≤ k ≤ n ≤ 2^20.
    ///
    /// # Errors
    ///
    /// A shape outside.
    pub fn new(k: u32, n: u32) -> Result<Self, ShapeError> {
        if k >= 1 && k <= n && n <= MAX_N { Ok(Self { k, n }) } else { Err(ShapeError { k, n }) }
    }
}

impl Default for LatticeShape {
    fn default() -> Self {
        Self { k: 32, n: 4096 }
    }
}

/// A received lattice that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LatticeError {
    /// No tokens.
    #[error("the lattice has no tokens; it must have at least one")]
    Empty,
    /// One count per id is needed.
    #[error("the lattice has {ids} ids and {counts} counts; there must be one count for each id")]
    Lengths {
        /// How many ids.
        ids: usize,
        /// How many counts.
        counts: usize,
    },
    /// Ids must be strictly ascending.
    #[error("the lattice has id {id} behind id {before}; ids must be strictly ascending")]
    Order {
        /// The id in front.
        before: u32,
        /// The id that should be higher.
        id: u32,
    },
    /// An id outside the vocabulary.
    #[error("the lattice has id {id}; ids must be below the vocabulary's size, {vocabulary}")]
    Vocabulary {
        /// The id.
        id: u32,
        /// The vocabulary's size.
        vocabulary: usize,
    },
    /// Tokens without a share are left out.
    #[error("the lattice has count 0 for id {id}; counts must be above 0")]
    ZeroCount {
        /// The id.
        id: u32,
    },
    /// Too many shares.
    #[error("the lattice's counts sum to {sum}; the sum must be at most {MAX_N}")]
    Sum {
        /// The sum of the counts.
        sum: u64,
    },
}

/// A distribution whose probabilities are multiples of 1/N. The default is all on token 0, with N = 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Lattice {
    /// Strictly ascending.
    ids: Vec<u32>,
    /// Above 0, one for each id.
    counts: Vec<u32>,
    /// The sum of the counts.
    n: u32,
    best: Scratch<Scored>,
    remainders: Scratch<Scored>,
}

impl Default for Lattice {
    fn default() -> Self {
        Self { ids: vec![0], counts: vec![1], n: 1, best: Scratch::default(), remainders: Scratch::default() }
    }
}

impl Lattice {
    /// All on `token`, with N = 1: how a one-hot proposal is told among others.
    #[must_use]
    pub fn one_hot(token: u32) -> Self {
        Self { ids: vec![token], ..Self::default() }
    }

    /// Makes this the nearest lattice to `p`: its K likeliest tokens (ties: the lowest ids), renormalised, rounded by
    /// largest remainder (ties: the lowest ids); tokens that end without a share are dropped. No allocation once warm.
    ///
    /// A `shape` that [`LatticeShape::new`] would refuse is brought into range.
    pub fn fill(&mut self, p: &Distribution, shape: LatticeShape) {
        self.fill_weights(p.iter(), shape);
    }

    /// The same of weights instead of probabilities: tokens in ascending order, each with a weight that is finite and
    /// above 0, in any proportion to what is meant. Without any it becomes the default.
    pub fn fill_weights(&mut self, weights: impl Iterator<Item = (u32, f64)>, shape: LatticeShape) {
        let n = shape.n.clamp(1, MAX_N);
        let k = shape.k.clamp(1, n);
        let best = &mut self.best.0;
        select::best(weights, k as usize, best);
        if best.is_empty() {
            *self = Self::default();
            return;
        }
        best.sort_unstable_by_key(|s| s.id);
        let shares_of_one = f64::from(n) / best.iter().map(|s| s.score).sum::<f64>();

        self.ids.clear();
        self.counts.clear();
        let remainders = &mut self.remainders.0;
        remainders.clear();
        let mut left = n;
        for (index, scored) in (0u32..).zip(best.iter()) {
            let shares = scored.score * shares_of_one;
            // The shares sum to n up to a rounding far below 1, so their floors, being integers, cannot exceed it.
            let whole = (shares.floor() as u32).min(left);
            left -= whole;
            self.ids.push(scored.id);
            self.counts.push(whole);
            remainders.push(Scored { score: shares - f64::from(whole), id: index });
        }
        // `id` is the index here, which ascends with the ids, so that ties rank the same.
        remainders.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
        // Fewer shares are left than there are tokens, for the same reason; the cycle only makes that no assumption.
        for scored in remainders.iter().cycle().take(left as usize) {
            self.counts[scored.id as usize] += 1;
        }
        self.n = n;
        self.drop_zeros();
    }

    /// Checks a lattice that was received. Its N is the sum of the counts.
    ///
    /// # Errors
    ///
    /// What [`LatticeError`] lists, the first found.
    pub fn from_parts(ids: Vec<u32>, counts: Vec<u32>, vocab_size: usize) -> Result<Self, LatticeError> {
        if ids.len() != counts.len() {
            return Err(LatticeError::Lengths { ids: ids.len(), counts: counts.len() });
        }
        let Some(&last) = ids.last() else { return Err(LatticeError::Empty) };
        for pair in ids.windows(2) {
            if let &[before, id] = pair
                && before >= id
            {
                return Err(LatticeError::Order { before, id });
            }
        }
        if last as usize >= vocab_size {
            return Err(LatticeError::Vocabulary { id: last, vocabulary: vocab_size });
        }
        if let Some((&id, _)) = ids.iter().zip(&counts).find(|&(_, &count)| count == 0) {
            return Err(LatticeError::ZeroCount { id });
        }
        let sum = counts.iter().map(|&count| u64::from(count)).sum();
        let n = u32::try_from(sum).ok().filter(|&n| n <= MAX_N).ok_or(LatticeError::Sum { sum })?;
        Ok(Self { ids, counts, n, best: Scratch::default(), remainders: Scratch::default() })
    }

    /// The tokens that have a share, strictly ascending.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The shares of [`ids`](Self::ids), each above 0.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// The sum of all shares.
    #[must_use]
    pub fn n(&self) -> u32 {
        self.n
    }

    /// The token that owns share (word · N) >> 64, shares being laid out in order of ids. For a uniform `word` each
    /// share comes with probability 1/N to within 2^-64.
    #[must_use]
    pub fn draw(&self, word: u64) -> u32 {
        let share = (u128::from(word) * u128::from(self.n)) >> 64;
        self.owner(share as u32)
    }

    /// The token that owns `share`, which is below N.
    fn owner(&self, share: u32) -> u32 {
        let mut end = 0;
        for (&id, &count) in self.ids.iter().zip(&self.counts) {
            end += count;
            if share < end {
                return id;
            }
        }
        debug_assert!(false, "share {share} of {}", self.n);
        self.ids.last().copied().unwrap_or(0)
    }

    /// The probability of `token`; 0 outside.
    #[must_use]
    pub fn prob(&self, token: u32) -> f64 {
        self.ids
            .binary_search(&token)
            .ok()
            .and_then(|i| self.counts.get(i))
            .map_or(0.0, |&count| self.share(count))
    }

    /// The tokens with their probabilities, in ascending order of ids.
    #[must_use]
    pub fn iter(&self) -> LatticeIter<'_> {
        LatticeIter { lattice: self, next: 0 }
    }

    fn share(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.n)
    }

    fn drop_zeros(&mut self) {
        let mut kept = 0;
        for i in 0..self.ids.len() {
            if self.counts[i] > 0 {
                self.ids[kept] = self.ids[i];
                self.counts[kept] = self.counts[i];
                kept += 1;
            }
        }
        self.ids.truncate(kept);
        self.counts.truncate(kept);
    }
}

impl<'a> IntoIterator for &'a Lattice {
    type Item = (u32, f64);
    type IntoIter = LatticeIter<'a>;

    fn into_iter(self) -> LatticeIter<'a> {
        self.iter()
    }
}

/// The tokens of a [`Lattice`] with their probabilities, in ascending order of ids.
#[derive(Clone, Debug)]
pub struct LatticeIter<'a> {
    lattice: &'a Lattice,
    next: usize,
}

impl Iterator for LatticeIter<'_> {
    type Item = (u32, f64);

    fn next(&mut self) -> Option<(u32, f64)> {
        let id = *self.lattice.ids.get(self.next)?;
        let count = *self.lattice.counts.get(self.next)?;
        self.next += 1;
        Some((id, self.lattice.share(count)))
    }
}

#[cfg(test)]
mod tests;
