//! What the bridge and its trace must know of frames and replies, whichever conversation they belong to.

use foretoken_engine::conversation::{
    Ask, DraftFrame, DraftReply, FrameText, Refusal, RefusalKind, RunEnd, VerifyFrame, VerifyReply,
    WorkerTimes,
};
use foretoken_telemetry::names;

/// A message that asks for something.
pub trait WorkerFrame: Send {
    /// The text it speaks of.
    fn text(&self) -> &FrameText;

    /// Its kind, and the attribute and number that say how much is asked for.
    fn asks(&self) -> (&'static str, &'static str, usize);
}

/// A message that answers.
pub trait WorkerReply: Send {
    /// The answer to Open.
    fn opened(cached_len: usize) -> Self;

    /// A refusal as a reply.
    fn refused(refusal: Refusal) -> Self;

    /// The notice of a shutdown.
    fn draining() -> Self;

    /// What it says about the frame it answers, terminal or not; nothing if it answers none.
    fn account(&self) -> Option<Account<'_>>;

    /// The frame that it is the terminal reply to.
    fn terminates(&self) -> Option<u64> {
        let account = self.account()?;
        account.outcome.map(|_| account.seq)
    }

    /// The refusal of a frame that found a queue full.
    fn overloaded(seq: u64) -> Self
    where
        Self: Sized,
    {
        Self::refused(Refusal { seq, kind: RefusalKind::Overloaded { retry_after_ms: 20 } })
    }
}

/// What a reply says about its frame.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// The frame answered.
    pub seq: u64,
    /// What it cost, since the frame's last reply.
    pub times: Option<WorkerTimes>,
    /// Tokens that the reply brings: drafted, or decoded plainly.
    pub tokens: usize,
    /// What became of the frame, if the reply is terminal.
    pub outcome: Option<Outcome<'a>>,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// It was carried out, in this way.
    Done(&'static str),
    /// It was not, for a reason that belongs to the protocol's course.
    Refused(&'static str),
    /// It was not, and should not have been sent, or sent elsewhere: a machine-readable reason and a text.
    Failed(&'a str, &'a str),
}

impl WorkerFrame for VerifyFrame {
    fn text(&self) -> &FrameText {
        &self.text
    }

    fn asks(&self) -> (&'static str, &'static str, usize) {
        match &self.ask {
            Ask::Block(block) => ("block", names::DRAFTED, block.tokens.len()),
            Ask::Decode { grant } => ("decode", names::GRANT, *grant),
        }
    }
}

impl WorkerFrame for DraftFrame {
    fn text(&self) -> &FrameText {
        &self.text
    }

    fn asks(&self) -> (&'static str, &'static str, usize) {
        ("draft", names::DRAFT_LEN, self.draft_len)
    }
}

impl WorkerReply for VerifyReply {
    fn opened(cached_len: usize) -> Self {
        Self::Opened { cached_len }
    }

    fn refused(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }

    fn draining() -> Self {
        Self::Draining
    }

    fn account(&self) -> Option<Account<'_>> {
        let done = |outcome| Some(Outcome::Done(outcome));
        let (seq, times, tokens, outcome) = match self {
            Self::Verdict(verdict) => (verdict.seq, Some(verdict.times), 0, done("verdict")),
            Self::Token(token) => (token.seq, Some(token.times), 1, None),
            Self::Finished(finished) => (finished.seq, None, 0, done(run_end(finished.end))),
            Self::Refused(refusal) => return Some(account_of(refusal)),
            Self::Opened { .. } | Self::Draining => return None,
        };
        Some(Account { seq, times, tokens, outcome })
    }
}

impl WorkerReply for DraftReply {
    fn opened(cached_len: usize) -> Self {
        Self::Opened { cached_len }
    }

    fn refused(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }

    fn draining() -> Self {
        Self::Draining
    }

    fn account(&self) -> Option<Account<'_>> {
        match self {
            Self::Drafted(drafted) => Some(Account {
                seq: drafted.seq,
                times: Some(drafted.times),
                tokens: drafted.block.tokens.len(),
                outcome: Some(Outcome::Done("draft")),
            }),
            Self::Refused(refusal) => Some(account_of(refusal)),
            Self::Opened { .. } | Self::Draining => None,
        }
    }
}

fn account_of(refusal: &Refusal) -> Account<'_> {
    let outcome = match &refusal.kind {
        RefusalKind::Stale { .. } => Outcome::Refused("stale"),
        RefusalKind::NeedPrefix { .. } => Outcome::Refused("need_prefix"),
        RefusalKind::Overloaded { .. } => {
            Outcome::Failed("OVERLOADED", "a queue is full, or the time budget is over")
        }
        RefusalKind::Invalid { reason, message, .. } => Outcome::Failed(reason, message),
    };
    Account { seq: refusal.seq, times: None, tokens: 0, outcome: Some(outcome) }
}

fn run_end(end: RunEnd) -> &'static str {
    match end {
        RunEnd::Stop => "stop",
        RunEnd::Grant => "grant",
        RunEnd::Context => "context",
        RunEnd::Superseded => "superseded",
    }
}
