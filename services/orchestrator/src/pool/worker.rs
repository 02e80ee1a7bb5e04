//! One worker as the pool knows it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use foretoken_engine::ledger::Steps;
use foretoken_proto::v1;
use foretoken_transport::{ChannelConfig, MeteredChannel, TransportError, metered_channel};
use tokio_util::sync::CancellationToken;

/// A worker's address, connection and state.
#[derive(Debug)]
pub struct Worker {
    address: String,
    trusted: bool,
    channel: MeteredChannel,
    in_use: Arc<AtomicUsize>,
    steps: Arc<Steps>,
    fit: RwLock<Fit>,
    dismissed: CancellationToken,
}

/// Whether a worker can be used.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    pub(super) ready: bool,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) description: Option<v1::WorkerDescription>,
}

/// Its model fits; whether it serves is still to be heard, or it says that it does not.
const NOT_SERVING: &str = "NOT_SERVING";

impl Fit {
    /// Of a worker whose model fits and whose health is not known yet.
    pub(super) fn taken_in(description: v1::WorkerDescription) -> Self {
        Self::not_serving("has not reported its health yet".into(), description)
    }

    /// Of a worker whose model fits and that does not serve.
    pub(super) fn not_serving(message: String, description: v1::WorkerDescription) -> Self {
        Self { ready: false, reason: NOT_SERVING.into(), message, description: Some(description) }
    }

    /// Of a worker that takes sessions.
    pub(super) fn ready(description: v1::WorkerDescription) -> Self {
        Self { ready: true, reason: String::new(), message: String::new(), description: Some(description) }
    }
}

impl Worker {
    pub(super) fn new(address: &str, trusted: bool, link: &ChannelConfig) -> Result<Self, TransportError> {
        let fit = Fit {
            ready: false,
            reason: "NOT_CONNECTED".into(),
            message: "has not answered yet".into(),
            description: None,
        };
        Ok(Self {
            address: address.to_owned(),
            trusted,
            channel: metered_channel(address, link)?,
            in_use: Arc::default(),
            steps: Arc::default(),
            fit: RwLock::new(fit),
            dismissed: CancellationToken::new(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether what it says of its proposals is believed.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }

    pub(super) fn channel(&self) -> MeteredChannel {
        self.channel.clone()
    }

    pub(super) fn in_use(&self) -> &Arc<AtomicUsize> {
        &self.in_use
    }

    /// What its passes take.
    pub(super) fn steps(&self) -> &Arc<Steps> {
        &self.steps
    }

    /// Sessions this orchestrator has open there.
    #[must_use]
    pub fn load(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    fn read<T>(&self, f: impl FnOnce(&Fit) -> T) -> T {
        f(&self.fit.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    pub(super) fn set(&self, fit: Fit) {
        if fit.ready {
            tracing::info!(worker = self.address, "worker ready");
        } else if self.read(|old| old.reason != fit.reason) {
            tracing::warn!(
                worker = self.address,
                reason = fit.reason,
                detail = fit.message,
                "worker not ready"
            );
        }
        *self.fit.write().unwrap_or_else(std::sync::PoisonError::into_inner) = fit;
    }

    /// It is in the pool no longer: nobody need follow it.
    pub(super) fn dismiss(&self) {
        tracing::info!(worker = self.address, "worker left");
        self.dismissed.cancel();
    }

    /// Resolves once it is dismissed.
    pub(super) async fn dismissed(&self) {
        self.dismissed.cancelled().await;
    }

    #[cfg(test)]
    pub(super) fn is_dismissed(&self) -> bool {
        self.dismissed.is_cancelled()
    }

    /// Whether it takes sessions now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.read(|fit| fit.ready)
    }

    /// Whether its model fits and it is there, serving or not.
    pub(super) fn is_taken_in(&self) -> bool {
        self.read(|fit| fit.ready || fit.reason == NOT_SERVING)
    }

    /// Its model's name, or its address while that is unknown.
    #[must_use]
    pub fn name(&self) -> String {
        self.read(|fit| fit.description.as_ref().map(|description| description.model.clone()))
            .unwrap_or_else(|| self.address.clone())
    }

    /// Longest text it takes.
    #[must_use]
    pub fn max_context(&self) -> usize {
        self.read(|fit| fit.description.as_ref().map_or(0, |description| description.max_context as usize))
    }

    /// Whether it drafts the wanted way.
    #[must_use]
    pub fn is_of(&self, kind: v1::DrafterKind) -> bool {
        let without_weights = self
            .read(|fit| fit.description.as_ref().map(|description| description.model_fingerprint.is_empty()));
        match kind {
            v1::DrafterKind::Unspecified => true,
            v1::DrafterKind::Model => without_weights == Some(false),
            v1::DrafterKind::Ngram => without_weights == Some(true),
            v1::DrafterKind::None => false,
        }
    }

    /// What Describe says of it.
    #[must_use]
    pub fn state(&self) -> v1::WorkerState {
        self.read(|fit| v1::WorkerState {
            address: self.address.clone(),
            ready: fit.ready,
            reason: fit.reason.clone(),
            message: fit.message.clone(),
            description: fit.description.clone(),
        })
    }
}
