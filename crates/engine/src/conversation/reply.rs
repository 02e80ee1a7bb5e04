//! What workers say to the orchestrator. Every frame gets exactly one terminal reply.

use std::borrow::Cow;

use super::{Block, PositionLogprobs};

/// A verifier's message.
#[derive(Debug, Clone, PartialEq)]
pub enum VerifyReply {
    /// The session is open; so many positions were still cached.
    Opened {
        /// Positions still cached.
        cached_len: usize,
    },
    /// Terminal: a block was judged.
    Verdict(Verdict),
    /// A plainly decoded token; the run's terminal reply follows.
    Token(RunToken),
    /// Terminal: a decode run is over.
    Finished(RunFinished),
    /// Terminal: the frame was not carried out.
    Refused(Refusal),
    /// The worker is shutting down.
    Draining,
}

impl VerifyReply {
    /// What it says it cost; nothing where it says nothing.
    #[must_use]
    pub fn times(&self) -> WorkerTimes {
        match self {
            Self::Verdict(verdict) => verdict.times,
            Self::Token(token) => token.times,
            Self::Finished(_) | Self::Refused(_) | Self::Opened { .. } | Self::Draining => {
                WorkerTimes::default()
            }
        }
    }
}

/// A draft worker's message.
#[derive(Debug, Clone, PartialEq)]
pub enum DraftReply {
    /// The session is open; so many positions were still cached.
    Opened {
        /// Positions still cached.
        cached_len: usize,
    },
    /// Terminal: a block was drafted.
    Drafted(Drafted),
    /// Terminal: the frame was not carried out.
    Refused(Refusal),
    /// The worker is shutting down.
    Draining,
}

/// The verifier's half of the session's rule over a block of γ tokens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    /// The frame answered.
    pub seq: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Token rule: min(1, p/q) per position; block rule: h. γ of them, or fewer behind a 0 that nothing passes. None
    /// under Gumbel coupling.
    pub thresholds: Vec<f64>,
    /// A repair ready at each of these positions. Under Gumbel coupling what the target emits at each position, up to
    /// the first that is not the drafted token.
    pub repairs: Vec<u32>,
    /// The token behind the whole block; absent where the verdict is shorter than the block, and under Gumbel coupling
    /// where it ends with another token than the drafted.
    pub bonus: Option<u32>,
    /// β = Σ min(p, q) per position. None under Gumbel coupling.
    pub overlaps: Vec<f64>,
    /// Block rule: P per position, the probability that it and all in front of it stand.
    pub reach: Vec<f64>,
    /// What it cost.
    pub times: WorkerTimes,
    /// Where asked for: per position those of the drafted token and the repair, behind them those of the bonus.
    pub logprobs: Vec<PositionLogprobs>,
}

/// One plainly decoded token.
#[derive(Debug, Clone, PartialEq)]
pub struct RunToken {
    /// The frame answered.
    pub seq: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Where the token stands.
    pub position: usize,
    /// The token.
    pub token: u32,
    /// What it cost.
    pub times: WorkerTimes,
    /// Those of the token, where asked for.
    pub logprobs: Option<PositionLogprobs>,
}

/// The end of a decode run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFinished {
    /// The frame answered.
    pub seq: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Why it ended.
    pub end: RunEnd,
    /// Text length behind it.
    pub len: usize,
}

/// Why a decode run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// A stop id was sampled.
    Stop,
    /// The grant is used up.
    Grant,
    /// The session's reserved positions are full.
    Context,
    /// A newer frame took over.
    Superseded,
}

/// A drafted block.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Drafted {
    /// The frame answered.
    pub seq: u64,
    /// Its epoch.
    pub epoch: u64,
    /// The tokens and their proposals.
    pub block: Block,
    /// What it cost.
    pub times: WorkerTimes,
}

/// A frame that was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The frame answered.
    pub seq: u64,
    /// Why.
    pub kind: RefusalKind,
}

/// Why a frame was not carried out. None of these ends the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalKind {
    /// Its epoch is older than the newest seen.
    Stale {
        /// The newest epoch seen.
        epoch: u64,
    },
    /// The text before `start` cannot be rebuilt.
    NeedPrefix {
        /// Tokens the worker can vouch for.
        have_len: usize,
    },
    /// A queue is full.
    Overloaded {
        /// When to ask again.
        retry_after_ms: u32,
    },
    /// The frame contradicts itself, the session or a limit.
    Invalid {
        /// Machine-readable.
        reason: Cow<'static, str>,
        /// The field at fault.
        field: Cow<'static, str>,
        /// Field, value, limit and what to do.
        message: String,
    },
}

/// A worker's own account of a frame, microseconds on its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerTimes {
    /// From the frame's arrival to the reply.
    pub server_us: u64,
    /// Waiting for the model's thread, before the first pass and between passes.
    pub queue_us: u64,
    /// Waiting, with the pass over, for the other sessions that shared it.
    pub batch_wait_us: u64,
    /// In passes.
    pub model_us: u64,
    /// In distributions, thresholds and draws.
    pub sampling_us: u64,
    /// Passes taken part in.
    pub passes: u32,
    /// This session's rows in the last pass.
    pub rows: u32,
    /// All rows of that pass.
    pub batch_rows: u32,
    /// All sessions of that pass.
    pub batch_sessions: u32,
    /// The session's share of the worker's time since its last reply that told one, by rows, passes without a reply
    /// included.
    pub charged_us: u64,
}

impl WorkerTimes {
    /// Adds the account of a later reply: times add up, of passes the later one's rows are kept.
    pub fn add(&mut self, later: &Self) {
        self.server_us = self.server_us.saturating_add(later.server_us);
        self.queue_us = self.queue_us.saturating_add(later.queue_us);
        self.batch_wait_us = self.batch_wait_us.saturating_add(later.batch_wait_us);
        self.model_us = self.model_us.saturating_add(later.model_us);
        self.sampling_us = self.sampling_us.saturating_add(later.sampling_us);
        self.passes = self.passes.saturating_add(later.passes);
        self.charged_us = self.charged_us.saturating_add(later.charged_us);
        if later.passes > 0 {
            self.rows = later.rows;
            self.batch_rows = later.batch_rows;
            self.batch_sessions = later.batch_sessions;
        }
    }
}
