//! Mistakes found in the field, behind the same trait as the right rule.
//!
//! A suite that cannot tell these from the right rule proves nothing.

use foretoken_acceptance::{Distribution, Proposal, repair, threshold};

use crate::scripted::Rule;

/// The repair is drawn from p instead of the residual.
#[derive(Debug, Clone, Copy, Default)]
pub struct RepairFromTarget;

impl Rule for RepairFromTarget {
    fn threshold(&mut self, p: &Distribution, q: Proposal<'_>, token: u32) -> f64 {
        threshold(p, q, token)
    }

    fn repair(&mut self, p: &Distribution, _q: Proposal<'_>, _token: u32, coin: f64) -> u32 {
        p.draw(coin)
    }
}

/// Only q(x) is known: the residual subtracts q at the drafted token alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScalarResidual;

impl Rule for ScalarResidual {
    fn threshold(&mut self, p: &Distribution, q: Proposal<'_>, token: u32) -> f64 {
        threshold(p, q, token)
    }

    fn repair(&mut self, p: &Distribution, q: Proposal<'_>, token: u32, coin: f64) -> u32 {
        let ids = p.iter().map(|(id, _)| id as usize).chain([token as usize]);
        let mut weights = vec![0.0; ids.max().unwrap_or(0) + 1];
        p.iter().for_each(|(id, prob)| weights[id as usize] = prob);
        let at_token = &mut weights[token as usize];
        *at_token = (*at_token - q.prob(token)).max(0.0);
        let sum: f64 = weights.iter().sum();
        if sum <= 0.0 {
            return p.draw(coin);
        }
        weights.iter_mut().for_each(|weight| *weight /= sum);
        Distribution::from_probs(&weights).draw(coin)
    }
}

/// The ratio is upside down.
#[derive(Debug, Clone, Copy, Default)]
pub struct InvertedRatio;

impl Rule for InvertedRatio {
    fn threshold(&mut self, p: &Distribution, q: Proposal<'_>, token: u32) -> f64 {
        if p.prob(token) > 0.0 { (q.prob(token) / p.prob(token)).min(1.0) } else { 0.0 }
    }

    fn repair(&mut self, p: &Distribution, q: Proposal<'_>, _token: u32, coin: f64) -> u32 {
        repair(p, q, coin)
    }
}

/// q is taken for one-hot and the drafted token accepted only if it is p's likeliest.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptIfArgmax;

impl Rule for AcceptIfArgmax {
    fn threshold(&mut self, p: &Distribution, _q: Proposal<'_>, token: u32) -> f64 {
        if p.argmax() == token { 1.0 } else { 0.0 }
    }

    fn repair(&mut self, p: &Distribution, _q: Proposal<'_>, _token: u32, coin: f64) -> u32 {
        p.draw(coin)
    }
}

/// Everything is accepted.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptAll;

impl Rule for AcceptAll {
    fn threshold(&mut self, _p: &Distribution, _q: Proposal<'_>, _token: u32) -> f64 {
        1.0
    }

    fn repair(&mut self, p: &Distribution, q: Proposal<'_>, _token: u32, coin: f64) -> u32 {
        repair(p, q, coin)
    }
}
