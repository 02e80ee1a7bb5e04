//! The watch of one answer: splits the time between commits into stages.

use std::time::Duration;

use tokio::time::Instant;

use super::Stages;
use crate::conversation::WorkerTimes;

/// Collects what the round loop waited for since the last commit.
///
/// The loop waits for one thing at a time, so the waits between two commits never overlap; what they leave of the time
/// is the loop's own.
#[derive(Debug)]
pub(crate) struct Watch {
    since: Instant,
    waited: Stages,
    /// Of the time in `waited.draft`, what the draft worker itself spent.
    drafting: Duration,
}

impl Watch {
    pub(crate) fn started(now: Instant) -> Self {
        Self { since: now, waited: Stages::default(), drafting: Duration::ZERO }
    }

    /// When the last commit was.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    pub(crate) fn client(&mut self, waited: Duration) {
        self.waited.client += waited;
    }

    /// A draft call that took `waited` and of which the worker spent what it says.
    pub(crate) fn draft(&mut self, waited: Duration, times: &WorkerTimes) {
        self.waited.draft += waited;
        self.drafting += waited.min(Duration::from_micros(times.server_us));
    }

    /// A wait for the verifier that ended with a message of use.
    ///
    /// The stages are laid back from the message: the way, the pass, the waits before it. Where the verifier began before
    /// it was waited for, as in a decode run, the earliest are cut off.
    pub(crate) fn verify(&mut self, waited: Duration, times: &WorkerTimes) {
        let mut left = waited;
        let mut take = |micros: u64| {
            let taken = left.min(Duration::from_micros(micros));
            left -= taken;
            taken
        };
        let pass = times.model_us.saturating_add(times.sampling_us);
        self.waited.pass += take(pass);
        self.waited.batch_wait += take(times.batch_wait_us);
        // Whatever else passed between the frame's arrival and the reply it spent waiting for its turn.
        self.waited.queue += take(times.server_us.saturating_sub(pass).saturating_sub(times.batch_wait_us));
        self.waited.net += left;
    }

    pub(crate) fn recovery(&mut self, waited: Duration) {
        self.waited.recovery += waited;
    }

    /// All that was waited for since the last commit, but for the client, led to nothing.
    pub(crate) fn in_vain(&mut self) {
        let client = self.waited.client;
        let recovery = self.waited.sum() - client;
        self.waited = Stages { client, recovery, ..Stages::default() };
        self.drafting = Duration::ZERO;
    }

    /// Something was committed: where the time since the last commit went, and what of it the draft worker spent.
    pub(crate) fn commit(&mut self, now: Instant) -> (Stages, Duration) {
        let waited = std::mem::take(&mut self.waited);
        let own = now.saturating_duration_since(self.since).saturating_sub(waited.sum());
        self.since = now;
        (Stages { own, ..waited }, std::mem::take(&mut self.drafting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn times(queue_ms: u64, batch_wait_ms: u64, model_ms: u64, sampling_ms: u64) -> WorkerTimes {
        WorkerTimes {
            server_us: 1000 * (queue_ms + batch_wait_ms + model_ms + sampling_ms),
            queue_us: 1000 * queue_ms,
            batch_wait_us: 1000 * batch_wait_ms,
            model_us: 1000 * model_ms,
            sampling_us: 1000 * sampling_ms,
            ..WorkerTimes::default()
        }
    }

    #[test]
    fn the_stages_of_a_round_add_up_to_its_time() {
        let start = Instant::now();
        let mut watch = Watch::started(start);
        watch.client(2 * MS);
        watch.draft(5 * MS, &times(0, 0, 3, 0));
        watch.verify(20 * MS, &times(4, 1, 7, 2));
        let (stages, drafting) = watch.commit(start + 30 * MS);
        let expected = Stages {
            client: 2 * MS,
            draft: 5 * MS,
            pass: 9 * MS,
            batch_wait: MS,
            queue: 4 * MS,
            net: 6 * MS,
            own: 3 * MS,
            recovery: Duration::ZERO,
        };
        assert_eq!((stages, drafting), (expected, 3 * MS));
        assert_eq!(stages.sum(), 30 * MS);
        // The next round begins with nothing.
        assert_eq!(watch.commit(start + 31 * MS).0, Stages { own: MS, ..Stages::default() });
    }

    #[test]
    fn what_began_before_the_wait_is_cut_off_at_the_front() {
        let start = Instant::now();
        let mut watch = Watch::started(start);
        // A run's token: 10 ms of work at the verifier, of which 6 fell into the wait.
        watch.verify(6 * MS, &times(4, 1, 5, 0));
        let (stages, _) = watch.commit(start + 6 * MS);
        let expected = Stages { pass: 5 * MS, batch_wait: MS, ..Stages::default() };
        assert_eq!(stages, expected);
    }

    #[test]
    fn what_led_to_nothing_is_recovery_and_the_client_stays_the_client() {
        let start = Instant::now();
        let mut watch = Watch::started(start);
        watch.client(MS);
        watch.draft(3 * MS, &times(0, 0, 1, 0));
        watch.verify(4 * MS, &times(0, 0, 4, 0));
        watch.in_vain();
        watch.recovery(2 * MS);
        watch.verify(5 * MS, &times(0, 0, 5, 0));
        let (stages, drafting) = watch.commit(start + 15 * MS);
        let expected = Stages { client: MS, recovery: 9 * MS, pass: 5 * MS, ..Stages::default() };
        assert_eq!((stages, drafting), (expected, Duration::ZERO));
    }
}
