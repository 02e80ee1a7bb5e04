//! Shares out what a connection carried in one direction.
//!
//! With B bytes carried, D of them in calls' own DATA frames, the rest B − D is shared: whenever a call is settled, it
//! takes of the rest that nobody has taken yet the part d / Σ d, where d are the bytes of own frames since a call was last
//! settled, its own over those of all calls. So what is charged never exceeds B, and reaches B when the last call that
//! has anything to settle is settled.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Bytes of calls' DATA frames.
    data: AtomicU64,
    /// Bytes carried, as of a moment when `data` knew all of its part of them.
    carried: AtomicU64,
    settled: Mutex<Settled>,
}

#[derive(Debug, Default)]
struct Settled {
    /// Of `data`, what needs no settling any more: charged, or left behind.
    data: u64,
    /// Of that, what closed calls left behind, to be shared like the rest.
    left: u64,
    /// Of the rest, what has been taken over.
    rest: u64,
}

/// One direction of a call.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Bytes of its DATA frames.
    data: AtomicU64,
    /// Of them, what has been charged to it. Written under the connection's lock.
    settled: AtomicU64,
    /// What it has taken over of the rest. Written under the connection's lock.
    rest: AtomicU64,
}

impl Shares {
    /// Enters bytes of a call's DATA frames.
    pub(super) fn add(&self, share: &Share, bytes: u64) {
        // In this order, and read in the other: a call's part is never more than all calls'.
        self.data.fetch_add(bytes, Ordering::Release);
        share.data.fetch_add(bytes, Ordering::Release);
    }

    /// Says how much has been carried, once all DATA in it is entered.
    pub(super) fn carried(&self, bytes: u64) {
        self.carried.store(bytes, Ordering::Release);
    }

    /// Charges a call with its frames since the last time, and with its part of what has gathered beside.
    pub(super) fn settle(&self, share: &Share) {
        let mut settled = self.settled();
        let carried = self.carried.load(Ordering::Acquire);
        let own = share.unsettled();
        let data = self.data.load(Ordering::Acquire);
        let (open, theirs) = (data - settled.data, data - settled.left + settled.rest);
        let gathered = carried.saturating_sub(theirs);
        let part = match open {
            0 => 0,
            // At most `gathered`, because `own` is at most `open`.
            _ => (u128::from(gathered) * u128::from(own) / u128::from(open)) as u64,
        };
        settled.data += own;
        settled.rest += part;
        share.settled.fetch_add(own, Ordering::Relaxed);
        share.rest.fetch_add(part, Ordering::Relaxed);
    }

    /// Leaves what a call has not settled to the others.
    pub(super) fn leave(&self, share: &Share) {
        let mut settled = self.settled();
        let own = share.unsettled();
        settled.data += own;
        settled.left += own;
    }

    /// Bytes charged to calls so far.
    pub(super) fn charged(&self) -> u64 {
        let settled = self.settled();
        settled.data - settled.left + settled.rest
    }

    fn settled(&self) -> MutexGuard<'_, Settled> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Bytes of its DATA frames.
    pub(super) fn data(&self) -> u64 {
        self.data.load(Ordering::Acquire)
    }

    /// Bytes charged to it.
    pub(super) fn charged(&self) -> u64 {
        self.settled.load(Ordering::Relaxed) + self.rest.load(Ordering::Relaxed)
    }

    fn unsettled(&self) -> u64 {
        self.data() - self.settled.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_charged_once_and_in_proportion() {
        let (shares, first, second) = (Shares::default(), Share::default(), Share::default());
        shares.add(&first, 300);
        shares.add(&second, 100);
        shares.carried(500);
        shares.settle(&first);
        assert_eq!(first.charged(), 300 + 75);
        shares.settle(&first);
        assert_eq!(first.charged(), 375, "nothing of its own has come, so it pays nothing");
        shares.add(&first, 30);
        shares.carried(540);
        shares.settle(&second);
        assert_eq!(second.charged(), 100 + 35 * 100 / 130);
        shares.settle(&first);
        assert_eq!(first.charged() + second.charged(), 540);
        assert_eq!(shares.charged(), 540);
    }

    #[test]
    fn what_a_call_leaves_behind_is_paid_by_the_next() {
        let (shares, gone, next) = (Shares::default(), Share::default(), Share::default());
        shares.add(&gone, 50);
        shares.carried(60);
        shares.settle(&gone);
        shares.add(&gone, 16);
        shares.carried(80);
        shares.leave(&gone);
        assert_eq!(shares.charged(), 60);
        shares.add(&next, 9);
        shares.carried(90);
        shares.settle(&next);
        assert_eq!((gone.charged(), next.charged()), (60, 30));
    }

    #[test]
    fn frames_that_outrun_the_count_are_not_charged_twice() {
        let (shares, call) = (Shares::default(), Share::default());
        shares.add(&call, 100);
        shares.settle(&call);
        assert_eq!(call.charged(), 100);
        shares.carried(130);
        shares.add(&call, 10);
        shares.settle(&call);
        shares.carried(140);
        assert_eq!(call.charged(), 130, "100 + 10, and 20 of the rest");
        shares.add(&call, 10);
        shares.carried(150);
        shares.settle(&call);
        assert_eq!(call.charged(), 150);
    }
}
