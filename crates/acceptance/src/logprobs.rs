//! ln p of tokens, for people to read: of p as it stands after all parameters, and of the model's own softmax.
//!
//! Nothing is decided by these numbers, so they are `f32` and come from the platform's logarithm.

use crate::Sampling;
use crate::distribution::{Distribution, LogitsError};
use crate::scratch::Scratch;
use crate::select::{self, Scored};

/// Alternatives that may be asked for.
pub const MAX_LOGPROBS: usize = 20;

/// ln p of one distribution: of the tokens asked for, and of the likeliest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logprobs {
    /// Of the tokens asked for, in their order; −∞ where p is 0.
    pub tokens: Vec<f32>,
    /// The likeliest with their ln p, likeliest first, ties to the lowest id; none of p = 0.
    pub top: Vec<(u32, f32)>,
}

/// Working memory for [`Logprobs`].
#[derive(Debug, Default)]
pub struct LogprobsBuffer {
    raw: Distribution,
    best: Scratch<Scored>,
}

impl LogprobsBuffer {
    /// ln of `p`.
    pub fn of(&mut self, p: &Distribution, tokens: &[u32], top: usize) -> Logprobs {
        logprobs(p, tokens, top, &mut self.best.0)
    }

    /// ln of the softmax of untouched `logits`.
    ///
    /// # Errors
    /// Logits that are no distribution.
    pub fn of_logits(&mut self, logits: &[f32], tokens: &[u32], top: usize) -> Result<Logprobs, LogitsError> {
        self.raw.fill(logits, &Sampling::PLAIN)?;
        Ok(logprobs(&self.raw, tokens, top, &mut self.best.0))
    }
}

fn logprobs(p: &Distribution, tokens: &[u32], top: usize, best: &mut Vec<Scored>) -> Logprobs {
    // f32 holds ln p down to the smallest p there is to a relative error of 6e-8.
    let ln = |p: f64| p.ln() as f32;
    select::best(p.iter(), top, best);
    Logprobs {
        tokens: tokens.iter().map(|&token| ln(p.prob(token))).collect(),
        top: best.iter().map(|scored| (scored.id, ln(scored.score))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_logprobs_are_those_of_the_softmax() {
        let logits = [1.0f32, -2.0, 3.5, 0.0, 3.5, f32::NEG_INFINITY];
        let total: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        let right = |id: usize| f64::from(logits[id]) - total.ln();
        let found = LogprobsBuffer::default().of_logits(&logits, &[0, 3, 5], 3).unwrap();
        assert!((f64::from(found.tokens[0]) - right(0)).abs() < 1e-6);
        assert!((f64::from(found.tokens[1]) - right(3)).abs() < 1e-6);
        assert_eq!(found.tokens[2], f32::NEG_INFINITY);
        assert_eq!(found.top.iter().map(|top| top.0).collect::<Vec<_>>(), [2, 4, 0]);
        assert!(found.top.iter().all(|&(id, lp)| (f64::from(lp) - right(id as usize)).abs() < 1e-6));
        assert!(LogprobsBuffer::default().of_logits(&[f32::NAN], &[0], 1).is_err());
    }

    #[test]
    fn processed_logprobs_are_those_of_what_is_drawn_from() {
        let mut buffer = LogprobsBuffer::default();
        let sampling = Sampling::new(0.5, 2, 1.0, 0.0).unwrap();
        let p = Distribution::from_logits(&[0.0, 1.0, 2.0], &sampling).unwrap();
        let found = buffer.of(&p, &[0, 1, 2], MAX_LOGPROBS);
        let share = 1.0 / (1.0 + (-2.0f64).exp());
        assert_eq!(found.tokens[0], f32::NEG_INFINITY);
        assert!((f64::from(found.tokens[2]) - share.ln()).abs() < 1e-7, "{found:?}");
        assert_eq!(found.top.iter().map(|top| top.0).collect::<Vec<_>>(), [2, 1]);
        let greedy = Distribution::from_logits(&[0.0, 1.0, 2.0], &Sampling::GREEDY).unwrap();
        assert_eq!(buffer.of(&greedy, &[2], 5), Logprobs { tokens: vec![0.0], top: vec![(2, 0.0)] });
        assert!(buffer.of(&greedy, &[2], 0).top.is_empty());
    }
}
