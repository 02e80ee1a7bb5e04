//! The callers' side: a runtime, and the sessions opened at it.
//!
//! Nothing here blocks: a full queue refuses at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use foretoken_engine::conversation::{
    DraftFrame, DraftOpen, DraftReply, VerifyFrame, VerifyOpen, VerifyReply,
};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::config::{Limits, RuntimeConfig, StartError};
use crate::decoder::{Decoder, ModelShape};
use crate::session::Role;
use crate::stats::{Stats, StatsSnapshot};
use crate::thread::ModelThread;
use crate::traced::{Arrival, Origin, TracedPass};

/// A model at work on its own thread. Clones share it; the thread ends with the last of them and of
/// their sessions.
#[derive(Debug, Clone)]
pub struct Runtime {
    commands: SyncSender<Command>,
    shape: Arc<ModelShape>,
    stats: Arc<Stats>,
    limits: Limits,
    kv_tokens: usize,
}

/// What the model's thread is told.
pub(crate) enum Command {
    Open(Box<OpenCommand>),
    Frame {
        session_id: String,
        stream: u64,
        frame: Frame,
        arrival: Arrival,
    },
    /// A lease changed; look at the leases.
    Wake,
}

pub(crate) struct OpenCommand {
    pub(crate) open: Open,
    pub(crate) lease: Arc<Lease>,
    pub(crate) replies: mpsc::Sender<Event<Reply>>,
    pub(crate) opened: oneshot::Sender<Result<Opened, OpenError>>,
}

#[derive(Debug)]
pub(crate) enum Open {
    Verify(VerifyOpen),
    Draft(DraftOpen),
}

pub(crate) struct Opened {
    pub(crate) stream: u64,
    pub(crate) cached_len: usize,
}

/// A frame of either conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    Verify(VerifyFrame),
    Draft(DraftFrame),
}

/// A reply of either conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Verify(VerifyReply),
    Draft(DraftReply),
}

/// Whether a session's stream still holds it.
#[derive(Debug)]
pub(crate) struct Lease(AtomicU8);

impl Lease {
    const HELD: u8 = 0;
    const BROKEN: u8 = 1;
    const CLOSED: u8 = 2;

    fn new() -> Self {
        Self(AtomicU8::new(Self::HELD))
    }

    fn end(&self, how: u8) {
        self.0.fetch_max(how, Ordering::Relaxed);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::HELD
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::CLOSED
    }
}

/// What comes out of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<R> {
    /// A message for the peer.
    Reply(R),
    /// The passes of a traced frame; its terminal reply follows.
    Passes {
        /// The frame.
        seq: u64,
        /// The first [`MAX_TRACED_PASSES`](crate::MAX_TRACED_PASSES) of them.
        passes: Vec<TracedPass>,
    },
    /// The session is over; nothing follows.
    Ended(Ended),
}

/// Why a session ended without being closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// A newer Open took it over.
    TakenOver,
    /// The peer does not take its replies.
    SlowReader,
    /// The backend failed, or gave logits that are no numbers.
    ModelFailed(String),
}

/// Why a session was not opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    /// A field that no state of the runtime would allow.
    #[error("{message}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// Field, value, limit.
        message: String,
    },
    /// Another model than the one expected.
    #[error("this worker runs {model} with fingerprint {ours}, expected was {expected}")]
    Model {
        /// The model's name.
        model: String,
        /// Its fingerprint.
        ours: String,
        /// The one asked for.
        expected: String,
    },
    /// The whole KV cache could not hold the session.
    #[error("the session needs {needed} positions and the KV cache has {capacity} in all")]
    KvTooSmall {
        /// Positions asked for.
        needed: usize,
        /// Positions there are.
        capacity: usize,
    },
    /// The KV cache has no room now.
    #[error("the session needs {needed} positions and {free} of the KV cache's {capacity} are free")]
    KvFull {
        /// Positions asked for.
        needed: usize,
        /// Positions free.
        free: usize,
        /// Positions there are.
        capacity: usize,
    },
    /// As many sessions as allowed.
    #[error("all {0} sessions are taken")]
    SessionsFull(usize),
    /// The command queue is full.
    #[error("the model's queue is full")]
    QueueFull,
    /// The model's thread is gone.
    #[error("the model failed: {0}")]
    ModelFailed(String),
}

/// The command queue is full: the frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the model's queue is full")]
pub struct QueueFull;

impl Runtime {
    /// Starts the model's thread.
    ///
    /// # Errors
    /// If weights and KV cache do not fit the memory allowed, or a setting cannot work.
    pub fn start<D: Decoder>(decoder: D, config: &RuntimeConfig) -> Result<Self, StartError> {
        let shape = Arc::new(decoder.shape().clone());
        let kv_tokens = config.kv_tokens_for(&shape)?;
        let stats = Arc::new(Stats::default());
        let (commands, inbox) = sync_channel(config.queue);
        let thread = ModelThread::new(decoder, config.clone(), kv_tokens, Arc::clone(&stats), inbox);
        std::thread::Builder::new().name("model".into()).spawn(move || thread.run())?;
        Ok(Self { commands, shape, stats, limits: config.limits, kv_tokens })
    }

