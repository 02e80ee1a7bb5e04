//! The two phases in which a service ends.

use tokio_util::sync::CancellationToken;

/// Tells a service's streams that the process is ending: first *please finish*, later *end now*.
///
/// Clones are handles to the same drain. [`serve`](crate::serve()) moves it on; a service only looks. It never goes back.
#[derive(Debug, Clone, Default)]
pub struct Drain {
    begun: CancellationToken,
    expired: CancellationToken,
}

impl Drain {
    /// A drain that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the drain: no new sessions, running ones may finish or move. A server that serves with this drain shuts down.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Resolves when the drain begins, at once if it has.
    pub async fn draining(&self) {
        self.begun.cancelled().await;
    }

    /// Resolves when the drain's deadline has passed: whatever still runs must end with a status now.
    pub async fn expired(&self) {
        self.expired.cancelled().await;
    }

    /// Ends the time to finish, and begins the drain if nobody has.
    pub fn expire(&self) {
        // In this order: nobody may see an expired drain that has not begun.
        self.begun.cancel();
        self.expired.cancel();
    }

    /// The first phase as a token, for what must poll it.
    pub(crate) fn begun_token(&self) -> &CancellationToken {
        &self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clones_share_both_phases() {
        let drain = Drain::new();
        let seen = drain.clone();
        assert!(!seen.is_draining());
        drain.begin();
        seen.draining().await;
        assert!(seen.is_draining() && !seen.expired.is_cancelled());
        drain.expire();
        seen.expired().await;
    }

    #[tokio::test]
    async fn expiring_begins() {
        let drain = Drain::new();
        drain.expire();
        drain.draining().await;
        drain.expired().await;
    }
}
