//! What a traced frame tells of the passes it took part in.
//!
//! Times alone travel with every reply. Whoever wants to draw passes as they happened, and who shared them, sends its
//! frames with an [`Origin`]; frames without one cost nothing here.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Passes of one frame that are told. A long prompt or run takes many more; its times say what all of them cost.
pub const MAX_TRACED_PASSES: usize = 8;

/// Origins that are told of one pass.
pub const MAX_TRACED_PEERS: usize = 16;

/// Who sent a frame, in bytes that mean something to its sender only. It is told to all traced frames that share a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin(pub [u8; 24]);

/// One pass, as a frame that took part in it saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct TracedPass {
    /// When the forward began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
    /// When its logits were turned into what the frame asked for, and how long that took, if the pass gave any.
    pub sampled: Option<(Instant, Duration)>,
    /// Rows of the frame's session.
    pub rows: u32,
    /// All rows.
    pub batch_rows: u32,
    /// All sessions.
    pub batch_sessions: u32,
    /// The traced frames that were in it, this one included: the first [`MAX_TRACED_PEERS`].
    pub frames: Arc<[Origin]>,
}

/// When a frame came, and whether it is traced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) origin: Option<Origin>,
}

impl Arrival {
    pub(crate) fn now(origin: Option<Origin>) -> Self {
        Self { at: Instant::now(), origin }
    }
}

/// The passes of a frame that is being carried out. Empty, and without memory, unless it is traced.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) origin: Option<Origin>,
    passes: Vec<TracedPass>,
    /// The newest pass is the last of `passes`.
    newest_is_told: bool,
}

impl Trace {
    pub(crate) fn new(origin: Option<Origin>) -> Self {
        Self { origin, passes: Vec::new(), newest_is_told: false }
    }

    /// The frame took part in a pass.
    pub(crate) fn pass(&mut self, pass: impl FnOnce() -> TracedPass) {
        self.newest_is_told = self.origin.is_some() && self.passes.len() < MAX_TRACED_PASSES;
        if self.newest_is_told {
            self.passes.push(pass());
        }
    }

    /// The newest pass's logits were used.
    pub(crate) fn sampled(&mut self, began: Instant, took: Duration) {
        if self.newest_is_told
            && let Some(pass) = self.passes.last_mut()
        {
            pass.sampled = Some((began, took));
        }
    }

    /// What there is to tell; nothing of a frame that is not traced.
    pub(crate) fn take(&mut self) -> Option<Vec<TracedPass>> {
        self.origin.map(|_| std::mem::take(&mut self.passes))
    }
}
