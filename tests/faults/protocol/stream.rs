//! Raw streams to a worker, and the messages a well-behaved orchestrator would send on them.

use foretoken_engine::conversation::{DraftOpen, SessionOpen, TextHash, VerifyOpen};
use foretoken_engine::{Adjustments, RequestKeys, Rule, Sampling};
use foretoken_proto::v1;
use foretoken_proto::v1::draft_worker_client::DraftWorkerClient;
use foretoken_proto::v1::target_verifier_client::TargetVerifierClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::support::within;

pub(crate) type VerifyKind = v1::verify_response::Kind;
pub(crate) type DraftKind = v1::draft_response::Kind;

/// One stream to a worker.
pub(crate) struct Conversation<Q, R> {
    requests: mpsc::Sender<Q>,
    replies: Streaming<R>,
}

pub(crate) type Verifying = Conversation<v1::VerifyRequest, v1::VerifyResponse>;
pub(crate) type Drafting = Conversation<v1::DraftRequest, v1::DraftResponse>;

impl<Q: Send, R> Conversation<Q, R> {
    pub(crate) async fn send(&self, message: Q) {
        within(self.requests.send(message)).await.expect("the stream takes messages");
    }

    pub(crate) async fn message(&mut self) -> Result<R, Status> {
        within(self.replies.message()).await?.ok_or_else(|| Status::ok("the stream ended"))
    }
}

impl Verifying {
    /// Starts a stream with any first message.
    pub(crate) async fn begin(channel: &Channel, first: v1::VerifyRequest) -> Result<Self, Status> {
        let (requests, stream) = mpsc::channel(64);
        requests.send(first).await.unwrap();
        let mut client = TargetVerifierClient::new(channel.clone());
        let replies = within(client.verify(ReceiverStream::new(stream))).await?.into_inner();
        Ok(Self { requests, replies })
    }

    /// Opens a session and reads its Opened; tells how much was cached.
    pub(crate) async fn open(channel: &Channel, open: v1::VerifyOpen) -> Result<(Self, u32), Status> {
        let mut stream = Self::begin(channel, verify_message(VerifyKindOut::Open(open))).await?;
        match stream.next().await? {
            VerifyKind::Opened(opened) => Ok((stream, opened.cached_len)),
            other => panic!("not Opened: {other:?}"),
        }
    }

    pub(crate) async fn frame(&self, frame: v1::VerifyFrame) {
        self.send(verify_message(VerifyKindOut::Frame(frame))).await;
    }

    pub(crate) async fn next(&mut self) -> Result<VerifyKind, Status> {
        Ok(self.message().await?.kind.expect("a kind"))
    }

    /// A frame's reply, which must be INVALID: reason, field, text.
    pub(crate) async fn invalid(&mut self, frame: v1::VerifyFrame) -> (String, String, String) {
        let seq = frame.text.as_ref().map_or(0, |text| text.seq);
        self.frame(frame).await;
        match self.next().await.unwrap() {
            VerifyKind::Invalid(invalid) => {
                assert_eq!(invalid.seq, seq);
                (invalid.reason, invalid.field, invalid.message)
            }
            other => panic!("not INVALID: {other:?}"),
        }
    }

    /// A frame's verdict.
    pub(crate) async fn verdict(&mut self, frame: v1::VerifyFrame) -> v1::Verdict {
        self.frame(frame).await;
        match self.next().await.unwrap() {
            VerifyKind::Verdict(verdict) => verdict,
            other => panic!("no verdict: {other:?}"),
        }
    }
}

impl Drafting {
    pub(crate) async fn begin(channel: &Channel, first: v1::DraftRequest) -> Result<Self, Status> {
        let (requests, stream) = mpsc::channel(64);
        requests.send(first).await.unwrap();
        let mut client = DraftWorkerClient::new(channel.clone());
        let replies = within(client.draft(ReceiverStream::new(stream))).await?.into_inner();
        Ok(Self { requests, replies })
    }

