//! Counters of a runtime, readable while it runs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Written by the model's thread, read by anyone.
#[derive(Debug, Default)]
pub struct Stats {
    pub(crate) sessions: AtomicUsize,
    pub(crate) kv_used: AtomicUsize,
    pub(crate) passes: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) shared_passes: AtomicU64,
    pub(crate) busy_us: AtomicU64,
    pub(crate) stale_frames: AtomicU64,
    pub(crate) repeated_frames: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatsSnapshot {
    /// Sessions held, those in their grace time included.
    pub sessions: usize,
    /// Positions reserved in the KV cache.
    pub kv_used: usize,
    /// Passes made.
    pub passes: u64,
    /// Rows of all passes.
    pub rows: u64,
    /// Passes that more than one session shared.
    pub shared_passes: u64,
    /// Time spent in passes and sampling, microseconds.
    pub busy_us: u64,
    /// Frames of an old epoch.
    pub stale_frames: u64,
    /// Frames that came more than once.
    pub repeated_frames: u64,
}

impl Stats {
    /// Reads all counters.
    #[must_use]
    pub fn snapshot(&self) -> StatsSnapshot {
        StatsSnapshot {
            sessions: self.sessions.load(Ordering::Relaxed),
            kv_used: self.kv_used.load(Ordering::Relaxed),
            passes: self.passes.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            shared_passes: self.shared_passes.load(Ordering::Relaxed),
            busy_us: self.busy_us.load(Ordering::Relaxed),
            stale_frames: self.stale_frames.load(Ordering::Relaxed),
            repeated_frames: self.repeated_frames.load(Ordering::Relaxed),
        }
    }
}
