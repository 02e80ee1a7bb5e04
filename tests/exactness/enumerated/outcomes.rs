//! Texts with their probabilities, and how far two such lists are apart.

use std::collections::BTreeMap;

use crate::models::Model;

/// What may follow, with probabilities.
pub(crate) type Closing = Vec<(u32, f64)>;

/// Probability of each text.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(BTreeMap<Vec<u32>, f64>);

impl Outcomes {
    pub(crate) fn add(&mut self, text: Vec<u32>, weight: f64) {
        if weight > 0.0 {
            *self.0.entry(text).or_default() += weight;
        }
    }

    /// What the target alone says: every text of `length` tokens.
    pub(crate) fn target(p: &Model, length: usize) -> Self {
        let mut start = Self::default();
        start.add(Vec::new(), 1.0);
        start.finish(p, length)
    }

    /// Every text brought to `length` tokens: cut, or sampled on from the target.
    pub(crate) fn finish(self, p: &Model, length: usize) -> Self {
        let mut out = Self::default();
        let mut open: Vec<_> = self.0.into_iter().collect();
        while let Some((mut text, weight)) = open.pop() {
            if text.len() >= length {
                text.truncate(length);
                out.add(text, weight);
                continue;
            }
            for (token, pt) in &p(&text) {
                let longer = text.iter().copied().chain([token]).collect();
                open.push((longer, weight * pt));
            }
        }
        out
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Vec<u32>, f64)> {
        self.0.iter().map(|(text, &weight)| (text, weight))
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.values().sum()
    }

    pub(crate) fn total_variation(&self, other: &Self) -> f64 {
        let of = |outcomes: &Self, text| outcomes.0.get(text).copied().unwrap_or(0.0);
        let ours = self.0.iter().map(|(text, weight)| (weight - of(other, text)).abs());
        let missing =
            other.0.iter().filter(|(text, _)| !self.0.contains_key(*text)).map(|(_, weight)| weight.abs());
        ours.chain(missing).sum::<f64>() / 2.0
    }
}
