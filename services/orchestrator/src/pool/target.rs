//! The model that all verifiers of a pool run.

use std::sync::{Arc, RwLock};

use foretoken_proto::v1::WorkerDescription;
use foretoken_text::Tokenizer;

/// What requests need to know of the target model. Taken from the first verifier that answered.
#[derive(Debug)]
pub struct Target {
    /// Its tokenizer and chat template.
    pub tokenizer: Tokenizer,
    /// What the verifier said of itself.
    pub description: WorkerDescription,
}

/// The target, once known.
#[derive(Debug, Default)]
pub(super) struct TargetCell(RwLock<Option<Arc<Target>>>);

impl TargetCell {
    pub(super) fn get(&self) -> Option<Arc<Target>> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Makes `target` the pool's.
    pub(super) fn set(&self, target: Target) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Arc::new(target));
    }
}
