//! What the orchestrator says to workers. The wire form is `proto/foretoken/v1`.

use foretoken_acceptance::{Adjustments, CoinKey, Lattice, Rule, Sampling, VerifierKeys};

use super::TextHash;

/// Opens a session, or takes it over from an older stream.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOpen {
    /// Unique per request, chosen by the orchestrator.
    pub session_id: String,
    /// The prompt's ids; at least one.
    pub prompt: Vec<u32>,
    /// Positions the session may come to hold, prompt included.
    pub reserve_len: usize,
    /// What makes p (and the drafter's q) from logits.
    pub sampling: Sampling,
    /// What comes before it: bias, penalties and masks.
    pub adjustments: Adjustments,
    /// What decides about drafted tokens.
    pub rule: Rule,
    /// The model expected; empty accepts any.
    pub model_fingerprint: String,
    /// The tokenizer the ids belong to; empty accepts any.
    pub tokenizer_fingerprint: String,
}

/// Opens a session at a verifier.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifyOpen {
    /// What both kinds of worker are told.
    pub session: SessionOpen,
    /// The coins the verifier owns.
    pub keys: VerifierKeys,
    /// Ids that end a decode run.
    pub stop_ids: Vec<u32>,
    /// Alternatives wanted with every token's log-probabilities; none of these at all if absent.
    pub logprobs: Option<usize>,
}

/// Opens a session at a draft worker.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftOpen {
    /// What both kinds of worker are told.
    pub session: SessionOpen,
    /// The coins the drafter owns; under Gumbel coupling the noise.
    pub key: CoinKey,
}

impl DraftOpen {
    /// The same for a drafter that is not trusted to draw from the q it sends: under the rules that take a q it drafts
    /// greedily, every token its own one-hot proposal, and is given no coins. Under Gumbel coupling nothing need be
    /// believed.
    #[must_use]
    pub fn untrusted(mut self) -> Self {
        if self.session.rule != Rule::Gumbel {
            self.session.sampling = Sampling::GREEDY;
            // It draws nothing, and a key made of a seed that can be guessed would tell the accept coins.
            self.key = CoinKey::from_bytes([0; 32]);
        }
        self
    }
}

/// The text a frame speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameText {
    /// Number of the frame in its session.
    pub seq: u64,
    /// Counts what voids uncommitted text.
    pub epoch: u64,
    /// Committed tokens, prompt included.
    pub committed_len: usize,
    /// The last committed tokens, ending at `committed_len`.
    pub tail: Vec<u32>,
    /// Position of the first token asked for.
    pub start: usize,
    /// Hash of everything before `start`.
    pub start_hash: TextHash,
    /// The round's span id when the trace is sampled.
    pub span_id: Option<[u8; 8]>,
    /// Milliseconds the orchestrator will wait; 0 states no limit.
    pub budget_ms: u32,
}

/// A frame to a verifier.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifyFrame {
    /// The text it speaks of.
    pub text: FrameText,
    /// What is wanted there.
    pub ask: Ask,
}

/// What a verifier is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Judge drafted tokens.
    Block(Block),
    /// Decode plainly until the text is `grant` tokens long.
    Decode {
        /// Text length the run may reach.
        grant: usize,
    },
}

/// Drafted tokens and what they were drawn from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Block {
    /// The tokens at `start`, `start + 1`, …
    pub tokens: Vec<u32>,
    /// One per token, or `None` if every token is its own one-hot proposal.
    pub q: Option<Vec<Lattice>>,
}

impl Block {
    /// Checks that nothing is claimed of how the tokens were drawn.
    ///
    /// # Errors
    /// Says that proposals came.
    pub fn check_one_hot(&self) -> Result<(), String> {
        match &self.q {
            None => Ok(()),
            Some(q) => Err(format!("{} proposals came where none are taken; send tokens alone", q.len())),
        }
    }

    /// Checks what both the orchestrator (of a drafter) and the verifier (of a frame) must not trust.
    ///
    /// # Errors
    /// Says which position is malformed and how: an id outside the vocabulary, as many proposals as
    /// tokens, or a token outside the support of the proposal it claims to be drawn from.
    pub fn check(&self, vocab_size: usize) -> Result<(), String> {
        if let Some(token) = self.tokens.iter().find(|&&token| token as usize >= vocab_size) {
            return Err(format!("drafted token {token} is outside the vocabulary of {vocab_size}"));
        }
        let Some(q) = &self.q else { return Ok(()) };
        if q.len() != self.tokens.len() {
            return Err(format!(
                "{} tokens came with {} proposals; one per token or none",
                self.tokens.len(),
                q.len()
            ));
        }
        for (position, (lattice, &token)) in q.iter().zip(&self.tokens).enumerate() {
            if lattice.ids().last().is_some_and(|&id| id as usize >= vocab_size) {
                return Err(format!(
                    "the proposal at position {position} names ids outside the vocabulary of {vocab_size}"
                ));
            }
            if lattice.prob(token) <= 0.0 {
                return Err(format!("token {token} at position {position} has no mass in its own proposal"));
            }
        }
        Ok(())
    }
}

/// A frame to a draft worker.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftFrame {
    /// The text it speaks of.
    pub text: FrameText,
    /// Tokens to draft; 0 only tells the text.
    pub draft_len: usize,
    /// The draft stops in front of a position where its likeliest token is less likely than this, before any token is
    /// drawn there; 0 never stops it.
    pub min_confidence: f64,
}
