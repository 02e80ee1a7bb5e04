//! From logits to verdicts, plain tokens and drafts: where `acceptance` meets the decoder's rows.

use foretoken_acceptance::{
    CoinKey, Distribution, Lattice, LatticeShape, LogitsError, Proposal, Sampling, VerifierKeys, overlap,
    repair, threshold,
};
use foretoken_engine::conversation::{Block, Verdict};

use crate::decoder::{Decoder, Row};

/// Buffers for one row at a time, kept warm.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    p: Distribution,
}

impl Judge {
    fn read<D: Decoder>(&mut self, decoder: &D, row: usize, sampling: &Sampling) -> Result<(), LogitsError> {
        match decoder.row(row) {
            Row::Host(logits) => self.p.fill(logits, sampling),
        }
    }

    /// The verifier's half of the token rule: rows `first_row..` are those at the block's positions and
    /// one behind it. Fills all of the verdict but its frame and times.
    pub(crate) fn verdict<D: Decoder>(
        &mut self,
        decoder: &D,
        first_row: usize,
        sampling: &Sampling,
        keys: &VerifierKeys,
        block: &Block,
        at: (usize, u64),
    ) -> Result<Verdict, LogitsError> {
        let (start, epoch) = at;
        let gamma = block.tokens.len();
        let mut verdict = Verdict {
            thresholds: Vec::with_capacity(gamma),
            repairs: Vec::with_capacity(gamma),
            overlaps: Vec::with_capacity(gamma),
            ..Verdict::default()
        };
        let repair_coins = keys.repair();
        for (i, &token) in block.tokens.iter().enumerate() {
            self.read(decoder, first_row + i, sampling)?;
            let q = match &block.q {
                Some(q) => Proposal::Lattice(&q[i]),
                None => Proposal::OneHot(token),
            };
            let threshold = threshold(&self.p, q, token);
            verdict.thresholds.push(threshold);
            verdict.repairs.push(repair(&self.p, q, repair_coins.coin((start + i) as u64, epoch)));
            verdict.overlaps.push(overlap(&self.p, q));
            if threshold == 0.0 {
                // Nothing passes here, so nothing behind it can matter.
                return Ok(verdict);
            }
        }
        self.read(decoder, first_row + gamma, sampling)?;
        verdict.bonus = Some(self.p.draw(keys.bonus().coin((start + gamma) as u64, epoch)));
        Ok(verdict)
    }

    /// One plain token for `position`.
    pub(crate) fn plain<D: Decoder>(
        &mut self,
        decoder: &D,
        row: usize,
        sampling: &Sampling,
        coins: &CoinKey,
        at: (usize, u64),
    ) -> Result<u32, LogitsError> {
        self.read(decoder, row, sampling)?;
        Ok(self.p.draw(coins.coin(at.0 as u64, at.1)))
    }

    /// One drafted token for `position`, and the lattice it was drawn from; none if greedy.
    pub(crate) fn draft<D: Decoder>(
        &mut self,
        decoder: &D,
        row: usize,
        sampling: &Sampling,
        shape: LatticeShape,
        coins: &CoinKey,
        at: (usize, u64),
    ) -> Result<(u32, Option<Lattice>), LogitsError> {
        self.read(decoder, row, sampling)?;
        if sampling.is_greedy() {
            return Ok((self.p.argmax(), None));
        }
        let mut lattice = Lattice::default();
        lattice.fill(&self.p, shape);
        let token = lattice.draw(coins.word(at.0 as u64, at.1));
        Ok((token, Some(lattice)))
    }
}
