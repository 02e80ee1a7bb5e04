//! Services in this process, on port 0, over real gRPC.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use foretoken_draft_worker::Source;
use foretoken_draft_worker::ngram::Ngram;
use foretoken_orchestrator::Config;
use foretoken_proto::service_name;
use foretoken_runtime::{Runtime, RuntimeConfig};
use foretoken_text::Tokenizer;
use foretoken_transport::{
    ChannelConfig, Drain, HealthSwitch, MeteredChannel, ServerConfig, ServerTls, channel, metered_channel,
    wait_healthy,
};
use foretoken_worker::Host;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use crate::pki::Security;
use crate::table::TableModel;

/// Largest message the test services take: small, so that tests can exceed it.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Any free port of the loopback.
pub const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A running service. Dropping it ends it.
#[derive(Debug)]
pub struct Node {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its drain: begin it, or expire it, as an operator would.
    pub drain: Drain,
    /// How its own channels connect.
    link: ChannelConfig,
    task: JoinHandle<()>,
    service: &'static str,
}

impl Node {
    /// A channel to it.
    #[must_use]
    pub fn channel(&self) -> Channel {
        channel(&self.address.to_string(), &self.link).expect("a socket address is an address")
    }

    /// A channel to it whose calls count their bytes.
    #[must_use]
    pub fn metered_channel(&self) -> MeteredChannel {
        metered_channel(&self.address.to_string(), &self.link).expect("a socket address is an address")
    }

    /// The same, with its channels connecting otherwise.
    #[must_use]
    pub fn linked(mut self, link: ChannelConfig) -> Self {
        self.link = link;
        self
    }

    /// Waits until it reports SERVING.
    pub async fn healthy(&self) {
        wait_healthy(self.channel(), self.service, Duration::from_secs(30))
            .await
            .expect("the node becomes healthy");
    }

    /// Ends it now: streams break, the port is closed.
    pub async fn stop(mut self) {
        self.drain.expire();
        let _ended = (&mut self.task).await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.drain.expire();
    }
}

fn server(service: &'static str, tls: Option<ServerTls>) -> ServerConfig {
    ServerConfig {
        service_name: service,
        max_message_bytes: MAX_MESSAGE_BYTES,
        max_connection_streams: 1024,
        drain_timeout: Duration::from_secs(10),
        announce: false,
        health: HealthSwitch::new(),
        tls,
    }
}

macro_rules! start {
    ($security:expr, $address:expr, $service:expr, |$server:ident, $listener:ident, $drain:ident| $serve:expr) => {{
        let $listener = TcpListener::bind($address).await.expect("a free port");
        let address = $listener.local_addr().expect("a bound listener has an address");
        let drain = Drain::new();
        let $drain = drain.clone();
        let Security { server: tls, client } = $security.clone();
        let $server = server($service, tls);
        let task = tokio::spawn(async move {
            $serve.await.expect("the service runs until it is stopped");
        });
        Node { address, drain, link: ChannelConfig::with_tls(client), task, service: $service }
    }};
}

/// A table model in a runtime of its own. A paced one is timed before it serves, as a model of files is; another's table
/// may wait for its test.
#[must_use]
pub fn host(model: TableModel, tokenizer: &Tokenizer, config: &RuntimeConfig) -> Host {
    let tokenizer = tokenizer.clone();
    let started = if model.is_paced() {
        Host::start_warm(model, tokenizer, config)
    } else {
        Host::start(model, tokenizer, config)
    };
    started.expect("a table model fits")
}

/// Starts a target-verifier on a free port.
pub async fn verifier(host: Host) -> Node {
    verifier_at(ANY_PORT, host).await
}

/// Starts a target-verifier on a given address.
pub async fn verifier_at(address: SocketAddr, host: Host) -> Node {
    verifier_secured(&Security::default(), address, host).await
}

/// Starts a target-verifier with TLS.
pub async fn verifier_secured(security: &Security, address: SocketAddr, host: Host) -> Node {
    start!(security, address, service_name::TARGET_VERIFIER, |server, listener, drain| {
        foretoken_target_verifier::serve(server, host, listener, drain, std::future::pending())
    })
}

