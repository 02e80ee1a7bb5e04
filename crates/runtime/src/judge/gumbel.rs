//! Gumbel coupling over a session's rows: what the target emits, and what a draft guesses it will.

use foretoken_acceptance::{CoinKey, Distribution, LogitsError, Sampling, gumbel};
use foretoken_engine::conversation::Verdict;

use super::{Asked, Judge};
use crate::decoder::Decoder;

impl Judge {
    /// As [`verdict`](Judge::verdict), by Gumbel coupling: the tokens emitted, up to the first that is not the drafted.
    pub(super) fn gumbel_verdict<D: Decoder>(
        &mut self,
        decoder: &D,
        asked: Asked<'_>,
    ) -> Result<Verdict, LogitsError> {
        let Asked { first_row, sampling, keys, block, at } = asked;
        if sampling.is_greedy() {
            // No noise matters where p is all on one token, and a repair is that token: the token rule's verdict has
            // it. A device answers this without giving rows away.
            let Verdict { repairs, bonus, .. } = self.token_verdict(decoder, asked)?;
            return Ok(Verdict { repairs, bonus, ..Verdict::default() });
        }
        let noise = keys.noise();
        let gamma = block.tokens.len();
        let mut verdict = Verdict { repairs: Vec::with_capacity(gamma), ..Verdict::default() };
        for i in 0..=gamma {
            let emitted = self.coupled(decoder, first_row + i, sampling, &noise, (at.0 + i, at.1))?;
            match block.tokens.get(i) {
                Some(&drafted) => {
                    verdict.repairs.push(emitted);
                    if emitted != drafted {
                        break;
                    }
                }
                None => verdict.bonus = Some(emitted),
            }
        }
        Ok(verdict)
    }

    /// The token of a row of the target's that the noise at its position gives.
    pub(crate) fn coupled<D: Decoder>(
        &mut self,
        decoder: &D,
        row: usize,
        sampling: &Sampling,
        noise: &CoinKey,
        at: (usize, u64),
    ) -> Result<u32, LogitsError> {
        if sampling.is_greedy() {
            // The coin decides nothing.
            return self.plain(decoder, row, sampling, noise, at);
        }
        self.read(decoder, row, sampling)?;
        Ok(emitted(&self.p, noise, at))
    }
}

/// What the noise at a position gives of p: emitted where p is the target's, guessed where it is a draft's.
pub(super) fn emitted(p: &Distribution, noise: &CoinKey, at: (usize, u64)) -> u32 {
    gumbel::draw(p, &mut noise.noise(at.0 as u64))
}
