//! What one call moved.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::counter::WireConnection;
use super::shares::Share;

/// Bytes on the wire, as the client sees them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// Sent by the client.
    pub up: u64,
    /// Received by it.
    pub down: u64,
}

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

/// What one call moved. Put a clone into the extensions of its request before calling over a
/// [`MeteredChannel`](super::MeteredChannel).
///
/// A call that has ever been [settled](Self::settle) leaves what comes later to its connection's other calls when the last
/// clone is dropped; one that nobody asked after settles itself then, so that nobody else pays for it.
#[derive(Debug, Clone, Default)]
pub struct CallBytes(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Known once the first bytes of its body have left.
    connection: OnceLock<Arc<WireConnection>>,
    up: Share,
    down: Share,
    asked: AtomicBool,
}

impl CallBytes {
    /// Bytes of the call's own DATA frames so far, headers of frames included.
    #[must_use]
    pub fn own(&self) -> WireBytes {
        WireBytes { up: self.0.up.data(), down: self.0.down.data() }
    }

    /// Bytes charged to the call so far: its own DATA frames up to now, and its part of what its connection carried
    /// beside such frames. Asking takes the call's part of what has gathered since, so it may grow by being asked.
    #[must_use]
    pub fn settle(&self) -> WireBytes {
        self.0.asked.store(true, Ordering::Relaxed);
        self.0.settle();
        WireBytes { up: self.0.up.charged(), down: self.0.down.charged() }
    }

    /// The connection that carries it, once anything has left.
    #[must_use]
    pub fn connection(&self) -> Option<&Arc<WireConnection>> {
        self.0.connection.get()
    }

    /// Whether there are other clones of it.
    pub(super) fn is_held_elsewhere(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Says which connection carries it.
    pub(super) fn left_on(&self, connection: &Arc<WireConnection>) {
        // The first is right: a body leaves once.
        let _known = self.0.connection.set(Arc::clone(connection));
    }

    /// Counts bytes of its DATA frames.
    pub(super) fn add(&self, way: Way, bytes: u64) {
        let Some(connection) = self.0.connection.get() else { return };
        match way {
            Way::Up => connection.up.add(&self.0.up, bytes),
            Way::Down => connection.down.add(&self.0.down, bytes),
        }
    }
}

impl Inner {
    fn settle(&self) {
        if let Some(connection) = self.connection.get() {
            connection.up.settle(&self.up);
            connection.down.settle(&self.down);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.asked.load(Ordering::Relaxed) {
            self.settle();
        } else if let Some(connection) = self.connection.get() {
            connection.up.leave(&self.up);
            connection.down.leave(&self.down);
        }
    }
}
