//! Counters of a runtime, readable while it runs.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::histogram::{COUNT_BOUNDS, Histogram, HistogramSnapshot, TIME_BOUNDS_US};

/// Written by the model's thread, read by anyone.
#[derive(Debug)]
pub struct Stats {
    pub(crate) sessions: AtomicUsize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) kv_used: AtomicUsize,
    pub(crate) passes: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) shared_passes: AtomicU64,
    pub(crate) busy_us: AtomicU64,
    pub(crate) copied_to_host: AtomicU64,
    pub(crate) stale_frames: AtomicU64,
    pub(crate) repeated_frames: AtomicU64,
    queue_wait_us: Histogram<16>,
    pass_us: Histogram<16>,
    pass_rows: Histogram<11>,
    pass_sessions: Histogram<11>,
    observer: OnceLock<Box<dyn PassObserver>>,
}

/// Is told what happens as it happens, on the model's thread: it must be quick and must not block.
///
/// For histograms that have their own buckets; everything else can be read from [`Stats`] at any time.
pub trait PassObserver: Debug + Send + Sync {
    /// A frame waited so long for the first pass that it was in.
    fn waited(&self, queue: Duration);
    /// A pass took so long, without sampling, and had so many rows and sessions.
    fn passed(&self, took: Duration, rows: usize, sessions: usize);
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            sessions: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            kv_used: AtomicUsize::new(0),
            passes: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            shared_passes: AtomicU64::new(0),
            busy_us: AtomicU64::new(0),
            copied_to_host: AtomicU64::new(0),
            stale_frames: AtomicU64::new(0),
            repeated_frames: AtomicU64::new(0),
            queue_wait_us: Histogram::new(&TIME_BOUNDS_US),
            pass_us: Histogram::new(&TIME_BOUNDS_US),
            pass_rows: Histogram::new(&COUNT_BOUNDS),
            pass_sessions: Histogram::new(&COUNT_BOUNDS),
            observer: OnceLock::new(),
        }
    }
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Sessions held, those in their grace time included.
    pub sessions: usize,
    /// Sessions whose frame waits for its first pass, at the start of the last one.
    pub waiting: usize,
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
    /// Bytes copied from the device's memory to the host's for logits and what follows from them; 0 on the CPU.
    pub copied_to_host: u64,
    /// Frames of an old epoch.
    pub stale_frames: u64,
    /// Frames that came more than once.
    pub repeated_frames: u64,
    /// From a frame's arrival to the start of the first pass that it was in, microseconds.
    pub queue_wait_us: HistogramSnapshot<16>,
    /// Times of passes, without sampling, microseconds.
    pub pass_us: HistogramSnapshot<16>,
    /// Rows of a pass.
    pub pass_rows: HistogramSnapshot<11>,
    /// Sessions of a pass.
    pub pass_sessions: HistogramSnapshot<11>,
}

impl Stats {
    /// Has `observer` told of everything from now on. The first one stays; later ones are dropped.
    pub fn observe(&self, observer: Box<dyn PassObserver>) {
        let _first_one_stays = self.observer.set(observer);
    }

    pub(crate) fn waited(&self, queue_us: u64) {
        self.queue_wait_us.record(queue_us);
        if let Some(observer) = self.observer.get() {
            observer.waited(Duration::from_micros(queue_us));
        }
    }

    pub(crate) fn passed(&self, took: Duration, rows: usize, sessions: usize) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.shared_passes.fetch_add(u64::from(sessions > 1), Ordering::Relaxed);
        self.pass_us.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.pass_rows.record(rows as u64);
        self.pass_sessions.record(sessions as u64);
        if let Some(observer) = self.observer.get() {
            observer.passed(took, rows, sessions);
        }
    }

    /// Reads all counters.
    #[must_use]
    pub fn snapshot(&self) -> StatsSnapshot {
        StatsSnapshot {
            sessions: self.sessions.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            kv_used: self.kv_used.load(Ordering::Relaxed),
            passes: self.passes.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            shared_passes: self.shared_passes.load(Ordering::Relaxed),
            busy_us: self.busy_us.load(Ordering::Relaxed),
            copied_to_host: self.copied_to_host.load(Ordering::Relaxed),
            stale_frames: self.stale_frames.load(Ordering::Relaxed),
            repeated_frames: self.repeated_frames.load(Ordering::Relaxed),
            queue_wait_us: self.queue_wait_us.snapshot(),
            pass_us: self.pass_us.snapshot(),
            pass_rows: self.pass_rows.snapshot(),
            pass_sessions: self.pass_sessions.snapshot(),
        }
    }
}