/// Starts a draft-worker on a free port.
pub async fn draft_worker(source: Source) -> Node {
    draft_worker_at(ANY_PORT, source).await
}

/// Starts a draft-worker on a given address.
pub async fn draft_worker_at(address: SocketAddr, source: Source) -> Node {
    draft_worker_secured(&Security::default(), address, source).await
}

/// Starts a draft-worker with TLS.
pub async fn draft_worker_secured(security: &Security, address: SocketAddr, source: Source) -> Node {
    start!(security, address, service_name::DRAFT_WORKER, |server, listener, drain| {
        foretoken_draft_worker::serve(server, source, listener, drain, std::future::pending())
    })
}

/// Starts an orchestrator on a free port over the nodes given.
pub async fn orchestrator(config: Config, verifiers: &[&Node], draft_workers: &[&Node]) -> Node {
    let addresses = |nodes: &[&Node]| nodes.iter().map(|node| node.address.to_string()).collect();
    orchestrator_of(Config {
        verifiers: addresses(verifiers),
        draft_workers: addresses(draft_workers),
        ..config
    })
    .await
}

/// Starts an orchestrator on a free port over the workers that `config` names.
pub async fn orchestrator_of(config: Config) -> Node {
    orchestrator_secured(&Security::default(), config).await
}

/// The same with TLS, to clients and, unless `config` has its own, to workers.
pub async fn orchestrator_secured(security: &Security, config: Config) -> Node {
    let worker_tls = config.worker_tls.clone().or_else(|| security.client.clone());
    let config = Config { worker_tls, ..config };
    start!(security, ANY_PORT, service_name::ORCHESTRATOR, |server, listener, drain| {
        foretoken_orchestrator::serve(config, server, listener, drain, std::future::pending())
    })
}

/// The n-gram drafter with its defaults.
#[must_use]
pub fn ngram() -> Source {
    Source::Ngram(Ngram::default())
}

/// A cluster of one verifier, one orchestrator and any draft workers, all in this process.
#[derive(Debug)]
pub struct Cluster {
    /// The service clients call.
    pub orchestrator: Node,
    /// The verifier.
    pub verifier: Node,
    /// Its runtime, for its counters.
    pub runtime: Runtime,
    /// The draft workers.
    pub draft_workers: Vec<Node>,
}

impl Cluster {
    /// Starts everything and waits until the orchestrator is healthy and every draft worker is known.
    pub async fn start(target: Host, drafts: Vec<Source>, config: Config) -> Self {
        Self::start_secured(&Security::default(), target, drafts, config).await
    }

    /// The same with TLS between all.
    pub async fn start_secured(
        security: &Security,
        target: Host,
        drafts: Vec<Source>,
        config: Config,
    ) -> Self {
        let runtime = target.runtime.clone();
        let verifier = verifier_secured(security, ANY_PORT, target).await;
        let mut draft_workers = Vec::new();
        for source in drafts {
            draft_workers.push(draft_worker_secured(security, ANY_PORT, source).await);
        }
        let config = Config {
            verifiers: vec![verifier.address.to_string()],
            draft_workers: draft_workers.iter().map(|worker| worker.address.to_string()).collect(),
            ..config
        };
        let orchestrator = orchestrator_secured(security, config).await;
        let cluster = Self { orchestrator, verifier, runtime, draft_workers };
        cluster.orchestrator.healthy().await;
        cluster.settled().await;
        cluster
    }

    /// Waits until no draft worker's state is still unknown.
    async fn settled(&self) {
        for _ in 0..1000 {
            let description = crate::client::describe(&self.orchestrator).await;
            let open = |reason: &str| matches!(reason, "NOT_CONNECTED" | "NO_VERIFIER" | "UNREACHABLE");
            if description.draft_workers.iter().all(|worker| !open(&worker.reason)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the draft workers did not settle");
    }
}
