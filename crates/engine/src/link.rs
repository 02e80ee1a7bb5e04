//! A session's connection to one worker, as the round loop sees it.
//!
//! Implemented over gRPC by the orchestrator and by scripted doubles in the test kit.

use std::future::Future;
use std::sync::Arc;

use thiserror::Error;

use crate::conversation::{DraftFrame, DraftOpen, DraftReply, VerifyFrame, VerifyReply};
use crate::ledger::Steps;

/// Bytes moved, up = sent by the orchestrator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Encoded messages sent to the worker.
    pub up: u64,
    /// Encoded messages received from it.
    pub down: u64,
    /// What the connection carried up for the session: its own frames, and its part of what belongs to no session
    /// alone. 0 where there is no connection.
    pub wire_up: u64,
    /// The same, down.
    pub wire_down: u64,
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.up += other.up;
        self.down += other.down;
        self.wire_up += other.wire_up;
        self.wire_down += other.wire_down;
    }
}

/// The stream to a worker is gone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct LinkError {
    /// Machine-readable.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// An open session at a verifier. Dropping it closes the session.
pub trait Verifier: Send {
    /// Sends one frame.
    fn send(&mut self, frame: VerifyFrame) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// The next message. Cancel safe: a dropped future loses no message.
    fn receive(&mut self) -> impl Future<Output = Result<VerifyReply, LinkError>> + Send;

    /// What this verifier's passes take, as all its sessions learn it; of its own, unless told otherwise.
    fn steps(&self) -> Arc<Steps> {
        Arc::default()
    }

    /// Bytes moved so far. Asking may charge the session with what its connection has carried since.
    fn traffic(&self) -> Traffic;
}

/// An open session at a draft worker. Dropping it closes the session.
pub trait Drafter: Send {
    /// Name of the drafter, for people.
    fn name(&self) -> &str;

    /// Whether it is not trusted to draw from the q it sends, so that none is taken from it.
    fn must_be_one_hot(&self) -> bool {
        false
    }

    /// Sends one frame.
    fn send(&mut self, frame: DraftFrame) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// The next message. Cancel safe: a dropped future loses no message.
    fn receive(&mut self) -> impl Future<Output = Result<DraftReply, LinkError>> + Send;

    /// Bytes moved so far. Asking may charge the session with what its connection has carried since.
    fn traffic(&self) -> Traffic;
}

/// Where a request's drafters come from.
pub trait DrafterSource: Send {
    /// What it opens.
    type Drafter: Drafter + 'static;

    /// Opens a session at some draft worker that answers.
    ///
    /// # Errors
    /// Why there is none just now; the round loop decodes plainly and asks again later.
    fn open(
        &mut self,
        open: DraftOpen,
    ) -> impl Future<Output = Result<Self::Drafter, LinkError>> + Send + 'static;
}
