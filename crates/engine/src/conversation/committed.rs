//! The orchestrator's end: the committed text, and what each worker is known to hold of it.

use super::{FrameText, TextHash};

/// The text that is true. Grows only by commits; owned by the orchestrator alone.
#[derive(Debug, Clone)]
pub struct CommittedText {
    tokens: Vec<u32>,
    prompt_len: usize,
    hash: TextHash,
    epoch: u64,
}

impl CommittedText {
    /// A text that begins with `prompt`.
    #[must_use]
    pub fn new(prompt: Vec<u32>) -> Self {
        Self { prompt_len: prompt.len(), hash: TextHash::EMPTY.then_all(&prompt), tokens: prompt, epoch: 0 }
    }

    /// Tokens, prompt included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The prompt's length.
    #[must_use]
    pub fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    /// The committed tokens behind the prompt.
    #[must_use]
    pub fn output(&self) -> &[u32] {
        &self.tokens[self.prompt_len..]
    }

    /// The epoch in force.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Voids whatever workers hold beyond the committed text.
    pub fn raise_epoch(&mut self) {
        self.epoch += 1;
    }

    /// Commits one token.
    pub fn commit(&mut self, token: u32) {
        self.tokens.push(token);
        self.hash = self.hash.then(token);
    }

    /// The text part of the next frame to the worker seen through `view`.
    pub fn frame(&self, view: &mut WorkerView, budget_ms: u32, span_id: Option<[u8; 8]>) -> FrameText {
        view.seq += 1;
        let known = view.known.clamp(self.prompt_len, self.tokens.len());
        FrameText {
            seq: view.seq,
            epoch: self.epoch,
            committed_len: self.tokens.len(),
            tail: self.tokens[known..].to_vec(),
            start: self.tokens.len(),
            start_hash: self.hash,
            span_id,
            budget_ms,
        }
    }
}

/// What one worker's stream is known to hold.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerView {
    seq: u64,
    known: usize,
}

impl WorkerView {
    /// The worker holds the committed text up to `len`.
    pub fn knows(&mut self, len: usize) {
        self.known = self.known.max(len);
    }

    /// The worker holds no more than `len` tokens of it.
    pub fn lacks(&mut self, len: usize) {
        self.known = len;
    }

    /// Number of the last frame made.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }
}
