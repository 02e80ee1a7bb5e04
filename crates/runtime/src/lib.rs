//! One model on one thread: sessions, continuous batching, verdicts.
//!
//! [`Runtime`] owns a [`Decoder`](decoder::Decoder) on a thread of its own. Callers open sessions and exchange frames and
//! replies of `foretoken-engine`'s conversation; the thread gathers the rows that all sessions want into
//! passes, and turns logits into verdicts, plain tokens or drafts where they are.
//!
//! Never here: gRPC, candle, text. The way of a frame: `handle` → `thread` → `session` (agree on the
//! text, queue) → `pass` (one forward for everyone) → `judge` → reply.

mod config;
pub mod decoder;
mod handle;
mod histogram;
mod judge;
mod pass;
mod session;
mod stats;
mod thread;
mod traced;

pub use config::{Limits, RuntimeConfig, StartError};
pub use handle::{DraftSession, Ended, Event, OpenError, QueueFull, Runtime, VerifySession};
pub use histogram::{COUNT_BOUNDS, HistogramSnapshot, TIME_BOUNDS_US};
pub use stats::{PassObserver, Stats, StatsSnapshot};
pub use traced::{MAX_TRACED_PASSES, MAX_TRACED_PEERS, Origin, TracedPass};
