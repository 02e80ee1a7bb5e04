//! The workers an orchestrator knows, and which of them can be used now.
//!
//! One task per worker (`watch`) asks what it runs and follows its health; requests only read. The first
//! verifier that answers defines the pool's [`Target`]; workers that do not fit it are left out, with a
//! reason.

mod target;
mod watch;
mod worker;

use std::sync::{Arc, Mutex};

use foretoken_engine::conversation::DraftOpen;
use foretoken_engine::link::{DrafterSource, LinkError};
use foretoken_proto::error::{Problem, Reason};
use foretoken_proto::v1;
use foretoken_transport::{HealthSwitch, TransportError};
use tonic::Status;

use crate::args::Config;
use crate::remote::{InUse, Remote, RemoteDrafter, RemoteVerifier, link_error};
pub use target::Target;
use target::TargetCell;
pub use worker::Worker;

/// All workers.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    verifiers: Vec<Arc<Worker>>,
    draft_workers: Vec<Arc<Worker>>,
    target: TargetCell,
    /// Held while it is decided whose model is the pool's.
    deciding: Mutex<()>,
    health: HealthSwitch,
}

/// Largest reply taken from a worker.
const MAX_REPLY_BYTES: usize = 16 << 20;

impl Pool {
    /// Starts watching the configured workers. They may come up later.
    ///
    /// # Errors
    /// If an address is malformed.
    pub fn connect(config: &Config, health: HealthSwitch) -> Result<Self, TransportError> {
        let inner = Arc::new(Inner {
            verifiers: workers(&config.verifiers, true)?,
            draft_workers: draft_workers(config)?,
            target: TargetCell::default(),
            deciding: Mutex::new(()),
            health,
        });
        for worker in &inner.verifiers {
            tokio::spawn(watch::verifier(Arc::downgrade(&inner), Arc::clone(worker)));
        }
        for worker in &inner.draft_workers {
            tokio::spawn(watch::draft_worker(Arc::downgrade(&inner), Arc::clone(worker)));
        }
        Ok(Self(inner))
    }

    /// The pool's target model.
    ///
    /// # Errors
    /// NO_VERIFIER until a verifier has answered, saying what each one's state is.
    pub fn target(&self) -> Result<Arc<Target>, Problem> {
        self.0.target.get().ok_or_else(|| self.no_verifier())
    }

