//! Sessions at remote workers: the engine's link traits over gRPC.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foretoken_engine::conversation::{
    DraftFrame, DraftOpen, DraftReply, VerifyFrame, VerifyOpen, VerifyReply,
};
use foretoken_engine::ledger::Steps;
use foretoken_engine::link::{Drafter, LinkError, Traffic, Verifier};
use foretoken_proto::error::{Problem, reason_of};
use foretoken_proto::v1;
use foretoken_proto::v1::draft_worker_client::DraftWorkerClient;
use foretoken_proto::v1::target_verifier_client::TargetVerifierClient;
use foretoken_telemetry::propagation;
use foretoken_transport::{CallBytes, MeteredChannel};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

/// Frames on their way to a worker; a session has few in flight, so a full queue means a stalled link.
const FRAMES_ON_THE_WAY: usize = 8;

/// How long a closed session's stream is kept for its Close to leave.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Counts a session among its worker's for as long as it lives.
#[derive(Debug)]
pub struct InUse(Arc<AtomicUsize>);

impl InUse {
    /// Counts one more.
    #[must_use]
    pub fn of(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counter))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One of the two conversations, as messages and a call.
pub trait Protocol: Send + 'static {
    /// What opens a session.
    type Open: Sync;
    /// What is asked.
    type Frame: Send;
    /// What is answered.
    type Reply: TryFrom<Self::Response, Error = Problem>;
    /// The message that carries the former two.
    type Request: Message + Send + 'static;
    /// The message that carries the latter.
    type Response: Message + Default + Send + 'static;

    /// An Open as a message.
    fn open(open: &Self::Open) -> Self::Request;
    /// A frame as a message.
    fn frame(frame: &Self::Frame) -> Self::Request;
    /// The Close.
    fn close() -> Self::Request;
    /// Makes the call.
    fn call(
        channel: MeteredChannel,
        max_message_bytes: usize,
        requests: Request<ReceiverStream<Self::Request>>,
    ) -> impl Future<Output = Result<Streaming<Self::Response>, Status>> + Send;
}

/// Bytes of encoded messages.
#[derive(Debug, Clone, Copy)]
struct Payload {
    up: u64,
    down: u64,
}

/// A session's stream to one worker, and the bytes it carried. Dropping it closes the session.
pub struct Remote<P: Protocol> {
    worker: String,
    frames: mpsc::Sender<P::Request>,
    replies: Option<Streaming<P::Response>>,
    /// Encoded messages.
    payload: Payload,
    wire: CallBytes,
    trusted: bool,
    steps: Arc<Steps>,
    _in_use: InUse,
}

/// A session at a target-verifier.
pub type RemoteVerifier = Remote<Verify>;
/// A session at a draft-worker.
pub type RemoteDrafter = Remote<Draft>;

impl<P: Protocol> std::fmt::Debug for Remote<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote")
            .field("worker", &self.worker)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

impl<P: Protocol> Remote<P> {
    /// Opens a session; `worker` is the worker's name for people.
    ///
    /// # Errors
    /// The worker's status where it refuses the Open, or the transport's.
    pub async fn open(
        channel: MeteredChannel,
        max_message_bytes: usize,
        worker: String,
        open: &P::Open,
        in_use: InUse,
    ) -> Result<Self, Status> {
        let (frames, outgoing) = mpsc::channel(FRAMES_ON_THE_WAY);
        let first = P::open(open);
        let payload = Payload { up: first.encoded_len() as u64, down: 0 };
        frames.send(first).await.map_err(|_| Status::internal("the request stream closed at once"))?;
        let mut request = Request::new(ReceiverStream::new(outgoing));
        propagation::inject(request.metadata_mut());
        let wire = CallBytes::default();
        request.extensions_mut().insert(wire.clone());
        let replies = Some(P::call(channel, max_message_bytes, request).await?);
        Ok(Self {
            worker,
            frames,
            replies,
            payload,
            wire,
            trusted: true,
            steps: Arc::default(),
            _in_use: in_use,
        })
    }

    /// The same, of a worker whose proposals are not believed.
    #[must_use]
    pub fn untrusted(mut self) -> Self {
        self.trusted = false;
        self
    }

    /// The same, of a worker whose sessions learn together what its passes take.
    #[must_use]
    pub fn learning(mut self, steps: Arc<Steps>) -> Self {
        self.steps = steps;
        self
    }

