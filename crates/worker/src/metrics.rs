//! What a worker tells of itself as metrics.
//!
//! Counters that the runtime keeps anyway are read when somebody looks; only histograms are told as it happens.

use std::sync::Arc;
use std::time::Duration;

use foretoken_proto::error::{Reason, known_reason_of};
use foretoken_runtime::{PassObserver, Runtime, StatsSnapshot};
use foretoken_telemetry::metrics::{Counter, Histogram, KeyValue, Metric, names};
use tokio::sync::Semaphore;
use tonic::Status;

/// A worker's metrics that are counted here. Register them once in a process.
#[derive(Debug)]
pub struct WorkerMetrics {
    refused_opens: Counter<u64>,
}

impl WorkerMetrics {
    /// Of a worker with a model.
    #[must_use]
    pub fn of_runtime(runtime: &Runtime) -> Self {
        let stats = runtime.counters();
        let observe = |metric: Metric, read: fn(&StatsSnapshot) -> f64| {
            let stats = Arc::clone(&stats);
            metric.observe(move |tell| tell(read(&stats.snapshot()), &[]));
        };
        observe(names::SESSIONS, |stats| stats.sessions as f64);
        observe(names::SESSIONS_WAITING, |stats| stats.waiting as f64);
        observe(names::KV_TOKENS_USED, |stats| stats.kv_used as f64);
        observe(names::PASSES, |stats| stats.passes as f64);
        observe(names::SHARED_PASSES, |stats| stats.shared_passes as f64);
        observe(names::ROWS, |stats| stats.rows as f64);
        observe(names::BUSY_SECONDS, |stats| Duration::from_micros(stats.busy_us).as_secs_f64());
        observe(names::STALE_FRAMES, |stats| stats.stale_frames as f64);
        observe(names::REPEATED_FRAMES, |stats| stats.repeated_frames as f64);
        let (kv_tokens, max_sessions) = (runtime.kv_tokens(), runtime.limits().max_sessions);
        names::KV_TOKENS_MAX.observe(move |tell| tell(kv_tokens as f64, &[]));
        names::SESSIONS_MAX.observe(move |tell| tell(max_sessions as f64, &[]));
        stats.observe(Box::new(Passes::new()));
        Self::new()
    }

    /// Of a worker without a model, whose sessions are permits of `room`, all of which are free now.
    #[must_use]
    pub fn of_sessions(room: &Arc<Semaphore>) -> Self {
        let (room, max_sessions) = (Arc::clone(room), room.available_permits());
        names::SESSIONS.observe(move |tell| tell((max_sessions - room.available_permits()) as f64, &[]));
        names::SESSIONS_MAX.observe(move |tell| tell(max_sessions as f64, &[]));
        Self::new()
    }

    fn new() -> Self {
        let refused_opens = names::REFUSED_OPENS.counter();
        for reason in Reason::ALL {
            refused_opens.add(0, &[KeyValue::new(names::REASON, reason.as_str())]);
        }
        Self { refused_opens }
    }

    /// A session was not opened.
    pub fn refused(&self, status: &Status) {
        self.refused_opens.add(1, &[KeyValue::new(names::REASON, known_reason_of(status))]);
    }
}

/// Histograms, recorded on the model's thread.
#[derive(Debug)]
struct Passes {
    queue_wait: Histogram<f64>,
    took: Histogram<f64>,
    rows: Histogram<f64>,
    sessions: Histogram<f64>,
}

impl Passes {
    fn new() -> Self {
        Self {
            queue_wait: names::QUEUE_WAIT.histogram(),
            took: names::PASS_SECONDS.histogram(),
            rows: names::PASS_ROWS.histogram(),
            sessions: names::PASS_SESSIONS.histogram(),
        }
    }
}

impl PassObserver for Passes {
    fn waited(&self, queue: Duration) {
        self.queue_wait.record(queue.as_secs_f64(), &[]);
    }

    fn passed(&self, took: Duration, rows: usize, sessions: usize) {
        self.took.record(took.as_secs_f64(), &[]);
        self.rows.record(rows as f64, &[]);
        self.sessions.record(sessions as f64, &[]);
    }
}
