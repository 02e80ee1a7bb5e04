//! What a drafted token was drawn from, in whichever form it is known.

use crate::distribution::{Distribution, SupportIter};
use crate::lattice::{Lattice, LatticeIter};

/// q of one drafted token.
#[derive(Clone, Copy, Debug)]
pub enum Proposal<'a> {
    /// All on this token: a greedy or n-gram draft, or any token chosen by whatever means. Nothing need be sent, and
    /// nothing need be believed.
    OneHot(u32),
    /// Integer shares, as drafters send them.
    Lattice(&'a Lattice),
    /// The whole distribution, where draft and target share a machine.
    Full(&'a Distribution),
}

impl<'a> Proposal<'a> {
    /// q of `token`; 0 outside the support.
    #[must_use]
    pub fn prob(&self, token: u32) -> f64 {
        match *self {
            Self::OneHot(id) => f64::from(u8::from(id == token)),
            Self::Lattice(lattice) => lattice.prob(token),
            Self::Full(distribution) => distribution.prob(token),
        }
    }

    /// The support with its probabilities, in ascending order of ids.
    #[must_use]
    pub fn iter(&self) -> ProposalIter<'a> {
        ProposalIter(match *self {
            Self::OneHot(id) => Form::OneHot(Some(id)),
            Self::Lattice(lattice) => Form::Lattice(lattice.iter()),
            Self::Full(distribution) => Form::Full(distribution.iter()),
        })
    }
}

/// The support of a [`Proposal`] in ascending order of ids.
#[derive(Clone, Debug)]
pub struct ProposalIter<'a>(Form<'a>);

#[derive(Clone, Debug)]
enum Form<'a> {
    OneHot(Option<u32>),
    Lattice(LatticeIter<'a>),
    Full(SupportIter<'a>),
}

impl Iterator for ProposalIter<'_> {
    type Item = (u32, f64);

    fn next(&mut self) -> Option<(u32, f64)> {
        match &mut self.0 {
            Form::OneHot(id) => id.take().map(|id| (id, 1.0)),
            Form::Lattice(iter) => iter.next(),
            Form::Full(iter) => iter.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_tells_the_same_numbers() {
        let lattice = Lattice::from_parts(vec![1, 3], vec![1, 3], 5).unwrap();
        let full = Distribution::from_probs(&[0.0, 0.25, 0.0, 0.75]);
        for q in [Proposal::Lattice(&lattice), Proposal::Full(&full)] {
            assert_eq!(q.iter().collect::<Vec<_>>(), [(1, 0.25), (3, 0.75)]);
            assert_eq!([0, 1, 2, 3, 4].map(|id| q.prob(id)), [0.0, 0.25, 0.0, 0.75, 0.0]);
        }
        let q = Proposal::OneHot(7);
        assert_eq!(q.iter().collect::<Vec<_>>(), [(7, 1.0)]);
        assert_eq!((q.prob(7), q.prob(6)), (1.0, 0.0));
    }
}