    fn moved(&self) -> Traffic {
        let (Payload { up, down }, wire) = (self.payload, self.wire.settle());
        Traffic { up, down, wire_up: wire.up, wire_down: wire.down }
    }

    async fn send_frame(&mut self, frame: &P::Frame) -> Result<(), LinkError> {
        let message = P::frame(frame);
        self.payload.up += message.encoded_len() as u64;
        self.frames.send(message).await.map_err(|_| broken_off())
    }

    async fn next_reply(&mut self) -> Result<P::Reply, LinkError> {
        let replies = self.replies.as_mut().ok_or_else(broken_off)?;
        match replies.message().await {
            Ok(Some(message)) => {
                self.payload.down += message.encoded_len() as u64;
                P::Reply::try_from(message).map_err(|problem| LinkError {
                    reason: "UNREADABLE_REPLY".into(),
                    message: problem.to_string(),
                })
            }
            Ok(None) => Err(broken_off()),
            Err(status) => Err(link_error(&status)),
        }
    }
}

impl<P: Protocol> Drop for Remote<P> {
    fn drop(&mut self) {
        let Some(mut replies) = self.replies.take() else { return };
        if self.frames.try_send(P::close()).is_err() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        // Tearing the stream down at once could overtake the Close.
        tokio::spawn(async move {
            let ended = async { while let Ok(Some(_)) = replies.message().await {} };
            let _late = tokio::time::timeout(CLOSE_GRACE, ended).await;
        });
    }
}

fn broken_off() -> LinkError {
    LinkError { reason: "STREAM_ENDED".into(), message: "the worker ended the stream".into() }
}

/// What a status says, for the round loop.
pub(crate) fn link_error(status: &Status) -> LinkError {
    let reason = reason_of(status).unwrap_or_else(|| format!("{:?}", status.code()).to_uppercase());
    LinkError { reason, message: status.message().to_owned() }
}

macro_rules! protocol {
    ($(#[$doc:meta])* $name:ident, $module:ident, $client:ident :: $call:ident, $open:ty, $frame:ty, $reply:ty,
     $request:ident, $response:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}

        impl Protocol for $name {
            type Open = $open;
            type Frame = $frame;
            type Reply = $reply;
            type Request = v1::$request;
            type Response = v1::$response;

            fn open(open: &$open) -> v1::$request {
                v1::$request { kind: Some(v1::$module::Kind::Open(open.into())) }
            }

            fn frame(frame: &$frame) -> v1::$request {
                v1::$request { kind: Some(v1::$module::Kind::Frame(frame.into())) }
            }

            fn close() -> v1::$request {
                v1::$request { kind: Some(v1::$module::Kind::Close(v1::SessionClose {})) }
            }

            async fn call(
                channel: MeteredChannel,
                max_message_bytes: usize,
                requests: Request<ReceiverStream<v1::$request>>,
            ) -> Result<Streaming<v1::$response>, Status> {
                let mut client = $client::new(channel).max_decoding_message_size(max_message_bytes);
                client.$call(requests).await.map(tonic::Response::into_inner)
            }
        }
    };
}

protocol!(
    /// The verifier's conversation.
    Verify, verify_request, TargetVerifierClient::verify, VerifyOpen, VerifyFrame, VerifyReply,
    VerifyRequest, VerifyResponse
);
protocol!(
    /// The draft worker's conversation.
    Draft, draft_request, DraftWorkerClient::draft, DraftOpen, DraftFrame, DraftReply,
    DraftRequest, DraftResponse
);

impl Verifier for RemoteVerifier {
    async fn send(&mut self, frame: VerifyFrame) -> Result<(), LinkError> {
        self.send_frame(&frame).await
    }

    async fn receive(&mut self) -> Result<VerifyReply, LinkError> {
        self.next_reply().await
    }

    fn steps(&self) -> Arc<Steps> {
        Arc::clone(&self.steps)
    }

    fn traffic(&self) -> Traffic {
        self.moved()
    }
}

impl Drafter for RemoteDrafter {
    fn name(&self) -> &str {
        &self.worker
    }

    fn must_be_one_hot(&self) -> bool {
        !self.trusted
    }

    async fn send(&mut self, frame: DraftFrame) -> Result<(), LinkError> {
        self.send_frame(&frame).await
    }

    async fn receive(&mut self) -> Result<DraftReply, LinkError> {
        self.next_reply().await
    }

    fn traffic(&self) -> Traffic {
        self.moved()
    }
}
