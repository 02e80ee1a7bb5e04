//! A session that drafts without weights.
//!
//! It follows the same conversation as a model's session, but needs no thread and no memory of replies:
//! the same text gives the same guess and the same coin, so a repeated frame gets the same answer by being
//! answered again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use foretoken_engine::conversation::{
    Block, DraftFrame, DraftOpen, DraftReply, Drafted, Refusal, RefusalKind, WorkerText, WorkerTimes,
};
use foretoken_engine::ngram::{Guess, Guesser, NgramConfig, Table};
use foretoken_engine::{Adjustments, CoinKey, LatticeShape, Rule, Sampling};
use foretoken_runtime::{Event, Limits, Origin, QueueFull};
use foretoken_worker::WorkerSession;
use tokio::sync::OwnedSemaphorePermit;

/// What drafts without weights.
#[derive(Debug, Clone, Default)]
pub struct Ngram {
    /// How far and how strictly to look in the text itself.
    pub config: NgramConfig,
    /// What usually follows what.
    pub table: Option<Arc<Table>>,
    /// Shape of proposals drawn from the table.
    pub lattice: LatticeShape,
    /// Limits told to peers and kept.
    pub limits: Limits,
}

impl Ngram {
    /// What it is called in descriptions and answers.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.table.is_some() { "ngram+table" } else { "ngram" }
    }

    /// The tokenizer that the table was counted with; empty without a table, which fits every tokenizer.
    #[must_use]
    pub fn tokenizer_fingerprint(&self) -> &str {
        self.table.as_ref().map_or("", |table| &table.head().tokenizer_fingerprint)
    }
}

/// One request's session.
#[derive(Debug)]
pub struct NgramSession {
    limits: Limits,
    lattice: LatticeShape,
    sampling: Sampling,
    /// What the request forbids is not guessed.
    adjustments: Adjustments,
    prompt_len: usize,
    rule: Rule,
    key: CoinKey,
    text: WorkerText,
    guesser: Guesser,
    reserve_len: usize,
    replies: VecDeque<DraftReply>,
    /// Held for as long as the session counts against the limit.
    _permit: OwnedSemaphorePermit,
}

impl NgramSession {
    /// A session over `open`'s prompt.
    #[must_use]
    pub fn new(ngram: &Ngram, open: &DraftOpen, permit: OwnedSemaphorePermit) -> Self {
        let text = WorkerText::new(&open.session.prompt);
        let mut guesser = Guesser::new(ngram.config, ngram.table.clone());
        guesser.follow(text.tokens(), 0);
        Self {
            limits: ngram.limits,
            lattice: ngram.lattice,
            sampling: open.session.sampling,
            adjustments: open.session.adjustments.clone(),
            prompt_len: open.session.prompt.len(),
            rule: open.session.rule,
            key: open.key.clone(),
            text,
            guesser,
            reserve_len: open.session.reserve_len,
            replies: VecDeque::with_capacity(ngram.limits.max_window),
            _permit: permit,
        }
    }

    fn draft(&mut self, frame: &DraftFrame) -> Result<Drafted, RefusalKind> {
        let began = Instant::now();
        let out_of_range = |field: &'static str, message| {
            Err(RefusalKind::Invalid { reason: "OUT_OF_RANGE".into(), field: field.into(), message })
        };
        if frame.draft_len > self.limits.max_draft_len {
            let message =
                format!("draft_len is {}; the limit is {}", frame.draft_len, self.limits.max_draft_len);
            return out_of_range("draft_len", message);
        }
        if frame.text.start > self.reserve_len {
            let message =
                format!("start is {}; the session reserved {} positions", frame.text.start, self.reserve_len);
            return out_of_range("text.start", message);
        }
        let agreed = self.text.agree(&frame.text)?;
        self.guesser.follow(self.text.tokens(), agreed);
        let room = self.reserve_len - frame.text.start;
        let block = self.block(frame.draft_len.min(room), frame.text.epoch);
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let times = WorkerTimes {
            server_us: micros,
            sampling_us: micros,
            charged_us: micros,
            ..WorkerTimes::default()
        };
        let (seq, epoch) = (frame.text.seq, frame.text.epoch);
        Ok(Drafted { seq, epoch, block, times })
    }

    /// Guesses up to `len` tokens, each one part of the text for the next. It ends where nothing is known.
    fn block(&mut self, len: usize, epoch: u64) -> Block {
        let mut tokens = Vec::with_capacity(len);
        let mut q = Vec::new();
        let mut drawn = false;
        while tokens.len() < len {
            // How it is guessed, and among which tokens, is settled by the text before the coin is looked at.
            let position = self.text.tokens().len();
            let allowed = |token| self.adjustments.allows(token, position.saturating_sub(self.prompt_len));
            let Some(guess) = self.guesser.guess(self.text.tokens(), allowed) else { break };
            // Under Gumbel coupling no q travels, and any guess is as exact as another.
            let token = if self.sampling.is_greedy() || self.rule == Rule::Gumbel {
                guess.argmax()
            } else {
                drawn |= matches!(guess, Guess::Drawn(_));
                let lattice = guess.lattice(self.sampling.temperature(), self.lattice);
                let token = lattice.draw(self.key.word(position as u64, epoch));
                q.push(lattice);
                token
            };
            tokens.push(token);
            self.text.push(token);
            self.guesser.follow(self.text.tokens(), position);
        }
        // Where all are one-hot nothing need be told.
        Block { tokens, q: drawn.then_some(q) }
    }
}

impl WorkerSession for NgramSession {
    type Open = DraftOpen;
    type Frame = DraftFrame;
    type Reply = DraftReply;

    fn cached_len(&self) -> usize {
        0
    }

    /// There are no passes to tell of.
    fn send(&mut self, frame: DraftFrame, _origin: Option<Origin>) -> Result<(), QueueFull> {
        if self.replies.len() >= self.limits.max_window {
            return Err(QueueFull);
        }
        let reply = match self.draft(&frame) {
            Ok(drafted) => DraftReply::Drafted(drafted),
            Err(kind) => DraftReply::Refused(Refusal { seq: frame.text.seq, kind }),
        };
        self.replies.push_back(reply);
        Ok(())
    }

    async fn next(&mut self) -> Event<DraftReply> {
        match self.replies.pop_front() {
            Some(reply) => Event::Reply(reply),
            None => std::future::pending().await,
        }
    }

    fn close(self) {}
}