    /// Opens a session at the ready verifier with the fewest sessions; the next one if it refuses for lack
    /// of room.
    ///
    /// # Errors
    /// NO_VERIFIER, or the last one's refusal.
    pub async fn open_verifier(
        &self,
        open: &foretoken_engine::conversation::VerifyOpen,
    ) -> Result<RemoteVerifier, Status> {
        let mut refusal = None;
        for worker in by_load(&self.0.verifiers, |_| true) {
            match self.open_at(&worker, open).await {
                Ok(remote) => return Ok(remote.learning(Arc::clone(worker.steps()))),
                Err(status) => {
                    tracing::warn!(worker = worker.address(), %status, "verifier refused a session");
                    refusal = Some(status);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| self.no_verifier().into()))
    }

    async fn open_at<P: crate::remote::Protocol>(
        &self,
        worker: &Worker,
        open: &P::Open,
    ) -> Result<Remote<P>, Status> {
        let in_use = InUse::of(worker.in_use());
        Remote::open(worker.channel(), MAX_REPLY_BYTES, worker.name(), open, in_use).await
    }

    /// Where a request's drafters come from.
    #[must_use]
    pub fn drafters(&self, kind: v1::DrafterKind) -> Drafters {
        Drafters { pool: self.clone(), kind }
    }

    /// Opens a session at the ready draft worker of the wanted kind with the fewest sessions.
    async fn open_drafter(
        &self,
        kind: v1::DrafterKind,
        open: &DraftOpen,
    ) -> Result<RemoteDrafter, LinkError> {
        let reserve_len = open.session.reserve_len;
        let fits = |worker: &Worker| worker.is_of(kind) && worker.max_context() >= reserve_len;
        let mut refusal = None;
        for worker in by_load(&self.0.draft_workers, fits) {
            let opened = if worker.is_trusted() {
                self.open_at(&worker, open).await
            } else {
                self.open_at(&worker, &open.clone().untrusted()).await.map(Remote::untrusted)
            };
            match opened {
                Ok(remote) => return Ok(remote),
                Err(status) => {
                    tracing::warn!(worker = worker.address(), %status, "draft worker refused a session");
                    refusal = Some(link_error(&status));
                }
            }
        }
        Err(refusal.unwrap_or_else(|| self.no_drafter(kind, reserve_len)))
    }

    fn no_drafter(&self, kind: v1::DrafterKind, reserve_len: usize) -> LinkError {
        let error = |reason: &str, message| LinkError { reason: reason.into(), message };
        if self.0.draft_workers.is_empty() {
            return error(
                Reason::NoDrafter.as_str(),
                "no draft workers are configured; see --draft-workers".into(),
            );
        }
        let of_kind: Vec<_> = self.0.draft_workers.iter().filter(|worker| worker.is_of(kind)).collect();
        if let Some(worker) = of_kind.iter().find(|worker| worker.is_ready()) {
            let message = format!(
                "{} drafts for texts of up to {} tokens; this request may reach {reserve_len}",
                worker.name(),
                worker.max_context()
            );
            return error("DRAFT_CONTEXT_TOO_SHORT", message);
        }
        // A reason that is about more than reachability says most.
        let states: Vec<_> = self.0.draft_workers.iter().map(|worker| worker.state()).collect();
        let telling = states.iter().find(|state| state.reason == Reason::TokenizerMismatch.as_str());
        match telling {
            Some(state) => error(&state.reason, state.message.clone()),
            None => error(Reason::NoDrafter.as_str(), list("no draft worker is ready", &states)),
        }
    }

    fn no_verifier(&self) -> Problem {
        let states: Vec<_> = self.0.verifiers.iter().map(|worker| worker.state()).collect();
        Problem::new(Reason::NoVerifier, list("no verifier is ready", &states))
            .retry_after(std::time::Duration::from_secs(1))
    }

    /// Reads how many workers of each role are ready, and how many there are; nothing once the pool is gone.
    pub(crate) fn readiness(&self) -> impl Fn() -> std::vec::IntoIter<(&'static str, usize, usize)> + use<> {
        let inner = Arc::downgrade(&self.0);
        let count = |workers: &[Arc<Worker>]| workers.iter().filter(|worker| worker.is_ready()).count();
        move || {
            let roles = inner.upgrade().map(|inner| {
                let (verifiers, draft_workers) = (&inner.verifiers, &inner.draft_workers);
                vec![
                    ("verifier", count(verifiers), verifiers.len()),
                    ("draft_worker", count(draft_workers), draft_workers.len()),
                ]
            });
            roles.unwrap_or_default().into_iter()
        }
    }

    /// What Describe says of the workers.
    #[must_use]
    pub fn states(&self) -> (Vec<v1::WorkerState>, Vec<v1::WorkerState>) {
        let states = |workers: &[Arc<Worker>]| workers.iter().map(|worker| worker.state()).collect();
        (states(&self.0.verifiers), states(&self.0.draft_workers))
    }
}

impl Inner {
    /// Health follows the verifiers: with none there is nothing to generate with.
    fn publish_health(&self) {
        self.health.set_serving(self.verifiers.iter().any(|worker| worker.is_ready()));
    }
}

fn workers(addresses: &[String], trusted: bool) -> Result<Vec<Arc<Worker>>, TransportError> {
    addresses.iter().map(|address| Worker::new(address, trusted).map(Arc::new)).collect()
}

fn draft_workers(config: &Config) -> Result<Vec<Arc<Worker>>, TransportError> {
    let mut all = workers(&config.draft_workers, true)?;
    all.extend(workers(&config.untrusted_draft_workers, false)?);
    Ok(all)
}

/// The ready workers that `fit`, those with the fewest sessions first.
fn by_load(workers: &[Arc<Worker>], fit: impl Fn(&Worker) -> bool) -> Vec<Arc<Worker>> {
    let mut ready: Vec<_> =
        workers.iter().filter(|worker| worker.is_ready() && fit(worker)).cloned().collect();
    ready.sort_by_key(|worker| worker.load());
    ready
}

fn list(summary: &str, states: &[v1::WorkerState]) -> String {
    let each: Vec<_> = states.iter().map(|state| format!("{}: {}", state.address, state.message)).collect();
    format!("{summary} ({})", each.join("; "))
}

/// Opens drafters of one kind for one request.
#[derive(Debug, Clone)]
pub struct Drafters {
    pool: Pool,
    kind: v1::DrafterKind,
}

impl DrafterSource for Drafters {
    type Drafter = RemoteDrafter;

    fn open(
        &mut self,
        open: DraftOpen,
    ) -> impl Future<Output = Result<RemoteDrafter, LinkError>> + Send + 'static {
        let Self { pool, kind } = self.clone();
        async move { pool.open_drafter(kind, &open).await }
    }
}
