//! Frames, replies, and what each end knows of the text.
//!
//! A frame states text, not cache operations. The orchestrator's end is [`CommittedText`] with one
//! [`WorkerView`] per worker; the worker's end is [`WorkerText`] with its [`ReplyMemory`].

mod committed;
mod frame;
mod hash;
mod logprobs;
mod memory;
mod reply;
mod worker;

pub use committed::{CommittedText, WorkerView};
pub use frame::{Ask, Block, DraftFrame, DraftOpen, FrameText, SessionOpen, VerifyFrame, VerifyOpen};
pub use hash::TextHash;
pub use logprobs::{PositionLogprobs, TokenLogprobs};
pub use memory::{Recall, ReplyMemory};
pub use reply::{
    DraftReply, Drafted, Refusal, RefusalKind, RunEnd, RunFinished, RunToken, Verdict, VerifyReply,
    WorkerTimes,
};
pub use worker::WorkerText;
