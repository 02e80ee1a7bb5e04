//! `foretoken.v1.Orchestrator`: admits requests, runs them, tells the client what became of them.

use std::sync::Arc;
use std::time::Duration;

use foretoken_engine::MAX_LOGPROBS;
use foretoken_engine::generate::{GenerateError, Plan, generate};
use foretoken_proto::convert::narrow;
use foretoken_proto::error::{Problem, Reason, from_transport};
use foretoken_proto::v1;
use foretoken_proto::v1::orchestrator_server::{Orchestrator, OrchestratorServer};
use foretoken_proto::{PROTOCOL_VERSION, v1::generate_response::Event as Kind};
use foretoken_telemetry::{names, propagation, rpc};
use foretoken_transport::{Drain, MapStatus};
use futures_util::future::try_join_all;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use tracing::Instrument;

use crate::account::{Timeline, finished};
use crate::admission::{Admitted, MAX_SAMPLES, admit};
use crate::args::Config;
use crate::broken::BrokenOff;
use crate::keys::{Guarded, KeyName};
use crate::metrics::Metrics;
use crate::output::{Event, TextOutput};
use crate::pool::{Pool, Target};
use crate::remote::RemoteVerifier;
use crate::trace;

/// Events on their way to a client. A client that does not read holds up its own request, no other.
const EVENTS_ON_THE_WAY: usize = 4;

/// The service.
#[derive(Debug)]
pub struct GenerateService {
    config: Config,
    pool: Pool,
    drain: Drain,
    requests: Arc<Semaphore>,
    max_message_bytes: usize,
    metrics: Arc<Metrics>,
}

impl GenerateService {
    /// A service over `pool`.
    #[must_use]
    pub fn new(config: Config, pool: Pool, drain: Drain, max_message_bytes: usize) -> Self {
        let requests = Arc::new(Semaphore::new(config.max_requests));
        let metrics = Arc::new(Metrics::new(&pool, &requests));
        Self { config, pool, drain, requests, max_message_bytes, metrics }
    }

    /// The generated server, with the message limit set, its own refusals worded like ours, and keys asked for where there are
    /// any.
    #[must_use]
    pub fn into_server(self) -> Guarded<MapStatus<OrchestratorServer<Self>>> {
        let (limit, keys, metrics) =
            (self.max_message_bytes, self.config.api_keys.clone(), Arc::clone(&self.metrics));
        let server = OrchestratorServer::new(self).max_decoding_message_size(limit);
        Guarded::new(MapStatus::new(server, from_transport), keys, metrics)
    }

    /// Everything that can be refused, before the first event.
    async fn prepare(&self, request: v1::GenerateRequest, span: &tracing::Span) -> Result<Job, Status> {
        let arrived = Instant::now();
        if self.drain.is_draining() {
            return Err(
                Problem::new(Reason::Draining, "this orchestrator is shutting down; ask another").into()
            );
        }
        let mut permit = self.permit(1)?;
        let target = self.pool.target()?;
        let mut admitted = admit(request, &target, &self.config)?;
        admitted.started.trace_id = propagation::sampled_trace_id(span).unwrap_or_default();
        permit.merge(self.permit(narrow(admitted.samples - 1))?);
        span.record(names::REQUEST_ID, admitted.started.request_id.as_str());
        span.record(names::REQUEST_MODEL, admitted.started.target.as_str());
        let patience = self.config.timeouts.verify;
        let plans = admitted.plans();
        // The sessions are the request's, and outlive its admission.
        let opening = try_join_all(plans.into_iter().map(|plan| self.open(plan).instrument(span.clone())));
        let samples = tokio::time::timeout(patience, opening).await.map_err(|_| {
            let message = format!("no verifier opened a session within {} ms", patience.as_millis());
            Problem::new(Reason::VerifierTimeout, message).retry_after(Duration::from_secs(1))
        })??;
        Ok(Job {
            arrived,
            permit,
            target,
            admitted,
            samples,
            pool: self.pool.clone(),
            drain: self.drain.clone(),
            metrics: Arc::clone(&self.metrics),
        })
    }

