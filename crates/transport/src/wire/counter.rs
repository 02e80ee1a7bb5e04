//! Counters of connections and of the process.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::call::WireBytes;
use super::shares::Shares;

/// Bytes written to and read from sockets.
#[derive(Debug, Default)]
pub struct WireCounter {
    sent: AtomicU64,
    received: AtomicU64,
}

impl WireCounter {
    const fn new() -> Self {
        Self { sent: AtomicU64::new(0), received: AtomicU64::new(0) }
    }

    /// Bytes that the kernel has taken to send.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes read.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    fn add_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Which end of a connection this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WireRole {
    /// It accepted the connection.
    Server,
    /// It made the connection.
    Client,
}

static SERVER: WireCounter = WireCounter::new();
static CLIENT: WireCounter = WireCounter::new();

/// All connections of this process in that role together, closed ones included.
#[must_use]
pub fn wire_totals(role: WireRole) -> &'static WireCounter {
    match role {
        WireRole::Server => &SERVER,
        WireRole::Client => &CLIENT,
    }
}

/// Open connections. Taken when one opens, closes or is asked after, never on the way of its bytes.
static OPEN: Mutex<Vec<Weak<WireConnection>>> = Mutex::new(Vec::new());

/// The open connections of this process.
#[must_use]
pub fn wire_connections() -> Vec<Arc<WireConnection>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
}

/// A connection and what it carried.
#[derive(Debug)]
pub struct WireConnection {
    role: WireRole,
    local: SocketAddr,
    peer: SocketAddr,
    bytes: WireCounter,
    pub(super) up: Shares,
    pub(super) down: Shares,
}

impl WireConnection {
    /// Enters a connection among the open ones.
    pub(super) fn open(role: WireRole, local: SocketAddr, peer: SocketAddr) -> Arc<Self> {
        let (up, down) = Default::default();
        let connection = Arc::new(Self { role, local, peer, bytes: WireCounter::new(), up, down });
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&connection));
        connection
    }

    /// Takes it out again; its counters stay with whoever holds it.
    pub(super) fn close(&self) {
        let is_other = |other: &Weak<Self>| !std::ptr::eq(other.as_ptr(), self);
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(is_other);
    }

    /// Which end this process is.
    #[must_use]
    pub fn role(&self) -> WireRole {
        self.role
    }

    /// This end's address.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The other end's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// All bytes of the connection.
    #[must_use]
    pub fn bytes(&self) -> &WireCounter {
        &self.bytes
    }

    /// How many of them have been charged to calls: their own frames, and their shares of the rest. Up is what the
    /// client sent. Only connections of a [`MeteredChannel`](super::MeteredChannel) charge anything.
    #[must_use]
    pub fn charged(&self) -> WireBytes {
        WireBytes { up: self.up.charged(), down: self.down.charged() }
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.bytes.add_sent(bytes as u64);
        wire_totals(self.role).add_sent(bytes as u64);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes.add_received(bytes as u64);
        wire_totals(self.role).add_received(bytes as u64);
    }
}
