//! Where time went, by what was waited for.

use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::time::Duration;

/// A stretch of an answer's time, split without remainder: the [`sum`](Self::sum) is the stretch itself.
///
/// A stage is what the round loop waited for, on its own clock. What a worker did while nobody waited for it is in no
/// stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// Waiting for the drafter: its work and the way there and back.
    pub draft: Duration,
    /// The verifier's link: frames on their way out and replies on their way back.
    pub net: Duration,
    /// Waiting at the verifier for its model's thread and for earlier passes.
    pub queue: Duration,
    /// Waiting at the verifier for the other sessions of a pass that was over.
    pub batch_wait: Duration,
    /// The target's passes, with thresholds, repairs and draws.
    pub pass: Duration,
    /// The orchestrator's own work: deciding, detokenizing, what no other stage covers.
    pub own: Duration,
    /// Waiting for the client to take what was committed.
    pub client: Duration,
    /// What led to no token: lost drafters, refused frames, passes left unread.
    pub recovery: Duration,
}

impl Stages {
    /// Names of the stages, in the order of [`values`](Self::values).
    pub const NAMES: [&str; 8] = ["draft", "net", "queue", "batch_wait", "pass", "own", "client", "recovery"];

    /// The stages in the order of [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn values(&self) -> [Duration; 8] {
        let Self { draft, net, queue, batch_wait, pass, own, client, recovery } = *self;
        [draft, net, queue, batch_wait, pass, own, client, recovery]
    }

    /// The whole stretch.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.values().iter().sum()
    }

    /// What the verifier was waited for at: queue, batch wait and pass.
    #[must_use]
    pub fn at_verifier(&self) -> Duration {
        self.queue + self.batch_wait + self.pass
    }
}

impl AddAssign for Stages {
    fn add_assign(&mut self, more: Self) {
        *self = *self + more;
    }
}

impl Add for Stages {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            draft: self.draft + more.draft,
            net: self.net + more.net,
            queue: self.queue + more.queue,
            batch_wait: self.batch_wait + more.batch_wait,
            pass: self.pass + more.pass,
            own: self.own + more.own,
            client: self.client + more.client,
            recovery: self.recovery + more.recovery,
        }
    }
}

impl Sum for Stages {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}
