//! `foretoken.v1.TargetVerifier`: translates between gRPC and the runtime, and nothing else.

use foretoken_engine::conversation::VerifyOpen;
use foretoken_proto::error::{Problem, Reason, from_transport};
use foretoken_proto::v1;
use foretoken_proto::v1::target_verifier_server::{TargetVerifier, TargetVerifierServer};
use foretoken_telemetry::names;
use foretoken_transport::{Drain, MapStatus};
use foretoken_worker::{
    Host, ReplyStream, WorkerMetrics, bridge, check_tokenizer, first_open, in_session_span, open_problem,
    record_open, tokenizer_chunks,
};
use tonic::{Request, Response, Status, Streaming};

/// The session's call, as traces name it.
const METHOD: &str = "foretoken.v1.TargetVerifier/Verify";

/// The service over one model.
#[derive(Debug)]
pub struct VerifierService {
    host: Host,
    drain: Drain,
    max_message_bytes: usize,
    metrics: WorkerMetrics,
}

impl VerifierService {
    /// A service over `host`.
    #[must_use]
    pub fn new(host: Host, drain: Drain, max_message_bytes: usize) -> Self {
        let metrics = WorkerMetrics::of_runtime(&host.runtime);
        Self { host, drain, max_message_bytes, metrics }
    }

    /// The generated server, with the message limit set and its own refusals worded like ours.
    #[must_use]
    pub fn into_server(self) -> MapStatus<TargetVerifierServer<Self>> {
        let limit = self.max_message_bytes;
        MapStatus::new(TargetVerifierServer::new(self).max_decoding_message_size(limit), from_transport)
    }
}

#[tonic::async_trait]
impl TargetVerifier for VerifierService {
    async fn describe(
        &self,
        _request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::WorkerDescription>, Status> {
        Ok(Response::new(self.host.description(self.max_message_bytes)))
    }

    type TokenizerStream = tokio_stream::Iter<std::vec::IntoIter<Result<v1::TokenizerChunk, Status>>>;

    async fn tokenizer(
        &self,
        _request: Request<v1::TokenizerRequest>,
    ) -> Result<Response<Self::TokenizerStream>, Status> {
        Ok(Response::new(tokio_stream::iter(tokenizer_chunks(&self.host.tokenizer.to_bundle()))))
    }

    type VerifyStream = ReplyStream<v1::VerifyResponse>;

    async fn verify(
        &self,
        request: Request<Streaming<v1::VerifyRequest>>,
    ) -> Result<Response<Self::VerifyStream>, Status> {
        if self.drain.is_draining() {
            return Err(Problem::new(Reason::Draining, "this verifier is shutting down; ask another").into());
        }
        let (metadata, _, mut incoming) = request.into_parts();
        in_session_span(names::SPAN_VERIFY_SESSION, METHOD, &metadata, async {
            let open: VerifyOpen = first_open(&mut incoming).await?;
            let model = &self.host.runtime.shape().name;
            record_open(&open.session, model);
            check_tokenizer(model, self.host.tokenizer.fingerprint(), &open.session.tokenizer_fingerprint)?;
            let session = self.host.runtime.open_verify(open).await.map_err(|error| open_problem(&error))?;
            Ok(Response::new(bridge(session, incoming, self.drain.clone())))
        })
        .await
        .inspect_err(|status| self.metrics.refused(status))
    }
}
