//! Models with a clock: what a token depends on starts anew at every multiple of [`PERIOD`], so that one answer behind
//! a prompt of whole periods holds independent sequences, with bonus tokens and the borders of rounds inside them.

use foretoken_acceptance::{Distribution, Sampling};
use foretoken_testkit::table::{Table, TableModel, clocked_table};
use foretoken_tests::stats::{GTest, g_test};

/// Tokens of the vocabulary.
pub(crate) const V: usize = 4;
/// Tokens of a sequence.
pub(crate) const PERIOD: usize = 5;
/// All sequences there are.
const SEQUENCES: usize = V.pow(PERIOD as u32);
/// One whole period, so that the answer begins with one.
pub(crate) const PROMPT: [u32; PERIOD] = [0, 1, 2, 3, 0];

/// All settings of a suite together raise a false alarm with this probability.
pub(crate) const ALARM: f64 = 1e-4;
/// A wrong rule must fall below this.
pub(crate) const CERTAIN: f64 = 1e-9;

// Fixed before the first run and never picked again: a seed chosen for its result would prove nothing.
const TARGET: u64 = 2001;
const DRAFT: u64 = 2002;

/// The target: one weight of eight is 0, so that p excludes tokens by itself.
pub(crate) fn target() -> Table {
    clocked_table(TARGET, V, PERIOD, 1)
}

/// The draft model's table, zeros in other places.
pub(crate) fn draft() -> Table {
    clocked_table(DRAFT, V, PERIOD, 1)
}

/// The probability of every sequence, made of the very distributions that are served.
pub(crate) fn probabilities(table: &Table, sampling: &Sampling) -> Vec<f64> {
    let mut level = vec![(PROMPT.to_vec(), 1.0)];
    for _ in 0..PERIOD {
        level = level.iter().flat_map(|(text, so_far)| extended(table, sampling, text, *so_far)).collect();
    }
    level.into_iter().map(|(_, probability)| probability).collect()
}

fn extended(table: &Table, sampling: &Sampling, text: &[u32], so_far: f64) -> Vec<(Vec<u32>, f64)> {
    let p = Distribution::from_logits(&TableModel::logits_of(&table(text)), sampling).unwrap();
    (0..V as u32).map(|token| ([text, &[token]].concat(), so_far * p.prob(token))).collect()
}

/// How often each sequence came.
#[derive(Debug, Clone)]
pub(crate) struct Counts(Vec<u64>);

impl Counts {
    pub(crate) fn new() -> Self {
        Self(vec![0; SEQUENCES])
    }

    /// Counts the whole sequences of an answer.
    pub(crate) fn add(&mut self, answer: &[u32]) {
        for sequence in answer.chunks_exact(PERIOD) {
            self.0[sequence.iter().fold(0, |index, &token| index * V + token as usize)] += 1;
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Sequences counted that cannot come.
    pub(crate) fn impossible(&self, probabilities: &[f64]) -> u64 {
        self.0
            .iter()
            .zip(probabilities)
            .filter(|&(_, &probability)| probability == 0.0)
            .map(|(count, _)| count)
            .sum()
    }

    /// Whether the counts come from `probabilities`. A sequence that cannot come decides it, wherever it is pooled.
    pub(crate) fn test(&self, probabilities: &[f64]) -> GTest {
        let cells: Vec<_> = self.0.iter().copied().zip(probabilities.iter().copied()).collect();
        let test = g_test(&cells);
        if self.impossible(probabilities) > 0 { GTest { p_value: 0.0, ..test } } else { test }
    }
}
