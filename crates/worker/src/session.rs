//! What answers a worker's frames.

use std::future::Future;

use foretoken_engine::conversation::{
    DraftFrame, DraftOpen, DraftReply, VerifyFrame, VerifyOpen, VerifyReply,
};
use foretoken_runtime::{DraftSession, Event, Origin, QueueFull, VerifySession};

use crate::message::{WorkerFrame, WorkerReply};

/// An open session, as the bridge drives it.
pub trait WorkerSession: Send + 'static {
    /// What opened it.
    type Open;
    /// What it is asked.
    type Frame: WorkerFrame;
    /// What it answers.
    type Reply: WorkerReply;

    /// Positions still cached from an earlier stream.
    fn cached_len(&self) -> usize;

    /// Takes a frame; with an origin its passes are told too, where there are any.
    ///
    /// # Errors
    /// If a queue is full.
    fn send(&mut self, frame: Self::Frame, origin: Option<Origin>) -> Result<(), QueueFull>;

    /// The next reply, or the session's end. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Event<Self::Reply>> + Send;

    /// Ends the session at once.
    fn close(self);
}

macro_rules! runtime_session {
    ($session:ty, $open:ty, $frame:ty, $reply:ty) => {
        impl WorkerSession for $session {
            type Open = $open;
            type Frame = $frame;
            type Reply = $reply;

            fn cached_len(&self) -> usize {
                <$session>::cached_len(self)
            }

            fn send(&mut self, frame: $frame, origin: Option<Origin>) -> Result<(), QueueFull> {
                match origin {
                    Some(origin) => self.send_traced(frame, origin),
                    None => <$session>::send(self, frame),
                }
            }

            fn next(&mut self) -> impl Future<Output = Event<$reply>> + Send {
                <$session>::next(self)
            }

            fn close(self) {
                <$session>::close(self);
            }
        }
    };
}

runtime_session!(VerifySession, VerifyOpen, VerifyFrame, VerifyReply);
runtime_session!(DraftSession, DraftOpen, DraftFrame, DraftReply);
