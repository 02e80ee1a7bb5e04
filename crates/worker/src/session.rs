//! What answers a worker's frames.

use std::future::Future;

use foretoken_engine::conversation::{
    DraftFrame, DraftOpen, DraftReply, Refusal, RefusalKind, VerifyFrame, VerifyOpen, VerifyReply,
};
use foretoken_runtime::{DraftSession, Event, QueueFull, VerifySession};

/// An open session, as the bridge drives it.
pub trait WorkerSession: Send + 'static {
    /// What opened it.
    type Open;
    /// What it is asked.
    type Frame: Send;
    /// What it answers.
    type Reply: Send;

    /// Positions still cached from an earlier stream.
    fn cached_len(&self) -> usize;

    /// Takes a frame.
    ///
    /// # Errors
    /// If a queue is full.
    fn send(&mut self, frame: Self::Frame) -> Result<(), QueueFull>;

    /// The next reply, or the session's end. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Event<Self::Reply>> + Send;

    /// Ends the session at once.
    fn close(self);

    /// The number of a frame.
    fn seq(frame: &Self::Frame) -> u64;

    /// The frame that a reply is the terminal reply to.
    fn terminates(reply: &Self::Reply) -> Option<u64>;

    /// The answer to Open.
    fn opened(cached_len: usize) -> Self::Reply;

    /// A refusal as a reply.
    fn refused(refusal: Refusal) -> Self::Reply;

    /// The notice of a shutdown.
    fn draining() -> Self::Reply;

    /// The refusal of a frame that found a queue full.
    fn overloaded(seq: u64) -> Self::Reply {
        Self::refused(Refusal { seq, kind: RefusalKind::Overloaded { retry_after_ms: 20 } })
    }
}

macro_rules! runtime_session {
    ($session:ty, $open:ty, $frame:ty, $reply:ident) => {
        impl WorkerSession for $session {
            type Open = $open;
            type Frame = $frame;
            type Reply = $reply;

            fn cached_len(&self) -> usize {
                <$session>::cached_len(self)
            }

            fn send(&mut self, frame: $frame) -> Result<(), QueueFull> {
                <$session>::send(self, frame)
            }

            fn next(&mut self) -> impl Future<Output = Event<$reply>> + Send {
                <$session>::next(self)
            }

            fn close(self) {
                <$session>::close(self);
            }

            fn seq(frame: &$frame) -> u64 {
                frame.text.seq
            }

            fn terminates(reply: &$reply) -> Option<u64> {
                reply.terminates()
            }

            fn opened(cached_len: usize) -> $reply {
                $reply::Opened { cached_len }
            }

            fn refused(refusal: Refusal) -> $reply {
                $reply::Refused(refusal)
            }

            fn draining() -> $reply {
                $reply::Draining
            }
        }
    };
}

runtime_session!(VerifySession, VerifyOpen, VerifyFrame, VerifyReply);
runtime_session!(DraftSession, DraftOpen, DraftFrame, DraftReply);
