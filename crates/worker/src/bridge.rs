//! Carries one session between its gRPC stream and what answers it.

use foretoken_engine::conversation::{Refusal, RefusalKind};
use foretoken_proto::convert::Incoming;
use foretoken_proto::error::{Problem, Reason, from_transport};
use foretoken_runtime::{Ended, Event};
use foretoken_telemetry::propagation;
use foretoken_transport::Drain;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::{Instrument, Span};

use crate::frames::FrameSpans;
use crate::message::{WorkerFrame, WorkerReply};
use crate::session::WorkerSession;
use crate::span::record_end;

/// Replies on their way to the peer. Beyond these the session's own bounded channel fills, and a peer that
/// never reads loses its session.
const REPLIES_ON_THE_WAY: usize = 16;

/// The response half of a session's stream.
pub type ReplyStream<R> = ReceiverStream<Result<R, Status>>;

/// Reads the Open that a stream must begin with.
///
/// # Errors
/// If the stream ends, breaks, or begins with anything else.
pub async fn first_open<Q, O, F>(incoming: &mut Streaming<Q>) -> Result<O, Status>
where
    Incoming<O, F>: TryFrom<Q, Error = Problem>,
{
    let message = incoming.message().await.map_err(from_transport)?;
    let message =
        message.ok_or_else(|| Problem::new(Reason::OpenFirst, "the stream ended before its Open"))?;
    match Incoming::try_from(message)? {
        Incoming::Open(open) => Ok(*open),
        Incoming::Frame(_) | Incoming::BadFrame { .. } | Incoming::Close => {
            Err(Problem::new(Reason::OpenFirst, "the first message must be an Open; no session is known yet")
                .into())
        }
    }
}

/// Serves an open session until its stream or the session ends, and keeps the current span open until then.
pub fn bridge<S, Q, R>(session: S, incoming: Streaming<Q>, drain: Drain) -> ReplyStream<R>
where
    S: WorkerSession,
    Q: Send + 'static,
    R: From<S::Reply> + Send + 'static,
    Incoming<S::Open, S::Frame>: TryFrom<Q, Error = Problem>,
    S::Open: Send,
{
    let (replies, stream) = mpsc::channel(REPLIES_ON_THE_WAY);
    let span = Span::current();
    let frames = FrameSpans::new(propagation::context_of(&span));
    let (unanswered, half_closed) = (Vec::new(), false);
    let bridge = Bridge { session, incoming, drain, replies, frames, unanswered, half_closed };
    let served = async move {
        let end = bridge.run().await;
        record_end(&Span::current(), end.as_ref().copied());
    };
    tokio::spawn(served.instrument(span));
    ReceiverStream::new(stream)
}

struct Bridge<S, Q, R> {
    session: S,
    incoming: Streaming<Q>,
    drain: Drain,
    replies: mpsc::Sender<Result<R, Status>>,
    frames: FrameSpans,
    /// Frames whose terminal reply is still to come.
    unanswered: Vec<u64>,
    /// The peer will send nothing more, but may still read.
    half_closed: bool,
}

impl<S, Q, R> Bridge<S, Q, R>
where
    S: WorkerSession,
    R: From<S::Reply>,
    Incoming<S::Open, S::Frame>: TryFrom<Q, Error = Problem>,
{
    /// Returns how the call ended, for its span; the peer has been told.
    async fn run(mut self) -> Result<(), Status> {
        let opened = S::Reply::opened(self.session.cached_len());
        if !self.reply(opened).await {
            return Err(gone());
        }
        let mut told_draining = false;
        loop {
            let go_on = tokio::select! {
                event = self.session.next() => match event {
                    Event::Reply(reply) => self.reply(reply).await,
                    Event::Passes { seq, passes } => {
                        self.frames.passes(seq, &passes);
                        true
                    }
                    Event::Ended(ended) => return self.end(ended_problem(ended)).await,
                },
                message = self.incoming.message(), if !self.half_closed => match message {
                    Ok(Some(message)) => match self.take(message) {
                        Taken::Silently => true,
                        Taken::Answered(reply) => self.reply(reply).await,
                        Taken::Close => {
                            self.session.close();
                            return Ok(());
                        }
                        Taken::Broken(problem) => return self.end(problem).await,
                    },
                    Ok(None) => {
                        self.half_closed = true;
                        true
                    }
                    Err(status) => return self.end(from_transport(status)).await,
                },
                () = self.drain.draining(), if !told_draining => {
                    told_draining = true;
                    self.reply(S::Reply::draining()).await
                },
                () = self.drain.expired() => {
                    let text = "the worker's time to drain is over; open the session at another";
                    return self.end(Problem::new(Reason::Draining, text)).await;
                },
                () = self.replies.closed() => false,
            };
            // Half-closed without Close: what was asked is answered, then the session waits for its peer to
            // come back.
            if !go_on {
                return Err(gone());
            }
            if self.half_closed && self.unanswered.is_empty() {
                return Ok(());
            }
        }
    }

    fn take(&mut self, message: Q) -> Taken<S::Reply> {
        match Incoming::try_from(message) {
            Ok(Incoming::Frame(frame)) => {
                let seq = frame.text().seq;
                let origin = self.frames.arrived(&frame);
                match self.session.send(frame, origin) {
                    Ok(()) => {
                        if !self.unanswered.contains(&seq) {
                            self.unanswered.push(seq);
                        }
                        Taken::Silently
                    }
                    Err(_) => Taken::Answered(S::Reply::overloaded(seq)),
                }
            }
            Ok(Incoming::BadFrame { seq, problem }) => {
                let kind = RefusalKind::Invalid {
                    reason: problem.reason.as_str().into(),
                    field: problem.field.unwrap_or_default().into(),
                    message: problem.message,
                };
                Taken::Answered(S::Reply::refused(Refusal { seq, kind }))
            }
            Ok(Incoming::Close) => Taken::Close,
            Ok(Incoming::Open(_)) => Taken::Broken(Problem::new(
                Reason::OpenTwice,
                "this stream has a session; open another stream",
            )),
            Err(problem) => Taken::Broken(problem),
        }
    }

    /// False if the peer is gone.
    async fn reply(&mut self, reply: S::Reply) -> bool {
        self.frames.replied(&reply);
        if let Some(answered) = reply.terminates() {
            self.unanswered.retain(|&seq| seq != answered);
        }
        self.replies.send(Ok(reply.into())).await.is_ok()
    }

    async fn end(self, why: impl Into<Status>) -> Result<(), Status> {
        let status = why.into();
        let _unheard = self.replies.send(Err(status.clone())).await;
        Err(status)
    }
}

fn gone() -> Status {
    Status::cancelled("the caller is gone")
}

/// What became of a message.
enum Taken<R> {
    Silently,
    Answered(R),
    Close,
    Broken(Problem),
}

fn ended_problem(ended: Ended) -> Problem {
    match ended {
        Ended::TakenOver => Problem::new(Reason::TakenOver, "a newer Open of the session ended this stream"),
        Ended::SlowReader => {
            Problem::new(Reason::QueueFull, "replies were not read; the session ended to free its memory")
        }
        Ended::ModelFailed(text) => Problem::new(Reason::ModelFailed, text),
    }
}
