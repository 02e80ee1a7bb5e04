//! The workers an orchestrator knows, and which of them can be used now.
//!
//! One task per worker (`watch`) asks what it runs and follows its health, one task per name (`names`) finds the workers
//! under it; requests only read. The first
//! verifier that answers defines the pool's [`Target`]; workers that do not fit it are left out, with a
//! reason.

mod members;
mod names;
mod target;
mod watch;
mod worker;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use foretoken_engine::conversation::DraftOpen;
use foretoken_engine::link::{DrafterSource, LinkError};
use foretoken_proto::error::{Problem, Reason};
use foretoken_proto::v1;
use foretoken_transport::{HealthSwitch, TransportError};
use tonic::Status;

use crate::args::Config;
use crate::remote::{InUse, Remote, RemoteDrafter, RemoteVerifier, link_error};
use members::{Members, Name};
pub use target::Target;
use target::TargetCell;
pub use worker::Worker;

/// All workers.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    verifiers: Members,
    draft_workers: Members,
    target: TargetCell,
    /// Held while it is decided whose model is the pool's.
    deciding: Mutex<()>,
    health: HealthSwitch,
}

/// What a worker is asked to do.
#[derive(Debug, Clone, Copy)]
enum Role {
    Verify,
    Draft,
}

/// Largest reply taken from a worker.
const MAX_REPLY_BYTES: usize = 16 << 20;

impl Pool {
    /// Starts watching the configured workers. They may come up later.
    ///
    /// # Errors
    /// If an address is malformed.
    pub fn connect(config: &Config, health: HealthSwitch) -> Result<Self, TransportError> {
        let members = || Members::over(config.worker_tls.clone());
        let (mut verifiers, mut draft_workers) = (members(), members());
        verifiers.add(&config.verifiers, true)?;
        draft_workers.add(&config.draft_workers, true)?;
        draft_workers.add(&config.untrusted_draft_workers, false)?;
        let inner = Arc::new(Inner {
            verifiers,
            draft_workers,
            target: TargetCell::default(),
            deciding: Mutex::new(()),
            health,
        });
        for role in [Role::Verify, Role::Draft] {
            inner.watch(role, inner.members(role).all());
            for name in inner.members(role).names() {
                tokio::spawn(names::follow(Arc::downgrade(&inner), role, Arc::clone(name)));
            }
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
        for worker in by_load(self.0.verifiers.all(), |_| true) {
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
        for worker in by_load(self.0.draft_workers.all(), fits) {
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
        let workers = self.0.draft_workers.all();
        if let Some(worker) = workers.iter().find(|worker| worker.is_of(kind) && worker.is_ready()) {
            let message = format!(
                "{} drafts for texts of up to {} tokens; this request may reach {reserve_len}",
                worker.name(),
                worker.max_context()
            );
            return error("DRAFT_CONTEXT_TOO_SHORT", message);
        }
        // A reason that is about more than reachability says most.
        let states = self.0.draft_workers.states();
        let telling = states.iter().find(|state| state.reason == Reason::TokenizerMismatch.as_str());
        match telling {
            Some(state) => error(&state.reason, state.message.clone()),
            None => error(Reason::NoDrafter.as_str(), list("no draft worker is ready", &states)),
        }
    }

    fn no_verifier(&self) -> Problem {
        let states = self.0.verifiers.states();
        Problem::new(Reason::NoVerifier, list("no verifier is ready", &states))
            .retry_after(std::time::Duration::from_secs(1))
    }

    /// Reads how many workers of each role are ready, and how many there are; nothing once the pool is gone.
    pub(crate) fn readiness(&self) -> impl Fn() -> std::vec::IntoIter<(&'static str, usize, usize)> + use<> {
        let inner = Arc::downgrade(&self.0);
        let role = |name, members: &Members| {
            let workers = members.all();
            (name, workers.iter().filter(|worker| worker.is_ready()).count(), workers.len())
        };
        move || {
            let roles = inner.upgrade().map(|inner| {
                vec![role("verifier", &inner.verifiers), role("draft_worker", &inner.draft_workers)]
            });
            roles.unwrap_or_default().into_iter()
        }
    }

    /// What Describe says of the workers.
    #[must_use]
    pub fn states(&self) -> (Vec<v1::WorkerState>, Vec<v1::WorkerState>) {
        (self.0.verifiers.states(), self.0.draft_workers.states())
    }
}

impl Inner {
    fn members(&self, role: Role) -> &Members {
        match role {
            Role::Verify => &self.verifiers,
            Role::Draft => &self.draft_workers,
        }
    }

    /// Follows each of these until it is dismissed.
    fn watch(self: &Arc<Self>, role: Role, workers: Vec<Arc<Worker>>) {
        for worker in workers {
            let pool = Arc::downgrade(self);
            tokio::spawn(async move {
                let watched = Arc::clone(&worker);
                let watch = async {
                    match role {
                        Role::Verify => watch::verifier(pool, watched).await,
                        Role::Draft => watch::draft_worker(pool, watched).await,
                    }
                };
                tokio::select! {
                    () = worker.dismissed() => {}
                    () = watch => {}
                }
            });
        }
    }

    /// Makes the workers under `name` those at `addresses`.
    fn agree(
        self: &Arc<Self>,
        role: Role,
        name: &Arc<Name>,
        addresses: &[SocketAddr],
    ) -> Result<(), TransportError> {
        let new = self.members(role).agree(name, addresses)?;
        self.watch(role, new);
        self.publish_health();
        Ok(())
    }

    /// Health follows the verifiers: with none there is nothing to generate with.
    fn publish_health(&self) {
        self.health.set_serving(self.verifiers.all().iter().any(|worker| worker.is_ready()));
    }
}

/// The ready workers that `fit`, those with the fewest sessions first.
fn by_load(mut workers: Vec<Arc<Worker>>, fit: impl Fn(&Worker) -> bool) -> Vec<Arc<Worker>> {
    workers.retain(|worker| worker.is_ready() && fit(worker));
    workers.sort_by_key(|worker| worker.load());
    workers
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
