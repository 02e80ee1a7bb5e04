//! The three services on this machine, each a process of its own, started from this very binary.
//!
//! Workers start together; the orchestrator follows once their addresses are known. Nothing is restarted here.
//! Whatever happens to this process, the services end: see [`child`].

mod child;
mod plan;
mod tail;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use foretoken_proto::service_name;
use foretoken_proto::v1::orchestrator_client::OrchestratorClient;
use foretoken_proto::v1::{DescribeRequest, OrchestratorDescription, WorkerState};
use foretoken_transport::{ChannelConfig, channel, wait_healthy};
use futures_util::future::{select_all, try_join_all};
use tonic::transport::Channel;

use self::child::Child;
#[cfg(test)]
pub(crate) use self::plan::SUBCOMMANDS;
pub(crate) use self::plan::{ANY_PORT, Drafting, Plan};
use crate::failure::CallError;

/// How long the orchestrator may take to have its workers in use: all of them serve already.
const WORKERS_IN_USE: Duration = Duration::from_secs(20);

/// Pause between two questions whether the workers are in use.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// How long after a failed call a service's end may become known.
const DEATH_IS_KNOWN: Duration = Duration::from_millis(300);

/// How much longer than its drain a service may take to end before it is killed.
const STOP_MARGIN: Duration = Duration::from_secs(4);

/// Reasons for which a worker is left out that time does not cure.
const LASTING: [&str; 2] = ["TOKENIZER_MISMATCH", "MODEL_MISMATCH"];

/// A running cluster. Dropping it kills what [`Cluster::stop`] has not ended.
#[derive(Debug)]
pub(crate) struct Cluster {
    orchestrator: Child,
    workers: Vec<Child>,
    channel: Channel,
    /// As the orchestrator saw its workers when all were in use.
    pool: OrchestratorDescription,
    drain: Duration,
}

/// One line of what runs where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// What people call the process.
    pub(crate) label: String,
    /// Where it serves.
    pub(crate) address: SocketAddr,
    /// What it runs; the orchestrator runs no model.
    pub(crate) model: Option<String>,
}

impl Cluster {
    /// Starts all services and waits until the orchestrator uses every worker. `stage` is told what is waited for.
    pub(crate) async fn start(plan: &Plan, stage: impl Fn(&str)) -> Result<Self> {
        let program =
            std::env::current_exe().context("cannot find this program's own file to start the services")?;
        stage("loading the models");
        let start = |spec| Child::start(&program, spec, plan.show_logs, plan.start_timeout);
        let workers = try_join_all(plan.workers().into_iter().map(start)).await?;

        stage("connecting the services");
        let addresses = |service: &str| {
            let of_service = workers.iter().zip(plan.workers()).filter(|(_, spec)| spec.service == service);
            of_service.map(|(worker, _)| worker.address()).collect::<Vec<_>>()
        };
        let spec = plan
            .orchestrator(&addresses(service_name::TARGET_VERIFIER), &addresses(service_name::DRAFT_WORKER));
        let orchestrator = start(spec).await?;
        let channel = channel(&reachable(orchestrator.address()).to_string(), &ChannelConfig::default())?;
        let pool = OrchestratorDescription::default();
        let mut cluster = Self { orchestrator, workers, channel, pool, drain: plan.drain };
        let ready = workers_in_use(cluster.channel(), cluster.members());
        cluster.pool = tokio::select! {
            pool = ready => pool?,
            death = cluster.first_death() => bail!(death),
        };
        Ok(cluster)
    }

    /// A channel to the orchestrator.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The orchestrator, then the workers.
    pub(crate) fn members(&self) -> Vec<Member> {
        let states = || self.pool.verifiers.iter().chain(&self.pool.draft_workers);
        let member = |child: &Child| Member {
            label: child.label().to_owned(),
            address: child.address(),
            model: states()
                .find(|state| is_at(state, child.address()))
                .and_then(|state| state.description.as_ref())
                .map(|description| format!("{} on {}", description.model, description.device)),
        };
        std::iter::once(&self.orchestrator).chain(&self.workers).map(member).collect()
    }