    /// The model.
    #[must_use]
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The limits kept.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Positions of the KV cache.
    #[must_use]
    pub fn kv_tokens(&self) -> usize {
        self.kv_tokens
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> StatsSnapshot {
        self.stats.snapshot()
    }

    /// The counters themselves, for whoever reads them again and again. They do not keep the model's thread alive.
    #[must_use]
    pub fn counters(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Opens a session that judges blocks and decodes plainly.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open_verify(&self, open: VerifyOpen) -> Result<VerifySession, OpenError> {
        self.open(Open::Verify(open)).await.map(VerifySession)
    }

    /// Opens a session that drafts.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open_draft(&self, open: DraftOpen) -> Result<DraftSession, OpenError> {
        self.open(Open::Draft(open)).await.map(DraftSession)
    }

    async fn open(&self, open: Open) -> Result<Session, OpenError> {
        let session_id = match &open {
            Open::Verify(open) => open.session.session_id.clone(),
            Open::Draft(open) => open.session.session_id.clone(),
        };
        // Room for everything a conforming peer can have on the way, so that a full channel means a peer
        // that does not read.
        let (reply_sender, replies) =
            mpsc::channel(self.limits.max_grant * 2 + self.limits.max_window * 4 + 8);
        let (opened_sender, opened) = oneshot::channel();
        let lease = Arc::new(Lease::new());
        let command =
            OpenCommand { open, lease: Arc::clone(&lease), replies: reply_sender, opened: opened_sender };
        match self.commands.try_send(Command::Open(Box::new(command))) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(OpenError::QueueFull),
            Err(TrySendError::Disconnected(_)) => return Err(gone()),
        }
        let mut session =
            Session { commands: self.commands.clone(), session_id, stream: 0, cached_len: 0, lease, replies };
        let opened = opened.await.unwrap_or_else(|_| Err(gone()))?;
        session.stream = opened.stream;
        session.cached_len = opened.cached_len;
        Ok(session)
    }
}

fn gone() -> OpenError {
    OpenError::ModelFailed("the model's thread is gone; see its log".into())
}

/// One stream's hold on a session. Dropped without [`close`](Session::close), the session lives on for
/// the grace time.
#[derive(Debug)]
struct Session {
    commands: SyncSender<Command>,
    session_id: String,
    stream: u64,
    cached_len: usize,
    lease: Arc<Lease>,
    replies: mpsc::Receiver<Event<Reply>>,
}

impl Session {
    fn send(&self, frame: Frame, origin: Option<Origin>) -> Result<(), QueueFull> {
        let (session_id, arrival) = (self.session_id.clone(), Arrival::now(origin));
        let command = Command::Frame { session_id, stream: self.stream, frame, arrival };
        // A thread that is gone has dropped the reply sender too: `next` tells.
        match self.commands.try_send(command) {
            Err(TrySendError::Full(_)) => Err(QueueFull),
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }

    async fn next(&mut self) -> Event<Reply> {
        self.replies.recv().await.unwrap_or_else(|| {
            Event::Ended(Ended::ModelFailed("the model's thread is gone; see its log".into()))
        })
    }

    fn close(&self) {
        self.lease.end(Lease::CLOSED);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.lease.end(Lease::BROKEN);
        // If the queue is full the thread is awake anyway.
        let _full_is_fine = self.commands.try_send(Command::Wake);
    }
}

macro_rules! typed_session {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $frame:ty, $reply:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(Session);

        impl $name {
            /// Positions still cached from an earlier stream of the session.
            #[must_use]
            pub fn cached_len(&self) -> usize {
                self.0.cached_len
            }

            /// Hands a frame to the model's thread.
            ///
            /// # Errors
            /// If the command queue is full; answer OVERLOADED.
            pub fn send(&self, frame: $frame) -> Result<(), QueueFull> {
                self.0.send(Frame::$variant(frame), None)
            }

            /// The same of a frame whose passes are to be told: [`Event::Passes`] comes before its terminal reply.
            ///
            /// # Errors
            /// If the command queue is full; answer OVERLOADED.
            pub fn send_traced(&self, frame: $frame, origin: Origin) -> Result<(), QueueFull> {
                self.0.send(Frame::$variant(frame), Some(origin))
            }

            /// The next reply, or the session's end. Cancel safe.
            pub async fn next(&mut self) -> Event<$reply> {
                loop {
                    match self.0.next().await {
                        Event::Reply(Reply::$variant(reply)) => return Event::Reply(reply),
                        Event::Passes { seq, passes } => return Event::Passes { seq, passes },
                        Event::Ended(ended) => return Event::Ended(ended),
                        Event::Reply(_) => {}
                    }
                }
            }

            /// Ends the session at once: its rows leave before the next pass.
            pub fn close(self) {
                self.0.close();
            }
        }
    };
}

typed_session!(
    /// A verifier session held by one stream.
    VerifySession, Verify, VerifyFrame, VerifyReply
);
typed_session!(
    /// A drafting session held by one stream.
    DraftSession, Draft, DraftFrame, DraftReply
);

impl Open {
    pub(crate) fn role(&self) -> Role {
        match self {
            Open::Verify(open) => Role::verifier(open),
            Open::Draft(open) => Role::drafter(open),
        }
    }

    pub(crate) fn session(&self) -> &foretoken_engine::conversation::SessionOpen {
        match self {
            Open::Verify(open) => &open.session,
            Open::Draft(open) => &open.session,
        }
    }
}
