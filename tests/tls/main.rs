//! TLS, mutual TLS and API keys, between the real services in this process: that they work, how they fail, and that files
//! may change under them. As processes with flags: `../process/tls.rs`.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod drain;
mod failures;
mod keys;
mod rotation;
mod whole;

use std::time::{Duration, Instant};

use foretoken_draft_worker::Source;
use foretoken_proto::service_name;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::cluster::{ANY_PORT, Node, host, verifier_secured};
use foretoken_testkit::pki::Security;
use foretoken_testkit::table::{TableModel, random_table};
use foretoken_testkit::vocabulary::letters;
use foretoken_transport::{ChannelConfig, ClientTls, ServerTls, channel, wait_healthy};
use foretoken_worker::Host;

const VOCAB: usize = 8;

/// No wait of a test is longer.
const PATIENCE: Duration = Duration::from_secs(20);

fn model(seed: u64) -> Host {
    let model = TableModel::new("table", VOCAB, 4096, random_table(seed, VOCAB, 0));
    host(model, &letters(VOCAB, false).unwrap(), &RuntimeConfig::default())
}

fn draft() -> Source {
    Source::Model(model(2))
}

/// A verifier that listens so.
async fn listening(server: Option<ServerTls>) -> Node {
    verifier_secured(&Security { server, client: None }, ANY_PORT, model(1)).await
}

/// Whether a verifier at an address reports SERVING to a client, and what that is told if not.
async fn ask(address: &str, tls: Option<ClientTls>) -> Result<(), String> {
    let channel = channel(address, &ChannelConfig::with_tls(tls)).map_err(|error| error.to_string())?;
    wait_healthy(channel, service_name::TARGET_VERIFIER, Duration::from_millis(200))
        .await
        .map_err(|error| error.to_string())
}

/// Asks until that is so.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
