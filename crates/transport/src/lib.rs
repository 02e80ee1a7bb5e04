//! What every Foretoken service shares: listening, health, limits, drain, the channels between them, TLS under both, and
//! the count of the bytes they carry ([`wire`](wire_connections())).
//!
//! A service's `main` flattens [`ListenArgs`] into its arguments, loads what it serves while [`loading()`] answers for
//! it, and ends in [`serve()`]; a client opens a [`channel()`]. Tests do the same on port 0 with a shutdown of their own.
//!
//! What this crate does not do: it knows no message and no service of ours, it does not load models, and it
//! sets no time limit on a stream, because a stream lives as long as its session.

mod args;
mod channel;
mod connector;
mod drain;
mod duration;
mod error;
mod health;
mod healthcheck;
mod incoming;
mod loading;
mod map_status;
mod serve;
mod signal;
mod tls;
mod watched;
mod wire;

pub use args::{DEFAULT_MAX_MESSAGE_BYTES, ListenArgs};
pub use channel::{ChannelConfig, channel, is_encrypted, metered_channel, wait_healthy};
pub use drain::Drain;
pub use duration::{ParseDurationError, parse_duration};
pub use error::TransportError;
pub use health::HealthSwitch;
pub use healthcheck::{HealthcheckArgs, Invocation};
pub use loading::loading;
pub use map_status::MapStatus;
pub use serve::{ServerConfig, serve};
pub use signal::shutdown_signal;
pub use tls::{ClientTls, ClientTlsArgs, ServerTls};
pub use watched::{Watched, WatchedFile};
pub use wire::{
    CallBytes, MeteredChannel, WireBytes, WireConnection, WireCounter, WireRole, wire_connections,
    wire_totals,
};
