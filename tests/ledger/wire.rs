//! Bytes on the wire: the counters against the kernel's, against a recording of the stream, and in the ledgers.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "wire/kernel.rs"]
mod kernel;
#[path = "wire/recorder.rs"]
mod recorder;

#[path = "wire/calls.rs"]
mod calls;
#[path = "wire/connections.rs"]
mod connections;
#[path = "wire/ledgers.rs"]
mod ledgers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use foretoken_draft_worker::Source;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::cluster::host;
use foretoken_testkit::table::{Table, TableModel, random_table};
use foretoken_testkit::vocabulary::letters;
use foretoken_transport::{WireConnection, WireRole, wire_connections};
use foretoken_worker::Host;

const VOCAB: usize = 8;

/// No wait of a test is longer.
const PATIENCE: Duration = Duration::from_secs(30);

fn model(name: &str, table: Table) -> Host {
    let model = TableModel::new(name, VOCAB, 4096, table);
    host(model, &letters(VOCAB, false).unwrap(), &RuntimeConfig::default())
}

fn target() -> Host {
    model("target", random_table(1, VOCAB, 0))
}

fn draft() -> Source {
    Source::Model(model("draft", random_table(2, VOCAB, 0)))
}

/// Asks until there is something to tell.
async fn until<T>(what: &str, ask: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(told) = ask() {
            return told;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a number stands still for a while, and gives it.
async fn settled<T: PartialEq>(ask: impl Fn() -> T) -> T {
    let mut last = ask();
    let deadline = Instant::now() + PATIENCE;
    loop {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let now = ask();
        if now == last {
            return now;
        }
        assert!(Instant::now() < deadline, "it does not stand still");
        last = now;
    }
}

/// This process' connections to a port, made by it.
fn made_to(port: u16) -> Vec<Arc<WireConnection>> {
    let ours = |connection: &WireConnection| {
        connection.role() == WireRole::Client && connection.peer().port() == port
    };
    wire_connections().into_iter().filter(|connection| ours(connection)).collect()
}

/// The only one of them, once it is.
async fn only_one_to(port: u16) -> Arc<WireConnection> {
    until("one connection", || <[_; 1]>::try_from(made_to(port)).ok().map(|[connection]| connection)).await
}
