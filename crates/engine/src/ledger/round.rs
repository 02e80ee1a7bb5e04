//! One round as it is told to whoever watches.

use tokio::time::Instant;

use super::{Origin, Stages};

/// What a round was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundKind {
    /// The prompt was read, and the first token drawn.
    Prefill,
    /// A drafted block was judged in one pass.
    Block,
    /// The verifier decoded plainly, a pass for each token.
    Run,
}

impl RoundKind {
    /// Its name in traces and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Block => "block",
            Self::Run => "run",
        }
    }
}

/// A round that committed tokens. It owns the time from the commit before it to its own last one.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Number within the answer, from 0.
    pub index: u32,
    /// What it was.
    pub kind: RoundKind,
    /// The commit before it, or the beginning of the answer.
    pub began: Instant,
    /// Its last commit.
    pub ended: Instant,
    /// Where its time went.
    pub stages: Stages,
    /// Passes of the target that gave its tokens.
    pub passes: u32,
    /// γ: tokens asked of the drafter; 0 where none was asked.
    pub draft_len: u32,
    /// Tokens drafted.
    pub drafted: u32,
    /// Of these, the ones that stand.
    pub accepted: u32,
    /// Tokens committed.
    pub committed: u32,
    /// Where the last of them came from.
    pub closing: Origin,
    /// Positions whose acceptance could be foretold.
    pub judged: u32,
    /// What was foretold, summed over them.
    pub overlap_sum: f64,
    /// All rows of its last pass, of every session.
    pub batch_rows: u32,
    /// Sessions of its last pass.
    pub batch_sessions: u32,
}
