//! What may come next: the text's own repetition, else the table.

use std::sync::Arc;

use foretoken_acceptance::{Lattice, LatticeShape};

use super::look_up::{LookUp, NgramConfig};
use super::table::{NO_CONTEXT, Table, with_earlier};

/// Observations that the shorter context is worth beside a context's own (a Dirichlet prior; MacKay and Peto 1995).
const PRIOR: f64 = 1.0;

/// The probability of a token that came `count` of `total` times in a context, and `shorter` in the shorter context
/// where there is one.
pub(super) fn smoothed(count: f64, total: f64, shorter: f64, has_shorter: bool) -> f64 {
    let prior = if has_shorter { PRIOR } else { 0.0 };
    (count + prior * shorter) / (total + prior)
}

/// Guesses for one session.
#[derive(Debug, Clone)]
pub struct Guesser {
    look_up: LookUp,
    table: Option<Arc<Table>>,
    candidates: Candidates,
}

/// A guess, before anything is drawn.
#[derive(Debug, Clone, Copy)]
pub enum Guess<'a> {
    /// The text did so before: this token, one-hot.
    LookUp(u32),
    /// The table knows what usually follows.
    Table(&'a Candidates),
}

/// What a table holds likely at a position: tokens in ascending order with weights above 0; never none of them in a
/// [`Guess`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Candidates {
    weights: Vec<(u32, f64)>,
}

impl Guesser {
    /// Guesses by look-up, and by `table` where there is one.
    #[must_use]
    pub fn new(config: NgramConfig, table: Option<Arc<Table>>) -> Self {
        Self { look_up: LookUp::new(config), table, candidates: Candidates::default() }
    }

    /// Makes `text` the text: its first `agreed` tokens are as they were at the last call, what was behind them is
    /// gone.
    pub fn follow(&mut self, text: &[u32], agreed: usize) {
        self.look_up.truncate(agreed.min(text.len()));
        self.look_up.extend(text);
    }

    /// A guess of what follows `text`, the text followed; none where nothing is known.
    pub fn guess(&mut self, text: &[u32]) -> Option<Guess<'_>> {
        if let Some(token) = self.look_up.guess(text) {
            return Some(Guess::LookUp(token));
        }
        self.candidates.fill(self.table.as_deref()?, text);
        (!self.candidates.weights.is_empty()).then_some(Guess::Table(&self.candidates))
    }
}

impl Guess<'_> {
    /// The one token to guess where a guess is one token: at temperature 0, and for rules that need no q.
    #[must_use]
    pub fn argmax(&self) -> u32 {
        match self {
            Self::LookUp(token) => *token,
            Self::Table(candidates) => candidates.argmax(),
        }
    }

    /// What a token is to be drawn from at `temperature`, which is above 0.
    #[must_use]
    pub fn lattice(&self, temperature: f64, shape: LatticeShape) -> Lattice {
        match self {
            Self::LookUp(token) => Lattice::one_hot(*token),
            Self::Table(candidates) => candidates.lattice(temperature, shape),
        }
    }
}

impl Candidates {
    /// The tokens with their weights, in ascending order.
    #[must_use]
    pub fn weights(&self) -> &[(u32, f64)] {
        &self.weights
    }

    /// Backs off from the longest context: each one's counts are mixed with what the shorter one says.
    fn fill(&mut self, table: &Table, text: &[u32]) {
        self.weights.clear();
        let mut context = NO_CONTEXT;
        for &token in text.iter().rev().take(table.head().order as usize - 1) {
            context = with_earlier(context, token);
            let rows = table.continuations(context);
            let total: u32 = rows.clone().map(|(_, count)| count).sum();
            if total == 0 {
                continue;
            }
            let has_shorter = !self.weights.is_empty();
            let total = f64::from(total);
            self.weights
                .iter_mut()
                .for_each(|(_, weight)| *weight = smoothed(0.0, total, *weight, has_shorter));
            for (token, count) in rows.filter(|&(token, _)| token < table.head().vocab_size) {
                let more = smoothed(count.into(), total, 0.0, has_shorter);
                match self.weights.iter_mut().find(|(other, _)| *other == token) {
                    Some((_, weight)) => *weight += more,
                    None => self.weights.push((token, more)),
                }
            }
        }
        self.weights.sort_unstable_by_key(|&(token, _)| token);
    }

    fn heaviest(&self) -> (u32, f64) {
        // The first of the heaviest: ties go to the lowest id.
        self.weights
            .iter()
            .fold((0, 0.0), |best, &candidate| if candidate.1 > best.1 { candidate } else { best })
    }

    fn argmax(&self) -> u32 {
        self.heaviest().0
    }

    /// Weights as the target's own would change with the temperature: w^(1/T).
    fn lattice(&self, temperature: f64, shape: LatticeShape) -> Lattice {
        let (_, heaviest) = self.heaviest();
        let tempered =
            |&(token, weight): &(u32, f64)| (token, libm::pow(weight / heaviest, 1.0 / temperature));
        let mut lattice = Lattice::default();
        lattice.fill_weights(self.weights.iter().map(tempered).filter(|&(_, weight)| weight > 0.0), shape);
        lattice
    }
}

#[cfg(test)]
mod tests;
