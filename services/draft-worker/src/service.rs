//! `foretoken.v1.DraftWorker`: translates between gRPC and the drafter, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use foretoken_engine::conversation::DraftOpen;
use foretoken_proto::error::{Problem, Reason, from_transport};
use foretoken_proto::v1;
use foretoken_proto::v1::draft_worker_server::{DraftWorker, DraftWorkerServer};
use foretoken_telemetry::names;
use foretoken_transport::{Drain, MapStatus};
use foretoken_worker::{
    ReplyStream, WorkerMetrics, bridge, check_tokenizer, first_open, in_session_span, open_problem,
    record_open, tokenizer_chunks,
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use crate::ngram::NgramSession;
use crate::source::Source;

/// The session's call, as traces name it.
const METHOD: &str = "foretoken.v1.DraftWorker/Draft";

/// The service over one drafter.
#[derive(Debug)]
pub struct DraftService {
    source: Source,
    drain: Drain,
    max_message_bytes: usize,
    /// Sessions that drafting without weights may still open; a model's runtime counts its own.
    ngram_sessions: Arc<Semaphore>,
    metrics: WorkerMetrics,
}

impl DraftService {
    /// A service over `source`.
    #[must_use]
    pub fn new(source: Source, drain: Drain, max_message_bytes: usize) -> Self {
        let room = match &source {
            Source::Ngram(ngram) => ngram.limits.max_sessions,
            Source::Model(_) => 0,
        };
        let ngram_sessions = Arc::new(Semaphore::new(room));
        let metrics = match &source {
            Source::Ngram(_) => WorkerMetrics::of_sessions(&ngram_sessions),
            Source::Model(host) => WorkerMetrics::of_runtime(&host.runtime),
        };
        Self { source, drain, max_message_bytes, ngram_sessions, metrics }
    }

    /// The generated server, with the message limit set and its own refusals worded like ours.
    #[must_use]
    pub fn into_server(self) -> MapStatus<DraftWorkerServer<Self>> {
        let limit = self.max_message_bytes;
        MapStatus::new(DraftWorkerServer::new(self).max_decoding_message_size(limit), from_transport)
    }

    async fn open(
        &self,
        mut incoming: Streaming<v1::DraftRequest>,
    ) -> Result<ReplyStream<v1::DraftResponse>, Status> {
        let open: DraftOpen = first_open(&mut incoming).await?;
        match &self.source {
            Source::Model(host) => {
                let model = &host.runtime.shape().name;
                record_open(&open.session, model);
                check_tokenizer(model, host.tokenizer.fingerprint(), &open.session.tokenizer_fingerprint)?;
                let session = host.runtime.open_draft(open).await.map_err(|error| open_problem(&error))?;
                Ok(bridge(session, incoming, self.drain.clone()))
            }
            Source::Ngram(ngram) => {
                record_open(&open.session, ngram.name());
                let (ours, expected) = (ngram.tokenizer_fingerprint(), &open.session.tokenizer_fingerprint);
                if !ours.is_empty() {
                    check_tokenizer("the n-gram table", ours, expected)?;
                }
                let limits = ngram.limits;
                let permit = Arc::clone(&self.ngram_sessions).try_acquire_owned().map_err(|_| {
                    Problem::new(
                        Reason::SessionsFull,
                        format!("all {} sessions are taken", limits.max_sessions),
                    )
                    .retry_after(Duration::from_millis(500))
                })?;
                let session = NgramSession::new(ngram, &open, permit);
                Ok(bridge(session, incoming, self.drain.clone()))
            }
        }
    }
}

#[tonic::async_trait]
impl DraftWorker for DraftService {
    async fn describe(
        &self,
        _request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::WorkerDescription>, Status> {
        Ok(Response::new(self.source.description(self.max_message_bytes)))
    }

    type TokenizerStream = tokio_stream::Iter<std::vec::IntoIter<Result<v1::TokenizerChunk, Status>>>;

    async fn tokenizer(
        &self,
        _request: Request<v1::TokenizerRequest>,
    ) -> Result<Response<Self::TokenizerStream>, Status> {
        let chunks = match &self.source {
            Source::Model(host) => tokenizer_chunks(&host.tokenizer.to_bundle()),
            Source::Ngram(_) => Vec::new(),
        };
        Ok(Response::new(tokio_stream::iter(chunks)))
    }

    type DraftStream = ReplyStream<v1::DraftResponse>;

    async fn draft(
        &self,
        request: Request<Streaming<v1::DraftRequest>>,
    ) -> Result<Response<Self::DraftStream>, Status> {
        if self.drain.is_draining() {
            return Err(
                Problem::new(Reason::Draining, "this draft worker is shutting down; ask another").into()
            );
        }
        let (metadata, _, incoming) = request.into_parts();
        in_session_span(names::SPAN_DRAFT_SESSION, METHOD, &metadata, self.open(incoming))
            .await
            .inspect_err(|status| self.metrics.refused(status))
            .map(Response::new)
    }
}
