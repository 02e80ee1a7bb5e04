//! A probability distribution over the vocabulary, as it stands after all sampling parameters, and drawing from it.
//! How logits become one is in [`softmax`].

mod softmax;

use std::slice;

use crate::params::Sampling;
use crate::scratch::Scratch;
use crate::select::Scored;

pub use softmax::LogitsError;

/// Probabilities of tokens: dense where every token may come, sparse where a truncation left few.
///
/// A value is a reusable buffer: [`fill`](Self::fill) allocates nothing once it has seen a vocabulary of that size
/// and a truncation of that width. The default is all on token 0.
#[derive(Clone, Debug)]
pub struct Distribution {
    layout: Layout,
    /// The support in ascending order if sparse; unused if dense.
    ids: Vec<u32>,
    /// The probabilities of `ids` if sparse, of tokens 0, 1, 2, … if dense.
    probs: Vec<f64>,
    best: Scratch<Scored>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Dense,
    Sparse,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { layout: Layout::Sparse, ids: vec![0], probs: vec![1.0], best: Scratch::default() }
    }
}

impl Distribution {
    /// Takes finished probabilities, token by token. They must be finite, not negative and sum to 1 up to rounding;
    /// zeros are outside the support.
    #[must_use]
    pub fn from_probs(probs: &[f64]) -> Self {
        debug_assert!(
            probs.iter().all(|&p| (0.0..=1.0 + 1e-9).contains(&p)),
            "a probability is out of range"
        );
        debug_assert!((probs.iter().sum::<f64>() - 1.0).abs() < 1e-6, "probabilities do not sum to 1");
        Self { layout: Layout::Dense, ids: Vec::new(), probs: probs.to_vec(), best: Scratch::default() }
    }

    /// A new distribution, [filled](Self::fill).
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    pub fn from_logits(logits: &[f32], sampling: &Sampling) -> Result<Self, LogitsError> {
        let mut distribution = Self::default();
        distribution.fill(logits, sampling)?;
        Ok(distribution)
    }

    /// Makes this p of `logits`: temperature, then top-k, then top-p (of what top-k left, renormalised), then min-p.
    ///
    /// Likelier means the higher logit; equal logits rank by id, the lowest first. A logit of −∞ is a masked token.
    ///
    /// # Errors
    ///
    /// A logit that is NaN or +∞, no logits, or all of them masked. The distribution is then as it was.
    pub fn fill(&mut self, logits: &[f32], sampling: &Sampling) -> Result<(), LogitsError> {
        softmax::fill(self, logits, sampling)
    }

    /// The probability of `token`; 0 outside the support and outside the vocabulary.
    #[must_use]
    pub fn prob(&self, token: u32) -> f64 {
        let index = match self.layout {
            Layout::Dense => Some(token as usize),
            Layout::Sparse => self.ids.binary_search(&token).ok(),
        };
        index.and_then(|i| self.probs.get(i)).copied().unwrap_or(0.0)
    }

    /// The support with its probabilities, in ascending order of ids.
    #[must_use]
    pub fn iter(&self) -> SupportIter<'_> {
        let ids = match self.layout {
            Layout::Dense => None,
            Layout::Sparse => Some(self.ids.iter()),
        };
        SupportIter { ids, probs: self.probs.iter(), next: 0 }
    }

    /// The likeliest token, the lowest id among equals.
    #[must_use]
    pub fn argmax(&self) -> u32 {
        let mut best = (0, 0.0);
        for (id, p) in self.iter() {
            if p > best.1 {
                best = (id, p);
            }
        }
        best.0
    }

    /// The probability of the likeliest token: how sure a draft is of its guess.
    #[must_use]
    pub fn confidence(&self) -> f64 {
        self.iter().map(|(_, p)| p).fold(0.0, f64::max)
    }

    /// The token in whose share of [0, 1), laid out in order of ids, `coin` falls. Never one of probability 0: where
    /// rounding leaves the sum short of `coin`, the last token of the support.
    #[must_use]
    pub fn draw(&self, coin: f64) -> u32 {
        draw_weighted(self.iter(), coin).unwrap_or(0)
    }

    /// How many tokens have a probability above 0.
    #[must_use]
    pub fn support_len(&self) -> usize {
        self.iter().count()
    }

    /// Puts everything on one token.
    fn set_one_hot(&mut self, token: u32) {
        self.layout = Layout::Sparse;
        self.ids.clear();
        self.ids.push(token);
        self.probs.clear();
        self.probs.push(1.0);
    }
}

/// The first of `weights` (all above 0) at which their running sum exceeds `level`, else the last of them.
pub(crate) fn draw_weighted(weights: impl Iterator<Item = (u32, f64)>, level: f64) -> Option<u32> {
    let mut sum = 0.0;
    let mut last = None;
    for (id, weight) in weights {
        sum += weight;
        last = Some(id);
        if level < sum {
            break;
        }
    }
    last
}

impl<'a> IntoIterator for &'a Distribution {
    type Item = (u32, f64);
    type IntoIter = SupportIter<'a>;

    fn into_iter(self) -> SupportIter<'a> {
        self.iter()
    }
}

/// The support of a [`Distribution`] in ascending order of ids.
#[derive(Clone, Debug)]
pub struct SupportIter<'a> {
    /// The ids if sparse; if dense, `next` counts them.
    ids: Option<slice::Iter<'a, u32>>,
    probs: slice::Iter<'a, f64>,
    next: u32,
}

impl Iterator for SupportIter<'_> {
    type Item = (u32, f64);

    fn next(&mut self) -> Option<(u32, f64)> {
        loop {
            let p = *self.probs.next()?;
            let id = match &mut self.ids {
                Some(ids) => *ids.next()?,
                None => {
                    let id = self.next;
                    self.next += 1;
                    id
                }
            };
            if p > 0.0 {
                return Some((id, p));
            }
        }
    }
}

#[cfg(test)]
mod tests;
