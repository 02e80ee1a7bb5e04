//! Answers that were broken off: what was spent on them is known before the reason is.

use std::sync::{Arc, Mutex, PoisonError};

use foretoken_engine::generate::Observer;
use foretoken_engine::ledger::Ledger;
use tracing::Span;

/// Collects the accounts of a request's broken answers. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct BrokenOff(Arc<Mutex<Vec<Broken>>>);

/// An answer that was broken off.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The span that its account goes on; open as long as this is kept.
    pub(crate) span: Span,
    /// What was committed and spent.
    pub(crate) ledger: Ledger,
}

impl BrokenOff {
    /// Watches the answer whose account goes on `span`.
    pub(crate) fn watching(&self, span: &Span) -> Watching {
        Watching { span: span.clone(), broken: self.clone() }
    }

    /// All that were told: at most one for each sample.
    pub(crate) fn take(&self) -> Vec<Broken> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Watches one answer.
#[derive(Debug)]
pub(crate) struct Watching {
    span: Span,
    broken: BrokenOff,
}

impl Observer for Watching {
    fn broken_off(&mut self, ledger: &Ledger) {
        let broken = Broken { span: self.span.clone(), ledger: ledger.clone() };
        self.broken.0.lock().unwrap_or_else(PoisonError::into_inner).push(broken);
    }
}
