//! One worker as the pool knows it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use foretoken_proto::v1;
use foretoken_transport::{ChannelConfig, TransportError, channel};
use tonic::transport::Channel;

/// A worker's address, connection and state.
#[derive(Debug)]
pub struct Worker {
    address: String,
    channel: Channel,
    in_use: Arc<AtomicUsize>,
    fit: RwLock<Fit>,
}

/// Whether a worker can be used.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    pub(super) ready: bool,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) description: Option<v1::WorkerDescription>,
}

impl Worker {
    pub(super) fn new(address: &str) -> Result<Self, TransportError> {
        let fit = Fit {
            ready: false,
            reason: "NOT_CONNECTED".into(),
            message: "has not answered yet".into(),
            description: None,
        };
        Ok(Self {
            address: address.to_owned(),
            channel: channel(address, &ChannelConfig::default())?,
            in_use: Arc::default(),
            fit: RwLock::new(fit),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(super) fn in_use(&self) -> &Arc<AtomicUsize> {
        &self.in_use
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
            tracing::warn!(worker = self.address, reason = fit.reason, message = fit.message, "worker not ready");
        }
        *self.fit.write().unwrap_or_else(std::sync::PoisonError::into_inner) = fit;
    }

    /// Whether it takes sessions now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.read(|fit| fit.ready)
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
        let without_weights =
            self.read(|fit| fit.description.as_ref().map(|description| description.model_fingerprint.is_empty()));
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
