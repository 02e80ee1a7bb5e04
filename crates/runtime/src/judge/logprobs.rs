//! Log-probabilities of what a verdict or a run may emit. Rows are read once more for them: they are the exception,
//! and the judgement need not know of them.

use foretoken_acceptance::{LogitsError, Sampling};
use foretoken_engine::conversation::{PositionLogprobs, Verdict};

use super::{Asked, Judge};
use crate::decoder::{Decoder, Row};

impl Judge {
    /// Those of `tokens` at one row, with `top` alternatives.
    pub(crate) fn logprobs<D: Decoder>(
        &mut self,
        decoder: &D,
        row: usize,
        sampling: &Sampling,
        tokens: &[u32],
        top: usize,
    ) -> Result<PositionLogprobs, LogitsError> {
        self.read(decoder, row, sampling)?;
        let Row::Host(logits) = decoder.row(row);
        let processed = self.logprobs.of(&self.p, tokens, top);
        Ok(PositionLogprobs { processed, raw: self.logprobs.of_logits(logits, tokens, top)? })
    }

    /// Those of each judged position's drafted token and repair, and of the bonus behind the block.
    pub(crate) fn add_logprobs<D: Decoder>(
        &mut self,
        decoder: &D,
        asked: Asked<'_>,
        verdict: &mut Verdict,
        top: usize,
    ) -> Result<(), LogitsError> {
        let Asked { first_row, sampling, block, .. } = asked;
        for (index, (&drafted, &repair)) in block.tokens.iter().zip(&verdict.repairs).enumerate() {
            let tokens = [drafted, repair];
            verdict.logprobs.push(self.logprobs(decoder, first_row + index, sampling, &tokens, top)?);
        }
        if let Some(bonus) = verdict.bonus {
            let row = first_row + block.tokens.len();
            verdict.logprobs.push(self.logprobs(decoder, row, sampling, &[bonus], top)?);
        }
        Ok(())
    }
}