    /// Room for so many samples.
    fn permit(&self, samples: u32) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.requests).try_acquire_many_owned(samples).map_err(|_| {
            let message =
                format!("all {} requests are in work; see --max-requests", self.config.max_requests);
            Problem::new(Reason::RequestsFull, message).retry_after(Duration::from_millis(500))
        })
    }

    async fn open(&self, plan: Plan) -> Result<(Plan, RemoteVerifier), Status> {
        let verifier = self.pool.open_verifier(&plan.verify_open()).await?;
        Ok((plan, verifier))
    }
}

#[tonic::async_trait]
impl Orchestrator for GenerateService {
    async fn describe(
        &self,
        _request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::OrchestratorDescription>, Status> {
        let (verifiers, draft_workers) = self.pool.states();
        let target = self.pool.target().ok().map(|target| target.description.clone()).unwrap_or_default();
        Ok(Response::new(v1::OrchestratorDescription {
            target: target.model,
            model_fingerprint: target.model_fingerprint,
            tokenizer_fingerprint: target.tokenizer_fingerprint,
            vocab_size: target.vocab_size,
            max_context: target.max_context,
            protocol_version: PROTOCOL_VERSION,
            verifiers,
            draft_workers,
            default_rule: v1::Rule::from(self.config.default_rule).into(),
            untrusted_draft_workers: self.config.untrusted_draft_workers.clone(),
            default_min_confidence: self.config.default_min_confidence,
            limits: Some(v1::GenerateLimits {
                max_message_bytes: narrow(self.max_message_bytes),
                max_draft_len: narrow(self.config.max_draft_len),
                default_draft_len: narrow(self.config.default_draft_len),
                default_max_tokens: narrow(self.config.default_max_tokens),
                max_requests: narrow(self.config.max_requests),
                max_samples: narrow(MAX_SAMPLES.min(self.config.max_requests)),
                max_logprobs: narrow(MAX_LOGPROBS),
            }),
        }))
    }

    type GenerateStream = ReceiverStream<Event>;

    async fn generate(
        &self,
        request: Request<v1::GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let span = tracing::info_span!(
            "generate",
            otel.kind = "server",
            { names::RPC_SYSTEM } = rpc::GRPC,
            { names::RPC_METHOD } = "foretoken.v1.Orchestrator/Generate",
            { names::REQUEST_ID } = tracing::field::Empty,
            { names::API_KEY_NAME } = tracing::field::Empty,
            { names::REQUEST_MODEL } = tracing::field::Empty,
        );
        propagation::set_parent(&span, propagation::extract(request.metadata()));
        if let Some(KeyName(name)) = request.extensions().get() {
            span.record(names::API_KEY_NAME, &**name);
        }
        let deadline = deadline(request.metadata());
        let admission = tracing::info_span!(parent: &span, "admission");
        let job = self.prepare(request.into_inner(), &span).instrument(admission).await;
        let job = job.inspect_err(|status| {
            self.metrics.refused(status);
            trace::refused(&span, status);
        })?;
        let (events, stream) = mpsc::channel(EVENTS_ON_THE_WAY);
        tokio::spawn(job.run(events, deadline).instrument(span));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// An admitted request with an open verifier for each sample.
struct Job {
    arrived: Instant,
    /// As many as samples.
    permit: OwnedSemaphorePermit,
    target: Arc<Target>,
    admitted: Admitted,
    samples: Vec<(Plan, RemoteVerifier)>,
    pool: Pool,
    drain: Drain,
    metrics: Arc<Metrics>,
}

impl Job {
    async fn run(self, events: mpsc::Sender<Event>, deadline: Option<Instant>) {
        let Self { arrived, permit, target, admitted, samples, pool, drain, metrics } = self;
        let Admitted { stops, drafter, started, tells_rounds, .. } = admitted;
        let (prompt_tokens, reproducible) = (started.prompt_tokens, started.reproducible);
        let count = samples.len();
        let (client_gone, broken_off) = (events.clone(), BrokenOff::default());
        let sample = async |(index, (plan, verifier)): (u32, (Plan, RemoteVerifier))| {
            let detokenizer = target.tokenizer.detokenizer_after(&plan.prompt);
            let mut output = TextOutput::new(detokenizer, stops.clone(), events.clone())
                .of_sample(index, plan.stop_ids.clone());
            let span = trace::answer_span(index, count);
            let told = (metrics.rounds(), tells_rounds.then(Timeline::started));
            let mut observer = (trace::Rounds::traced(&span), (broken_off.watching(&span), told));
            let drafters = Some(pool.drafters(drafter));
            let answer = generate(&plan, verifier, drafters, &mut output, &mut observer);
            let outcome = answer.instrument(span.clone()).await?;
            tracing::info!(
                output_tokens = outcome.ledger.output_tokens(),
                target_passes = outcome.ledger.target_passes(),
                drafted = outcome.ledger.drafted,
                accepted = outcome.ledger.accepted,
                sample = index,
                "answer finished"
            );
            metrics.finished(&outcome, arrived, prompt_tokens);
            let (_, (_, (_, timeline))) = observer;
            let finished = v1::Finished {
                rounds: timeline.map(Timeline::into_rounds).unwrap_or_default(),
                ..finished(&outcome, arrived, prompt_tokens, reproducible)
            };
            trace::finished(&span, &finished, &outcome);
            send(&events, index, Kind::Finished(finished)).await
        };
        let answer = async {
            send(&events, 0, Kind::Started(started)).await?;
            // The first that fails ends them all.
            try_join_all((0..).zip(samples).map(sample)).await
        };
        let at_deadline = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let problem = tokio::select! {
            answer = answer => answer.err().map(problem),
            () = client_gone.closed() => Some(client_cancelled()),
            () = at_deadline => Some(Problem::new(Reason::DeadlineExceeded, "the request's deadline passed")),
            () = drain.expired() => {
                Some(Problem::new(Reason::Draining, "the time to drain is over; what was emitted is exact, ask again for the rest"))
            }
        };
        if let Some(problem) = problem {
            let broken = broken_off.take();
            metrics.broken_off(problem.reason, &broken);
            let (reason, detail) = (problem.reason.as_str(), &problem.message);
            let output_tokens: u32 = broken.iter().map(|answer| answer.ledger.output_tokens()).sum();
            if problem.reason == Reason::Cancelled {
                tracing::info!(reason, detail, output_tokens, "answer broken off");
            } else {
                tracing::warn!(reason, detail, output_tokens, "answer broken off");
            }
            for answer in &broken {
                trace::broken_off(answer, problem.reason, prompt_tokens);
            }
            let status = Status::from(problem);
            trace::refused(&tracing::Span::current(), &status);
            let _unheard = client_gone.send(Err(status)).await;
        } else {
            trace::answered(&tracing::Span::current());
        }
        drop(permit);
    }
}

async fn send(events: &mpsc::Sender<Event>, sample: u32, kind: Kind) -> Result<(), GenerateError> {
    let event = v1::GenerateResponse { event: Some(kind), sample };
    events.send(Ok(event)).await.map_err(|_| foretoken_engine::generate::ClientGone.into())
}

/// Nobody reads it, but logs and metrics tell it.
fn client_cancelled() -> Problem {
    Problem::new(Reason::Cancelled, "the client went away")
}

/// What the client is told of an answer that could not be finished.
fn problem(error: GenerateError) -> Problem {
    let text = error.to_string();
    match error {
        GenerateError::ClientGone(_) => client_cancelled(),
        GenerateError::VerifierLost(link) => Problem::new(Reason::VerifierLost, text)
            .with("cause", link.reason)
            .retry_after(Duration::from_secs(1)),
        GenerateError::VerifierTimeout(_) => {
            Problem::new(Reason::VerifierTimeout, text).retry_after(Duration::from_secs(1))
        }
        GenerateError::VerifierRefused { reason, .. } => {
            Problem::new(Reason::VerifierRefused, text).with("cause", reason)
        }
        GenerateError::VerifierProtocol(_) => Problem::new(Reason::VerifierProtocol, text),
    }
}

/// The deadline in the call's `grpc-timeout`: up to eight digits and a unit.
fn deadline(metadata: &MetadataMap) -> Option<Instant> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let value: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    let timeout = match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    };
    Some(Instant::now() + timeout)
}
