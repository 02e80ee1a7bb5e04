//! What may come next: what the table says, outweighed by what the text itself has done.
//!
//! The text's own continuations are counted as a cache (Kuhn and De Mori 1990) over the table's distribution: each
//! longer context, the table's first and then the text's, keeps most of its own counts and leaves the rest to what the
//! shorter one says.

use std::sync::Arc;

use foretoken_acceptance::{Lattice, LatticeShape};

use super::look_up::{LookUp, NgramConfig, Place};
use super::smoothing::{Smoothing, TABLE, text};
use super::table::{NO_CONTEXT, Table, with_earlier};

/// Guesses for one session.
#[derive(Debug, Clone)]
pub struct Guesser {
    look_up: LookUp,
    /// Tokens of the shortest match that is a repetition.
    min_match: usize,
    table: Option<Arc<Table>>,
    candidates: Candidates,
    /// Room for the places of one guess.
    places: Vec<Place>,
}

/// A guess, before anything is drawn.
#[derive(Debug, Clone, Copy)]
pub enum Guess<'a> {
    /// The text repeats itself: this token, one-hot.
    OneHot(u32),
    /// It does not, but something usually follows.
    Drawn(&'a Candidates),
}

/// What is held likely at a position: tokens in ascending order with weights above 0; never none of them in a
/// [`Guess`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Candidates {
    weights: Vec<(u32, f64)>,
}

impl Guesser {
    /// Guesses by look-up, and by `table` where there is one.
    #[must_use]
    pub fn new(config: NgramConfig, table: Option<Arc<Table>>) -> Self {
        Self {
            look_up: LookUp::new(config),
            min_match: config.min_match.max(1),
            table,
            candidates: Candidates::default(),
            places: Vec::new(),
        }
    }

    /// Makes `text` the text: its first `agreed` tokens are as they were at the last call, what was behind them is
    /// gone.
    pub fn follow(&mut self, text: &[u32], agreed: usize) {
        self.look_up.truncate(agreed.min(text.len()));
        self.look_up.extend(text);
    }

    /// A guess of what follows `text`, the text followed, among the tokens that are `allowed`; none where nothing is known.
    pub fn guess(&mut self, text: &[u32], allowed: impl Fn(u32) -> bool) -> Option<Guess<'_>> {
        self.candidates.weights.clear();
        if let Some(table) = &self.table {
            self.candidates.mix_table(table, text);
        }
        self.places.clear();
        self.places.extend(self.look_up.places(text));
        self.places.sort_unstable();
        let longest = self.places.iter().map(|place| place.len).max().unwrap_or(0);
        self.candidates.mix_text(&self.places, longest);
        // A token that cannot stand is left out before anything is drawn: it would waste the block behind it.
        self.candidates.weights.retain(|&(token, _)| allowed(token));
        // How to guess is settled by the text.
        if self.candidates.weights.is_empty() {
            None
        } else if longest >= self.min_match {
            Some(Guess::OneHot(self.candidates.argmax()))
        } else {
            self.table.is_some().then_some(Guess::Drawn(&self.candidates))
        }
    }
}

impl Guess<'_> {
    /// The one token to guess where a guess is one token: at temperature 0, and for rules that need no q.
    #[must_use]
    pub fn argmax(&self) -> u32 {
        match self {
            Self::OneHot(token) => *token,
            Self::Drawn(candidates) => candidates.argmax(),
        }
    }

    /// What a token is to be drawn from at `temperature`, which is above 0.
    #[must_use]
    pub fn lattice(&self, temperature: f64, shape: LatticeShape) -> Lattice {
        match self {
            Self::OneHot(token) => Lattice::one_hot(*token),
            Self::Drawn(candidates) => candidates.lattice(temperature, shape),
        }
    }
}

impl Candidates {
    /// The tokens with their weights, in ascending order.
    #[must_use]
    pub fn weights(&self) -> &[(u32, f64)] {
        &self.weights
    }

    /// What the table's contexts say, from the shortest to the longest.
    fn mix_table(&mut self, table: &Table, text: &[u32]) {
        let mut context = NO_CONTEXT;
        for &token in text.iter().rev().take(table.head().order as usize - 1) {
            context = with_earlier(context, token);
            let rows = table.continuations(context).map(|(token, count)| (token, f64::from(count)));
            let listed = |&(token, _): &(u32, f64)| token < table.head().vocab_size;
            let left_out = rows.clone().filter(|row| !listed(row)).map(|(_, count)| count).sum();
            self.mix(TABLE, rows.filter(listed), left_out);
        }
    }

    /// What the text's own contexts say, from one token to the longest that stood before. `places` are sorted.
    fn mix_text(&mut self, places: &[Place], longest: usize) {
        for len in 1..=longest {
            let counts = places.chunk_by(|a, b| a.token == b.token).map(|of_token| {
                let count = of_token.iter().filter(|place| place.len >= len).count();
                (of_token[0].token, count as f64)
            });
            self.mix(text(len), counts, 0.0);
        }
    }

    /// Mixes in the `counts` of a context, which has `left_out` more of other tokens.
    fn mix(&mut self, smoothing: Smoothing, counts: impl Iterator<Item = (u32, f64)> + Clone, left_out: f64) {
        let counts = counts.filter(|&(_, count)| count > 0.0);
        let Some(level) = smoothing.level(counts.clone().map(|(_, count)| count), left_out) else { return };
        self.weights.iter_mut().for_each(|(_, weight)| *weight = level.prob(0.0, *weight));
        self.weights.extend(counts.map(|(token, count)| (token, level.prob(count, 0.0))));
        self.weights.sort_unstable_by_key(|&(token, _)| token);
        self.weights.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            kept.1 += if same { later.1 } else { 0.0 };
            same
        });
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
