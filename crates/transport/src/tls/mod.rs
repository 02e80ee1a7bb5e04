//! TLS: who listens with a certificate, who verifies one, and what is said when they do not agree.
//!
//! [`ServerTls`] and [`ClientTls`] are made of PEM files and follow them; each connection takes what is current when it
//! begins. Every handshake is a full one, so that every connection's certificates are verified, against today's roots.
//!
//! What it does not do: no revocation lists, no system roots (a deployment names its CA), no encrypted private keys.

mod client;
mod failure;
mod pem;
mod server;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::{ClientTls, ClientTlsArgs};
pub(crate) use client::{connect, file, given};
pub(crate) use failure::accept_failure;
pub use server::ServerTls;

/// What both ends must agree to speak.
const ALPN: &[u8] = b"h2";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
