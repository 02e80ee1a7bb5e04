//! The 4-token models: a distribution for every text, from the stored tables.

use std::collections::HashMap;
use std::sync::OnceLock;

use foretoken_acceptance::{Distribution, Lattice, LatticeShape, Proposal, Sampling};

/// Tokens of the vocabulary.
pub(crate) const V: u32 = 4;

/// A model of language: what may follow a text.
pub(crate) type Model = Box<dyn Fn(&[u32]) -> Distribution>;

/// Weights by model and text.
type Tables = HashMap<(String, Vec<u32>), [f64; V as usize]>;

/// The stored weights of what follows `text` in the model `name`. The tables know texts of up to 4 tokens; up and uq,
/// the models of the Monte Carlo programs, of up to 3.
pub(crate) fn weights(name: &str, text: &[u32]) -> [f64; V as usize] {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    let tables = TABLES.get_or_init(|| {
        let lines = include_str!("../data/tables.txt").lines().filter(|line| !line.starts_with('#'));
        lines.map(parse).collect()
    });
    tables[&(name.to_owned(), text.to_vec())]
}

fn parse(line: &str) -> ((String, Vec<u32>), [f64; V as usize]) {
    let mut fields = line.split(' ');
    let name = fields.next().unwrap().to_owned();
    let text = fields.next().unwrap().chars().filter_map(|c| c.to_digit(10)).collect();
    let weights: Vec<f64> = fields.map(|field| field.parse().unwrap()).collect();
    ((name, text), weights.try_into().unwrap())
}

/// `weights` as a dense distribution.
pub(crate) fn normalised(weights: &[f64]) -> Distribution {
    let sum: f64 = weights.iter().sum();
    Distribution::from_probs(&weights.iter().map(|w| w / sum).collect::<Vec<_>>())
}

/// The probabilities of all tokens.
pub(crate) fn probs(p: &Distribution) -> [f64; V as usize] {
    std::array::from_fn(|id| p.prob(id as u32))
}

/// The table as it is: p0, q0, p1, q1, and pz0, pz1 with zeros.
pub(crate) fn table(name: &str, seed: u32) -> Model {
    let name = format!("{name}{seed}");
    Box::new(move |text| normalised(&weights(&name, text)))
}

/// The table's weights as logits, sampled with `sampling`: the way a real model's row goes, sparse where truncated.
pub(crate) fn sampled(name: &str, seed: u32, sampling: Sampling) -> Model {
    let name = format!("{name}{seed}");
    Box::new(move |text| {
        let logits = weights(&name, text).map(|w| w.ln() as f32);
        Distribution::from_logits(&logits, &sampling).unwrap()
    })
}

/// A target under a penalty: p depends on how often the text so far, drafted tokens included, holds each token.
pub(crate) fn penalised(name: &str, seed: u32) -> Model {
    let name = format!("{name}{seed}");
    Box::new(move |text| {
        let last = &text[text.len().saturating_sub(1)..];
        let mut weights = weights(&name, last);
        for (id, weight) in (0u32..).zip(&mut weights) {
            let count = text.iter().filter(|&&t| t == id).count() as f64;
            *weight /= (1.0 + count).powi(2);
        }
        normalised(&weights)
    })
}

/// q of one drafted token, owned.
#[derive(Debug)]
pub(crate) enum Claim {
    OneHot(u32),
    Lattice(Lattice),
    Full(Distribution),
}

impl Claim {
    pub(crate) fn proposal(&self) -> Proposal<'_> {
        match self {
            Self::OneHot(token) => Proposal::OneHot(*token),
            Self::Lattice(lattice) => Proposal::Lattice(lattice),
            Self::Full(distribution) => Proposal::Full(distribution),
        }
    }

    /// The probability of the likeliest token: the draft's confidence.
    pub(crate) fn confidence(&self) -> f64 {
        self.proposal().iter().map(|(_, q)| q).fold(0.0, f64::max)
    }

    /// How probable each token is to be drawn: of a lattice, by trying every integer below N.
    pub(crate) fn drawn(&self) -> Vec<(u32, f64)> {
        let Self::Lattice(lattice) = self else { return self.proposal().iter().collect() };
        let mut counts = [0.0; V as usize];
        for share in 0..lattice.n() {
            let word = (u128::from(share) << 64).div_ceil(u128::from(lattice.n())) as u64;
            counts[lattice.draw(word) as usize] += 1.0;
        }
        (0u32..).zip(counts).filter(|c| c.1 > 0.0).map(|(id, c)| (id, c / f64::from(lattice.n()))).collect()
    }
}

/// A draft: what the next token is drawn from, which is also what is told of it.
pub(crate) type Draft = Box<dyn Fn(&[u32]) -> Claim>;

pub(crate) fn full(q: Model) -> Draft {
    Box::new(move |text| Claim::Full(q(text)))
}

pub(crate) fn lattice(q: Model, k: u32, n: u32) -> Draft {
    let shape = LatticeShape::new(k, n).unwrap();
    Box::new(move |text| {
        let mut lattice = Lattice::default();
        lattice.fill(&q(text), shape);
        Claim::Lattice(lattice)
    })
}

pub(crate) fn greedy(q: Model) -> Draft {
    Box::new(move |text| Claim::OneHot(q(text).argmax()))
}

#[test]
fn the_tables_are_the_stored_ones() {
    assert_eq!(weights("p0", &[]), [2.0, 5.0, 10.0, 13.0]);
    assert_eq!(weights("p0", &[0]), [7.0, 8.0, 20.0, 5.0]);
}
