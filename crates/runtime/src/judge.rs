//! From logits to verdicts, plain tokens and drafts: where `acceptance` meets the decoder's rows.
//!
//! The token rule is here; the block rule and Gumbel coupling are beside.
//!
//! Rows of a session with a bias, penalties or masks are shaped on their way, and always read: a device that could
//! judge them knows nothing of these.

mod block;
mod gumbel;
mod logprobs;
mod shaped;

use foretoken_acceptance::{
    CoinKey, Distribution, Lattice, LatticeShape, LogitsError, LogprobsBuffer, Proposal, Rule, Sampling,
    VerifierKeys, overlap, repair, threshold,
};
use foretoken_engine::conversation::{Block, Verdict};

use crate::decoder::{Decoder, Row, RowAnswer, RowAsk};
use shaped::Shaped;

/// A block to be judged.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The row at the block's first position; the others follow, and one behind the block.
    pub(crate) first_row: usize,
    pub(crate) sampling: &'a Sampling,
    pub(crate) keys: &'a VerifierKeys,
    pub(crate) block: &'a Block,
    /// The block's first position, and the epoch.
    pub(crate) at: (usize, u64),
}

/// A token to be drafted.
#[derive(Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) row: usize,
    pub(crate) sampling: &'a Sampling,
    pub(crate) rule: Rule,
    pub(crate) shape: LatticeShape,
    pub(crate) key: &'a CoinKey,
    /// Its position, and the epoch.
    pub(crate) at: (usize, u64),
    /// Stop in front of it where the draft is less sure; 0 never stops.
    pub(crate) least: f64,
}

/// Buffers for one row at a time, kept warm.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    p: Distribution,
    /// Of the session whose rows are read, if it has any.
    shaped: Option<Shaped>,
    logprobs: LogprobsBuffer,
}

impl Judge {
    fn read<D: Decoder>(&mut self, decoder: &D, row: usize, sampling: &Sampling) -> Result<(), LogitsError> {
        match decoder.row(row) {
            Row::Host(logits) => match &mut self.shaped {
                Some(shaped) => self.p.fill(shaped.row(logits, row), sampling),
                None => self.p.fill(logits, sampling),
            },
        }
    }