    /// Where clients on this machine reach the orchestrator.
    pub(crate) fn address(&self) -> SocketAddr {
        reachable(self.orchestrator.address())
    }

    /// Waits until any service has ended by itself, and says which and what it logged last.
    pub(crate) async fn first_death(&mut self) -> String {
        let deaths = self.children().map(|child| Box::pin(child.died()));
        select_all(deaths).await.0
    }

    /// The death that may be behind a failed call: the call can be the first to know.
    pub(crate) async fn recent_death(&mut self) -> Option<String> {
        tokio::time::timeout(DEATH_IS_KNOWN, self.first_death()).await.ok()
    }

    /// Ends all services in good order: first the orchestrator, whose requests in work still need the workers.
    pub(crate) async fn stop(self) -> Result<()> {
        let patience = self.drain + STOP_MARGIN;
        // Its connection would otherwise be one more thing the orchestrator has to wait for.
        drop(self.channel);
        let orchestrator = self.orchestrator.stop(patience).await;
        try_join_all(self.workers.into_iter().map(|worker| worker.stop(patience))).await?;
        orchestrator
    }

    fn children(&mut self) -> impl Iterator<Item = &mut Child> {
        std::iter::once(&mut self.orchestrator).chain(&mut self.workers)
    }
}

/// Waits until the orchestrator serves and has every worker in use.
async fn workers_in_use(channel: Channel, members: Vec<Member>) -> Result<OrchestratorDescription> {
    wait_healthy(channel.clone(), service_name::ORCHESTRATOR, WORKERS_IN_USE).await?;
    let mut client = OrchestratorClient::new(channel);
    let deadline = tokio::time::Instant::now() + WORKERS_IN_USE;
    loop {
        let answer = client.describe(DescribeRequest {}).await;
        let pool = answer.map_err(|status| CallError::from(&status))?.into_inner();
        let waiting = pool.verifiers.iter().chain(&pool.draft_workers).find(|worker| !worker.ready);
        let Some(worker) = waiting else { return Ok(pool) };
        if LASTING.contains(&worker.reason.as_str()) || tokio::time::Instant::now() >= deadline {
            bail!(left_out(worker, &members));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

fn left_out(worker: &WorkerState, members: &[Member]) -> String {
    let label =
        members.iter().find(|member| is_at(worker, member.address)).map_or("worker", |member| &member.label);
    format!("the orchestrator cannot use the {label}: {} ({})", worker.message, worker.reason)
}

/// Whether the orchestrator means the worker at this address, with or without `http://`.
fn is_at(worker: &WorkerState, address: SocketAddr) -> bool {
    worker.address.trim_start_matches("http://") == address.to_string()
}

/// An address to connect to: a service that listens everywhere is met on the loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_left_out_is_named() {
        let members =
            [Member { label: "draft-worker".to_owned(), address: ([127, 0, 0, 1], 7).into(), model: None }];
        let worker = WorkerState {
            address: "http://127.0.0.1:7".to_owned(),
            reason: "TOKENIZER_MISMATCH".to_owned(),
            message: "token 5 differs".to_owned(),
            ..WorkerState::default()
        };
        assert_eq!(
            left_out(&worker, &members),
            "the orchestrator cannot use the draft-worker: token 5 differs (TOKENIZER_MISMATCH)"
        );
    }

    #[test]
    fn a_service_that_listens_everywhere_is_met_on_the_loopback() {
        for (listening, met) in
            [("0.0.0.0:7450", "127.0.0.1:7450"), ("[::]:7450", "[::1]:7450"), ("192.0.2.1:1", "192.0.2.1:1")]
        {
            assert_eq!(reachable(listening.parse().unwrap()).to_string(), met);
        }
    }
}
