//! grpc.health.v1 for one service, in two questions.
//!
//! Its *name* asks whether it takes work now: that is readiness. The *empty name* asks whether the process
//! lives: it reports SERVING from the first moment to the last, whatever the name says, so that an orchestrator that waits
//! for its workers, or a service that drains, is not taken for dead.

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Lets a running service withdraw from, and return to, what its health reports. Clones are handles to one switch.
#[derive(Debug, Clone)]
pub struct HealthSwitch {
    serving: watch::Sender<bool>,
}

impl HealthSwitch {
    /// Reports SERVING from the start; `set_serving(false)` beforehand for a service that is not ready yet.
    pub fn new() -> Self {
        Self { serving: watch::Sender::new(true) }
    }

    /// Reports SERVING or NOT_SERVING from now on. While the process drains it is NOT_SERVING whatever this says.
    pub fn set_serving(&self, serving: bool) {
        self.serving.send_replace(serving);
    }
}

impl Default for HealthSwitch {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes the switch's state to the health service.
pub(crate) struct Health {
    service: &'static str,
    reporter: HealthReporter,
    switch: watch::Receiver<bool>,
}

impl Health {
    pub(crate) fn new(service: &'static str, reporter: HealthReporter, switch: &HealthSwitch) -> Self {
        Self { service, reporter, switch: switch.serving.subscribe() }
    }

    /// Reports the switch's present state.
    pub(crate) async fn publish(&mut self) {
        let serving = *self.switch.borrow_and_update();
        self.report(serving).await;
        self.reporter.set_service_status("", ServingStatus::Serving).await;
    }

    /// Follows the switch; never ends.
    pub(crate) async fn follow(&mut self) {
        while self.switch.changed().await.is_ok() {
            self.publish().await;
        }
        // The last handle is gone, so nothing can change any more.
        std::future::pending().await
    }

    /// Reports NOT_SERVING and then ends the open watches, which would otherwise hold up the drain like any other stream.
    pub(crate) async fn withdraw(&mut self) {
        self.report(false).await;
        for name in ["", self.service] {
            self.reporter.clear_service_status(name).await;
        }
        // Connections that are still open may go on asking.
        self.reporter.set_service_status("", ServingStatus::Serving).await;
        self.report(false).await;
    }

    async fn report(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.reporter.set_service_status(self.service, status).await;
    }
}