    /// The decoder's own answers, where it has them and knows all that p depends on.
    fn on_device<D: Decoder>(
        &self,
        decoder: &D,
        sampling: &Sampling,
        asks: &[RowAsk<'_>],
    ) -> Option<Vec<RowAnswer>> {
        if self.shaped.is_some() { None } else { decoder.judge(sampling, asks) }
    }

    /// Answers for one row as the device would.
    fn answer<D: Decoder>(
        &mut self,
        decoder: &D,
        sampling: &Sampling,
        ask: &RowAsk<'_>,
    ) -> Result<RowAnswer, LogitsError> {
        self.read(decoder, ask.row, sampling)?;
        Ok(match ask.drafted {
            Some((token, q)) => RowAnswer {
                threshold: threshold(&self.p, q, token),
                overlap: overlap(&self.p, q),
                token: repair(&self.p, q, ask.coin),
            },
            None => RowAnswer { threshold: 0.0, overlap: 0.0, token: self.p.draw(ask.coin) },
        })
    }

    /// The verifier's half of a rule over a block. Fills all of the verdict but its frame and times.
    pub(crate) fn verdict<D: Decoder>(
        &mut self,
        decoder: &D,
        rule: Rule,
        asked: Asked<'_>,
    ) -> Result<Verdict, LogitsError> {
        match rule {
            Rule::Token => self.token_verdict(decoder, asked),
            Rule::Block => self.block_verdict(decoder, asked),
            Rule::Gumbel => self.gumbel_verdict(decoder, asked),
        }
    }

    /// By the token rule.
    fn token_verdict<D: Decoder>(&mut self, decoder: &D, asked: Asked<'_>) -> Result<Verdict, LogitsError> {
        let Asked { first_row, sampling, keys, block, at: (start, epoch) } = asked;
        let gamma = block.tokens.len();
        let mut verdict = Verdict {
            thresholds: Vec::with_capacity(gamma),
            repairs: Vec::with_capacity(gamma),
            overlaps: Vec::with_capacity(gamma),
            ..Verdict::default()
        };
        let (repairs, bonus) = (keys.repair(), keys.bonus());
        let asks: Vec<RowAsk<'_>> = (0..=gamma)
            .map(|i| {
                let drafted = (i < gamma).then(|| drafted(block, i));
                let coins = if drafted.is_some() { &repairs } else { &bonus };
                RowAsk { row: first_row + i, drafted, coin: coins.coin((start + i) as u64, epoch) }
            })
            .collect();
        let device = self.on_device(decoder, sampling, &asks).filter(|answers| answers.len() == asks.len());
        for (i, ask) in asks.iter().enumerate() {
            let judged = match &device {
                Some(answers) => answers[i],
                None => self.answer(decoder, sampling, ask)?,
            };
            if ask.drafted.is_none() {
                verdict.bonus = Some(judged.token);
                break;
            }
            verdict.thresholds.push(judged.threshold);
            verdict.repairs.push(judged.token);
            verdict.overlaps.push(judged.overlap);
            if judged.threshold == 0.0 {
                // Nothing passes here, so nothing behind it can matter.
                break;
            }
        }
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
        let ask = RowAsk { row, drafted: None, coin: coins.coin(at.0 as u64, at.1) };
        match self.on_device(decoder, sampling, &[ask]).as_deref() {
            Some([judged]) => Ok(judged.token),
            _ => self.answer(decoder, sampling, &ask).map(|judged| judged.token),
        }
    }

    /// One drafted token, and the lattice it was drawn from; no lattice if greedy or coupled. None where the draft stops
    /// in front of the position: its likeliest token is less likely than `least`, which is looked at before any token is
    /// drawn. Greedy q is all on one token, so there it is the model's own distribution, at temperature 1, that is asked.
    pub(crate) fn draft<D: Decoder>(
        &mut self,
        decoder: &D,
        draft: Draft<'_>,
    ) -> Result<Option<(u32, Option<Lattice>)>, LogitsError> {
        let Draft { row, sampling, rule, shape, key, at, least } = draft;
        if sampling.is_greedy() {
            if least > 0.0 {
                self.read(decoder, row, &Sampling::PLAIN)?;
                if self.p.confidence() < least {
                    return Ok(None);
                }
            }
            return Ok(Some((self.plain(decoder, row, sampling, key, at)?, None)));
        }
        self.read(decoder, row, sampling)?;
        if least > 0.0 && self.p.confidence() < least {
            return Ok(None);
        }
        Ok(Some(match rule {
            Rule::Token | Rule::Block => {
                let mut lattice = Lattice::default();
                lattice.fill(&self.p, shape);
                let token = lattice.draw(key.word(at.0 as u64, at.1));
                (token, Some(lattice))
            }
            Rule::Gumbel => (gumbel::emitted(&self.p, key, at), None),
        }))
    }
}

/// The block's token at `index` and what it was drawn from.
fn drafted(block: &Block, index: usize) -> (u32, Proposal<'_>) {
    let token = block.tokens[index];
    match &block.q {
        Some(q) => (token, Proposal::Lattice(&q[index])),
        None => (token, Proposal::OneHot(token)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::{DecoderError, ModelShape, SessionRows, Slot};
    use foretoken_acceptance::{AdjustmentParams, Adjustments, RequestKeys, Shaping};
    use std::cell::Cell;

    /// Fixed rows; some kinds of it answer for them, and count how often a row was read all the same.
    struct Rows {
        rows: Vec<Vec<f32>>,
        answers: fn(&Rows, &Sampling, &[RowAsk<'_>]) -> Option<Vec<RowAnswer>>,
        read: Cell<usize>,
    }

    impl Decoder for Rows {
        fn shape(&self) -> &ModelShape {
            unreachable!("a judge asks for rows only")
        }
        fn allocate(&mut self, _capacity: usize) -> Result<Slot, DecoderError> {
            Ok(Slot(0))
        }
        fn len(&self, _slot: Slot) -> usize {
            0
        }
        fn truncate(&mut self, _slot: Slot, _len: usize) {}
        fn release(&mut self, _slot: Slot) {}
        fn forward(&mut self, _batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
            Ok(())
        }
        fn judge(&self, sampling: &Sampling, asks: &[RowAsk<'_>]) -> Option<Vec<RowAnswer>> {
            (self.answers)(self, sampling, asks)
        }
        fn row(&self, index: usize) -> Row<'_> {
            self.read.set(self.read.get() + 1);
            Row::Host(&self.rows[index])
        }
    }

    /// Answers as a device would, by the rules themselves.
    fn device(rows: &Rows, sampling: &Sampling, asks: &[RowAsk<'_>]) -> Option<Vec<RowAnswer>> {
        let host = Rows { rows: rows.rows.clone(), answers: |_, _, _| None, read: Cell::new(0) };
        let mut judge = Judge::default();
        asks.iter().map(|ask| judge.answer(&host, sampling, ask).ok()).collect()
    }

    fn draft<'a>(row: usize, sampling: &'a Sampling, key: &'a CoinKey, at: (usize, u64)) -> Draft<'a> {
        Draft { row, sampling, rule: Rule::Token, shape: LatticeShape::default(), key, at, least: 0.0 }
    }

    fn outcome(
        answers: fn(&Rows, &Sampling, &[RowAsk<'_>]) -> Option<Vec<RowAnswer>>,
        sampling: &Sampling,
        block: &Block,
    ) -> (Verdict, u32, u32, usize) {
        let rows = (0..5).map(|r| (0..8).map(|t| ((r * 5 + t * 3) % 7) as f32).collect()).collect();
        let rows = Rows { rows, answers, read: Cell::new(0) };
        let keys = RequestKeys::new(3, 0);
        let mut judge = Judge::default();
        let (keys, draft_key) = (keys.verifier(), keys.draft());
        let asked = Asked { first_row: 1, sampling, keys: &keys, block, at: (9, 2) };
        let verdict = judge.verdict(&rows, Rule::Token, asked).unwrap();
        let plain = judge.plain(&rows, 0, sampling, &keys.plain(), (9, 2)).unwrap();
        let (draft, _) = judge.draft(&rows, draft(0, sampling, &draft_key, (9, 2))).unwrap().unwrap();
        (verdict, plain, draft, rows.read.get())
    }

    #[test]
    fn a_device_that_answers_gives_the_same_verdicts_and_its_rows_are_not_read() {
        let sampled = Sampling::new(1.5, 0, 1.0, 0.0).unwrap();
        for sampling in [sampled, Sampling::GREEDY] {
            for tokens in [vec![1, 2, 3], vec![3, 0, 6], Vec::new()] {
                let block = Block { tokens, q: None };
                let host = outcome(|_, _, _| None, &sampling, &block);
                let device = outcome(device, &sampling, &block);
                assert_eq!((&device.0, device.1, device.2), (&host.0, host.1, host.2));
                // A sampled draft needs its lattice, which is made of the row.
                assert_eq!(device.3, usize::from(!sampling.is_greedy()));
            }
        }
    }

    #[test]
    fn adjusted_rows_are_read_and_no_device_is_asked() {
        let params = AdjustmentParams { forbidden_ids: vec![0, 6], ..AdjustmentParams::default() };
        let adjustments = Adjustments::new(params).unwrap();
        let keys = RequestKeys::new(3, 0);
        let device: fn(&Rows, &Sampling, &[RowAsk<'_>]) -> _ = |_, _, _| panic!("the device was asked");
        let rows = (0..5).map(|r| (0..8).map(|t| ((r * 5 + t * 3) % 7) as f32).collect()).collect();
        let rows = Rows { rows, answers: device, read: Cell::new(0) };
        let mut judge = Judge::default();
        for sampling in [Sampling::PLAIN, Sampling::GREEDY] {
            judge.shape(Shaping::new(&adjustments, &[1], 8, 64).map(Box::new), &[1; 9], 1, 9);
            let block = Block { tokens: vec![6, 2], q: None };
            let (keys, draft_key) = (keys.verifier(), keys.draft());
            let asked = Asked { first_row: 1, sampling: &sampling, keys: &keys, block: &block, at: (9, 2) };
            let verdict = judge.verdict(&rows, Rule::Token, asked).unwrap();
            assert_eq!((verdict.thresholds.as_slice(), verdict.bonus), ([0.0].as_slice(), None));
            for position in 9..200 {
                let at = (position, 2);
                let plain = judge.plain(&rows, 3, &sampling, &keys.plain(), at).unwrap();
                let (draft, _) = judge.draft(&rows, draft(3, &sampling, &draft_key, at)).unwrap().unwrap();
                assert!([plain, draft].iter().all(|token| ![0, 6].contains(token)), "{plain} {draft}");
            }
            assert!(judge.unshape().is_some());
        }
    }

    #[test]
    fn too_few_answers_are_none() {
        let block = Block { tokens: vec![1, 2, 3], q: None };
        let sampling = Sampling::new(1.5, 0, 1.0, 0.0).unwrap();
        let short = |rows: &Rows, sampling: &Sampling, asks: &[RowAsk<'_>]| {
            device(rows, sampling, asks).map(|mut answers| {
                answers.pop();
                answers
            })
        };
        let (host, short) = (outcome(|_, _, _| None, &sampling, &block), outcome(short, &sampling, &block));
        assert_eq!(host, short);
    }
}
