//! Follows one worker: what it runs, whether it fits the target, whether it is healthy.

use std::sync::{Arc, Weak};
use std::time::Duration;

use foretoken_engine::ledger::PassTime;
use foretoken_proto::v1::draft_worker_client::DraftWorkerClient;
use foretoken_proto::v1::target_verifier_client::TargetVerifierClient;
use foretoken_proto::v1::{DescribeRequest, TokenizerChunk, TokenizerRequest, WorkerDescription};
use foretoken_proto::{PROTOCOL_VERSION, error::Reason, service_name};
use foretoken_text::Tokenizer;
use tonic::{Code, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::target::Target;
use super::worker::{Fit, Worker};
use super::{Inner, MAX_REPLY_BYTES};

const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(2);
/// A worker that takes longer to say what it is counts as unreachable.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// A bundle is a few MiB; this keeps a confused peer from filling our memory.
const MAX_BUNDLE_BYTES: usize = 256 << 20;

/// Why a worker cannot be used now.
struct Unfit {
    reason: String,
    message: String,
    description: Option<Box<WorkerDescription>>,
}

impl Unfit {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into(), description: None }
    }
}

impl From<Status> for Unfit {
    fn from(status: Status) -> Self {
        if status.code() == Code::Unimplemented {
            let message = "does not provide the service: it is still loading, or the address is another's";
            return Self::new("NOT_PROVIDED", message);
        }
        let source = std::error::Error::source(&status).map(|source| format!(": {}", innermost(source)));
        Self::new("UNREACHABLE", format!("{}{}", status.message(), source.unwrap_or_default()))
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}

/// Follows a verifier for as long as the pool lives.
pub(super) async fn verifier(pool: Weak<Inner>, worker: Arc<Worker>) {
    follow(pool, worker, service_name::TARGET_VERIFIER, async |pool, worker| {
        let mut client =
            TargetVerifierClient::new(worker.channel()).max_decoding_message_size(MAX_REPLY_BYTES);
        let description = client.describe(DescribeRequest {}).await?.into_inner();
        check_version(&description)?;
        if pool.target.get().is_some_and(|target| same_model(&target.description, &description)) {
            return pool.take_in(&worker, None, description);
        }
        let tokenizer = read_tokenizer(client.tokenizer(TokenizerRequest {}).await?.into_inner()).await?;
        if tokenizer.fingerprint() != description.tokenizer_fingerprint {
            let message = "sent a tokenizer that is not the one it describes";
            return Err(Unfit::new(Reason::TokenizerMismatch.as_str(), message));
        }
        pool.take_in(&worker, Some(tokenizer), description)
    })
    .await;
}

/// Follows a draft worker for as long as the pool lives.
pub(super) async fn draft_worker(pool: Weak<Inner>, worker: Arc<Worker>) {
    follow(pool, worker, service_name::DRAFT_WORKER, async |pool, worker| {
        let mut client = DraftWorkerClient::new(worker.channel()).max_decoding_message_size(MAX_REPLY_BYTES);
        let description = client.describe(DescribeRequest {}).await?.into_inner();
        check_version(&description)?;
        let Some(target) = pool.target.get() else {
            return Err(Unfit::new(
                Reason::NoVerifier.as_str(),
                "waits for the first verifier to say what fits",
            ));
        };
        let theirs = &description.tokenizer_fingerprint;
        if theirs.is_empty() || *theirs == target.description.tokenizer_fingerprint {
            return Ok(description);
        }
        let message = if description.model_fingerprint.is_empty() {
            table_mismatch(&target, &description)
        } else {
            let bundle = client.tokenizer(TokenizerRequest {}).await?.into_inner();
            mismatch(&target, &description, &read_tokenizer(bundle).await?)
        };
        Err(Unfit {
            description: Some(Box::new(description)),
            ..Unfit::new(Reason::TokenizerMismatch.as_str(), message)
        })
    })
    .await;
}

impl Inner {
    /// Takes a verifier in if it runs the pool's model. Where nobody runs that any more, as at the start and after a
    /// whole pool was replaced, its own model becomes the pool's.
    fn take_in(
        &self,
        worker: &Arc<Worker>,
        tokenizer: Option<Tokenizer>,
        description: WorkerDescription,
    ) -> Result<WorkerDescription, Unfit> {
        // Of verifiers that answer at the same time one decides.
        let _decided = self.deciding.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let target = self.target.get();
        let fits = target.as_ref().is_some_and(|target| same_model(&target.description, &description));
        match (target, tokenizer) {
            _ if fits => {}
            (Some(target), _)
                if self
                    .verifiers
                    .all()
                    .iter()
                    .any(|other| !Arc::ptr_eq(other, worker) && other.is_taken_in()) =>
            {
                let ours = &target.description;
                let message = format!(
                    "runs {} ({}), the pool runs {} ({}); all verifiers of a pool must run the same model",
                    description.model, description.model_fingerprint, ours.model, ours.model_fingerprint
                );
                return Err(Unfit {
                    description: Some(Box::new(description)),
                    ..Unfit::new(Reason::ModelMismatch.as_str(), message)
                });
            }
            (_, Some(tokenizer)) => {
                tracing::info!(model = description.model, "target model known");
                self.target.set(Target { tokenizer, description: description.clone() });
            }
            // The target changed in the meantime, and went: ask again.
            (_, None) => {
                return Err(Unfit::new("NOT_CONNECTED", "described a model that the pool has just left"));
            }
        }
        let measured: Vec<_> = description.pass_times.iter().copied().map(PassTime::from).collect();
        worker.steps().begin(&measured);
        worker.set(Fit::taken_in(description.clone()));
        Ok(description)
    }
}

/// Names both models, sizes, fingerprints and the first token that differs.
fn mismatch(target: &Target, theirs: &WorkerDescription, tokenizer: &Tokenizer) -> String {
    let ours = &target.description;
    let difference = target.tokenizer.first_difference(tokenizer);
    format!(
        "the tokenizer of {} ({} tokens, {}) is not that of {} ({} tokens, {}); {}",
        theirs.model,
        theirs.vocab_size,
        theirs.tokenizer_fingerprint,
        ours.model,
        ours.vocab_size,
        ours.tokenizer_fingerprint,
        difference.map_or_else(|| "no single token differs".to_owned(), |difference| difference.to_string())
    )
}

/// Names both fingerprints. A drafter without a model has no tokenizer to compare, only the fingerprint in its table.
fn table_mismatch(target: &Target, theirs: &WorkerDescription) -> String {
    let ours = &target.description;
    format!(
        "the n-gram table of {} was counted with the tokenizer {} ({} tokens), {} has {} ({} tokens); \
         build a table for it with `foretoken ngram build`, or run the draft worker without one",
        theirs.model,
        theirs.tokenizer_fingerprint,
        theirs.vocab_size,
        ours.model,
        ours.tokenizer_fingerprint,
        ours.vocab_size
    )
}

fn same_model(ours: &WorkerDescription, theirs: &WorkerDescription) -> bool {
    ours.model_fingerprint == theirs.model_fingerprint
        && ours.tokenizer_fingerprint == theirs.tokenizer_fingerprint
}

fn check_version(description: &WorkerDescription) -> Result<(), Unfit> {
    if description.protocol_version == PROTOCOL_VERSION {
        return Ok(());
    }
    let message = format!(
        "speaks protocol version {}, this orchestrator speaks {PROTOCOL_VERSION}; run the same major version",
        description.protocol_version
    );
    Err(Unfit::new("PROTOCOL_MISMATCH", message))
}

async fn read_tokenizer(mut chunks: Streaming<TokenizerChunk>) -> Result<Tokenizer, Unfit> {
    let mut bundle = Vec::new();
    while let Some(chunk) = chunks.message().await? {
        if bundle.len() + chunk.data.len() > MAX_BUNDLE_BYTES {
            let message = format!("its tokenizer is larger than {} MiB", MAX_BUNDLE_BYTES >> 20);
            return Err(Unfit::new(Reason::TokenizerMismatch.as_str(), message));
        }
        bundle.extend_from_slice(&chunk.data);
    }
    let parsed = tokio::task::spawn_blocking(move || Tokenizer::from_bundle(&bundle)).await;
    match parsed {
        Ok(Ok(tokenizer)) => Ok(tokenizer),
        Ok(Err(error)) => Err(Unfit::new("UNREADABLE_TOKENIZER", error.to_string())),
        Err(error) => Err(Unfit::new("UNREADABLE_TOKENIZER", error.to_string())),
    }
}

/// Describe, check, then watch health until it breaks; and again.
async fn follow(
    pool: Weak<Inner>,
    worker: Arc<Worker>,
    service: &'static str,
    describe: impl AsyncFn(Arc<Inner>, Arc<Worker>) -> Result<WorkerDescription, Unfit>,
) {
    let mut retry = FIRST_RETRY;
    loop {
        let Some(alive) = pool.upgrade() else { return };
        let described = tokio::time::timeout(DESCRIBE_TIMEOUT, describe(alive, Arc::clone(&worker))).await;
        let unfit = match described {
            Ok(Ok(description)) => {
                retry = FIRST_RETRY;
                watch_health(&pool, &worker, service, description).await
            }
            Ok(Err(unfit)) => unfit,
            Err(_) => {
                Unfit::new("UNREACHABLE", format!("did not answer within {} s", DESCRIBE_TIMEOUT.as_secs()))
            }
        };
        let Some(alive) = pool.upgrade() else { return };
        let Unfit { reason, message, description } = unfit;
        worker.set(Fit {
            ready: false,
            reason,
            message,
            description: description.map(|described| *described),
        });
        alive.publish_health();
        drop(alive);
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(LAST_RETRY);
    }
}

/// Keeps the worker's state in step with its health; returns when the connection breaks.
async fn watch_health(
    pool: &Weak<Inner>,
    worker: &Worker,
    service: &'static str,
    description: WorkerDescription,
) -> Unfit {
    let request = HealthCheckRequest { service: service.to_owned() };
    let mut statuses = match HealthClient::new(worker.channel()).watch(request).await {
        Ok(statuses) => statuses.into_inner(),
        Err(status) => return status.into(),
    };
    loop {
        match statuses.message().await {
            Ok(Some(health)) => {
                let fit = match health.status() {
                    ServingStatus::Serving => Fit::ready(description.clone()),
                    other => {
                        Fit::not_serving(format!("reports {}", other.as_str_name()), description.clone())
                    }
                };
                let Some(pool) = pool.upgrade() else { return Unfit::new("POOL_GONE", "the pool is gone") };
                worker.set(fit);
                pool.publish_health();
            }
            Ok(None) => return Unfit::new("UNREACHABLE", "ended its health stream"),
            Err(status) => return status.into(),
        }
    }
}