    pub(crate) async fn open(channel: &Channel, open: v1::DraftOpen) -> Result<Self, Status> {
        let first = v1::DraftRequest { kind: Some(v1::draft_request::Kind::Open(open)) };
        let mut stream = Self::begin(channel, first).await?;
        match stream.next().await? {
            DraftKind::Opened(_) => Ok(stream),
            other => panic!("not Opened: {other:?}"),
        }
    }

    pub(crate) async fn frame(&self, frame: v1::DraftFrame) {
        self.send(v1::DraftRequest { kind: Some(v1::draft_request::Kind::Frame(frame)) }).await;
    }

    pub(crate) async fn next(&mut self) -> Result<DraftKind, Status> {
        Ok(self.message().await?.kind.expect("a kind"))
    }

    pub(crate) async fn drafted(&mut self, frame: v1::DraftFrame) -> v1::Drafted {
        self.frame(frame).await;
        match self.next().await.unwrap() {
            DraftKind::Drafted(drafted) => drafted,
            other => panic!("nothing drafted: {other:?}"),
        }
    }
}

pub(crate) type VerifyKindOut = v1::verify_request::Kind;

pub(crate) fn verify_message(kind: VerifyKindOut) -> v1::VerifyRequest {
    v1::VerifyRequest { kind: Some(kind) }
}

/// The keys of all sessions here.
pub(crate) fn keys() -> RequestKeys {
    RequestKeys::new(7, 0)
}

pub(crate) fn session(id: &str, prompt: &[u32], reserve_len: usize, sampling: Sampling) -> SessionOpen {
    SessionOpen {
        session_id: id.into(),
        prompt: prompt.to_vec(),
        reserve_len,
        sampling,
        adjustments: Adjustments::default(),
        rule: Rule::Token,
        model_fingerprint: String::new(),
        tokenizer_fingerprint: String::new(),
    }
}

pub(crate) fn verify_open(
    id: &str,
    prompt: &[u32],
    reserve_len: usize,
    sampling: Sampling,
) -> v1::VerifyOpen {
    let session = session(id, prompt, reserve_len, sampling);
    (&VerifyOpen { session, keys: keys().verifier(), stop_ids: Vec::new(), logprobs: None }).into()
}

pub(crate) fn draft_open(id: &str, prompt: &[u32], reserve_len: usize, sampling: Sampling) -> v1::DraftOpen {
    (&DraftOpen { session: session(id, prompt, reserve_len, sampling), key: keys().draft() }).into()
}

/// A frame's text: `tokens` are committed, those from `known` on are told.
pub(crate) fn text(seq: u64, epoch: u64, tokens: &[u32], known: usize) -> v1::FrameText {
    let len = u32::try_from(tokens.len()).unwrap();
    v1::FrameText {
        seq,
        epoch,
        committed_len: len,
        tail: tokens[known..].to_vec(),
        start: len,
        start_hash: TextHash::EMPTY.then_all(tokens).value(),
        ..v1::FrameText::default()
    }
}

/// A frame with a block of one-hot drafts.
pub(crate) fn block(text: v1::FrameText, tokens: &[u32]) -> v1::VerifyFrame {
    let block = v1::Block { tokens: tokens.to_vec(), q: Vec::new() };
    v1::VerifyFrame { text: Some(text), ask: Some(v1::verify_frame::Ask::Block(block)) }
}

/// A frame that asks for a decode run.
pub(crate) fn decode(text: v1::FrameText, grant: u32) -> v1::VerifyFrame {
    v1::VerifyFrame { text: Some(text), ask: Some(v1::verify_frame::Ask::Decode(v1::DecodeRun { grant })) }
}

pub(crate) fn drafts(text: v1::FrameText, draft_len: u32) -> v1::DraftFrame {
    v1::DraftFrame { text: Some(text), draft_len, min_confidence: 0.0 }
}

pub(crate) fn warm() -> Sampling {
    Sampling::new(1.0, 0, 1.0, 0.0).unwrap()
}
