//! Log-probabilities on their way from the verifier, where p is, to the token that was emitted.

use foretoken_acceptance::Logprobs;

use super::{RunToken, Verdict};

/// Log-probabilities at one position: of the tokens that may come to stand there, and of the likeliest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PositionLogprobs {
    /// Of p, after all sampling parameters.
    pub processed: Logprobs,
    /// Of the softmax of the untouched logits.
    pub raw: Logprobs,
}

/// The log-probabilities of one emitted token.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenLogprobs {
    /// ln p after all sampling parameters.
    pub processed: f32,
    /// ln of the softmax of the untouched logits.
    pub raw: f32,
    /// The likeliest tokens of p.
    pub top: Vec<(u32, f32)>,
    /// The likeliest tokens of the softmax.
    pub raw_top: Vec<(u32, f32)>,
}

impl PositionLogprobs {
    /// Those of the `index`-th of the position's tokens.
    fn token(&self, index: usize) -> Option<TokenLogprobs> {
        Some(TokenLogprobs {
            processed: *self.processed.tokens.get(index)?,
            raw: *self.raw.tokens.get(index)?,
            top: self.processed.top.clone(),
            raw_top: self.raw.top.clone(),
        })
    }

    fn check(&self, tokens: usize, top: usize, vocab_size: usize) -> Result<(), String> {
        for Logprobs { tokens: told, top: likeliest } in [&self.processed, &self.raw] {
            if told.len() != tokens || likeliest.len() > top {
                return Err(format!(
                    "log-probabilities of {} tokens and {} alternatives came where {tokens} and {top} were asked for",
                    told.len(),
                    likeliest.len()
                ));
            }
            if let Some((id, _)) = likeliest.iter().find(|&&(id, _)| id as usize >= vocab_size) {
                return Err(format!("alternative {id} is outside the vocabulary of {vocab_size}"));
            }
            // A probability of 1 may be rounded up.
            let mut all = told.iter().chain(likeliest.iter().map(|(_, logprob)| logprob));
            if let Some(logprob) = all.find(|logprob| logprob.is_nan() || **logprob > 1e-3) {
                return Err(format!("{logprob} is not the logarithm of a probability"));
            }
        }
        Ok(())
    }
}

impl Verdict {
    /// Log-probabilities of the drafted token at `index`; none if not asked for.
    #[must_use]
    pub fn drafted_logprobs(&self, index: usize) -> Option<TokenLogprobs> {
        self.logprobs.get(index)?.token(0)
    }

    /// Log-probabilities of the repair at `index`, or of the bonus behind the block.
    #[must_use]
    pub fn closing_logprobs(&self, index: usize) -> Option<TokenLogprobs> {
        self.logprobs.get(index)?.token(usize::from(index < self.repairs.len()))
    }

    /// Checks that log-probabilities came as `asked`, with so many alternatives, or not at all.
    ///
    /// # Errors
    /// Says what is missing, too much or no logarithm of a probability.
    pub fn check_logprobs(&self, asked: Option<usize>, vocab_size: usize) -> Result<(), String> {
        let positions = self.repairs.len() + usize::from(self.bonus.is_some());
        let expected = asked.map_or(0, |_| positions);
        if self.logprobs.len() != expected {
            return Err(format!(
                "a verdict on {positions} positions has log-probabilities of {}; {expected} were asked for",
                self.logprobs.len()
            ));
        }
        self.logprobs.iter().enumerate().try_for_each(|(index, position)| {
            let tokens = if index < self.repairs.len() { 2 } else { 1 };
            position.check(tokens, asked.unwrap_or(0), vocab_size)
        })
    }
}

impl RunToken {
    /// Log-probabilities of the token; none if not asked for.
    #[must_use]
    pub fn token_logprobs(&self) -> Option<TokenLogprobs> {
        self.logprobs.as_ref()?.token(0)
    }

    /// Checks that log-probabilities came as `asked`, or not at all.
    ///
    /// # Errors
    /// Says what is missing, too much or no logarithm of a probability.
    pub fn check_logprobs(&self, asked: Option<usize>, vocab_size: usize) -> Result<(), String> {
        match (&self.logprobs, asked) {
            (Some(position), Some(top)) => position.check(1, top, vocab_size),
            (None, None) => Ok(()),
            (Some(_), None) => Err("a token came with log-probabilities that nobody asked for".into()),
            (None, Some(_)) => Err("a token came without the log-probabilities asked for".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(tokens: &[f32]) -> PositionLogprobs {
        let logprobs = |shift: f32| Logprobs {
            tokens: tokens.iter().map(|logprob| logprob - shift).collect(),
            top: vec![(3, -shift)],
        };
        PositionLogprobs { processed: logprobs(0.0), raw: logprobs(0.5) }
    }

    fn verdict() -> Verdict {
        Verdict {
            thresholds: vec![1.0, 0.5],
            repairs: vec![4, 5],
            bonus: Some(6),
            overlaps: vec![1.0, 0.5],
            logprobs: vec![position(&[-1.0, -2.0]), position(&[-3.0, f32::NEG_INFINITY]), position(&[-5.0])],
            ..Verdict::default()
        }
    }

    #[test]
    fn each_emitted_token_finds_its_own() {
        let verdict = verdict();
        assert_eq!(verdict.check_logprobs(Some(1), 7), Ok(()));
        let of = |found: Option<TokenLogprobs>| found.map(|found| (found.processed, found.raw));
        assert_eq!(of(verdict.drafted_logprobs(1)), Some((-3.0, -3.5)));
        assert_eq!(of(verdict.closing_logprobs(0)), Some((-2.0, -2.5)));
        assert_eq!(of(verdict.closing_logprobs(2)), Some((-5.0, -5.5)));
        assert_eq!(verdict.closing_logprobs(2).unwrap().raw_top, [(3, -0.5)]);
        assert_eq!(of(Verdict::default().drafted_logprobs(0)), None);
    }

    #[test]
    fn what_was_not_asked_for_or_is_wrong_is_told() {
        assert!(verdict().check_logprobs(None, 7).unwrap_err().contains("0 were asked for"));
        assert!(verdict().check_logprobs(Some(0), 7).unwrap_err().contains("1 alternatives"));
        assert!(verdict().check_logprobs(Some(1), 3).unwrap_err().contains("alternative 3"));
        assert!(Verdict::default().check_logprobs(None, 7).is_ok());
        for wrong in [f32::NAN, 1.0] {
            let mut verdict = verdict();
            verdict.logprobs[2].raw.tokens[0] = wrong;
            assert!(verdict.check_logprobs(Some(1), 7).unwrap_err().contains("not the logarithm"));
        }
        let mut short = verdict();
        short.logprobs[0].processed.tokens.pop();
        assert!(short.check_logprobs(Some(1), 7).unwrap_err().contains("of 1 tokens"));
        short.logprobs.clear();
        assert!(short.check_logprobs(Some(1), 7).is_err());
    }
}
