//! The target-verifier: the large model behind gRPC.
//!
//! [`run`] is the life of the process; [`serve`] is the service alone, on any listener and any model, as
//! tests use it. The model's work is `foretoken-runtime`'s; [`service`] only translates.

mod args;
pub mod service;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use foretoken_engine::LatticeShape;
use foretoken_proto::{DESCRIPTOR_SET, service_name};
use foretoken_telemetry::init;
use foretoken_transport::{Drain, ServerConfig, TransportError, loading, shutdown_signal};
use foretoken_worker::Host;
use tokio::net::TcpListener;
use tonic::service::Routes;

pub use args::Args;
use service::VerifierService;

/// Where a verifier listens unless told otherwise.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7451);

/// Loads the model and serves it until the process is asked to end.
///
/// # Errors
/// If a setting, the model or the address cannot be used.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let telemetry = init(&args.telemetry.config("foretoken-target-verifier"))?;
    // An address that is taken, or a certificate that cannot be used, should be known before the weights are read.
    let tls = args.listen.tls()?;
    let listener = args.listen.bind(DEFAULT_LISTEN).await?;
    let (path, model) = (args.model.clone(), args.model_args.clone());
    let shutdown = shutdown_signal(args.listen.exit_on_stdin_close);
    tokio::pin!(shutdown);
    let load = tokio::task::spawn_blocking(move || Host::load(&path, &model, LatticeShape::default()));
    let host = tokio::select! {
        host = loading(&listener, tls.clone(), service_name::TARGET_VERIFIER, load) => host.context("the model's loader panicked")??,
        () = &mut shutdown => return Ok(()),
    };
    let server = args.listen.server_config(service_name::TARGET_VERIFIER, tls);
    serve(server, host, listener, Drain::new(), shutdown).await?;
    telemetry.shutdown().await;
    Ok(())
}

/// Serves a loaded model until `shutdown` resolves or the drain begins, then drains.
///
/// # Errors
/// If the transport fails.
pub async fn serve(
    config: ServerConfig,
    host: Host,
    listener: TcpListener,
    drain: Drain,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), TransportError> {
    let service = VerifierService::new(host, drain.clone(), config.max_message_bytes).into_server();
    foretoken_transport::serve(config, listener, Routes::new(service), DESCRIPTOR_SET, drain, shutdown).await
}
