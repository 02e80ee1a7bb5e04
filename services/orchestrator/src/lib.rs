//! The orchestrator: owns the text, runs the rounds, applies the exact rule. It has no weights.
//!
//! [`run`] is the life of the process; [`serve`] is the service alone, on any listener, as tests use it.
//! The way of a request: [`keys`] → [`service`] → [`admission`] → [`remote`] sessions from the [`pool`] →
//! `foretoken_engine::generate` → [`output`] → the client.

pub mod account;
pub mod admission;
mod args;
mod broken;
pub mod keys;
mod metrics;
pub mod output;
pub mod pool;
pub mod remote;
pub mod service;
pub mod trace;

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use foretoken_proto::{DESCRIPTOR_SET, service_name};
use foretoken_telemetry::init;
use foretoken_transport::{Drain, ServerConfig, TransportError, shutdown_signal};
use tokio::net::TcpListener;
use tonic::service::Routes;

pub use args::{Args, Config};
use pool::Pool;
use service::GenerateService;

/// Where an orchestrator listens unless told otherwise.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7450);

/// Serves until the process is asked to end.
///
/// # Errors
/// If a setting, a file that one names, or the address cannot be used.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let telemetry = init(&args.telemetry.config("foretoken-orchestrator"))?;
    let config = args.config()?;
    let tls = args.listen.tls()?;
    let listener = args.listen.bind(DEFAULT_LISTEN).await?;
    let server = args.listen.server_config(service_name::ORCHESTRATOR, tls);
    let shutdown = shutdown_signal(args.listen.exit_on_stdin_close);
    serve(config, server, listener, Drain::new(), shutdown).await?;
    telemetry.shutdown().await;
    Ok(())
}

/// Serves until `shutdown` resolves or the drain begins, then drains.
///
/// Health reports SERVING while at least one verifier is ready.
///
/// # Errors
/// If a worker's address cannot be used, or the transport fails.
pub async fn serve(
    config: Config,
    server: ServerConfig,
    listener: TcpListener,
    drain: Drain,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), TransportError> {
    server.health.set_serving(false);
    let pool = Pool::connect(&config, server.health.clone())?;
    let service = GenerateService::new(config, pool, drain.clone(), server.max_message_bytes).into_server();
    foretoken_transport::serve(server, listener, Routes::new(service), DESCRIPTOR_SET, drain, shutdown).await
}
