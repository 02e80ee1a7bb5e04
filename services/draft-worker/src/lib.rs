//! The draft-worker: a small model, or none at all, behind gRPC.
//!
//! [`run`] is the life of the process; [`serve`] is the service alone, on any listener and any
//! [`Source`] of drafts, as tests use it. [`service`] only translates; [`ngram`] drafts without weights,
//! from the text itself and from [`tables`].

mod args;
pub mod ngram;
pub mod service;
mod source;
pub mod tables;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};

use foretoken_proto::{DESCRIPTOR_SET, service_name};
use foretoken_telemetry::init;
use foretoken_transport::{Drain, ServerConfig, TransportError, loading, shutdown_signal};
use tokio::net::TcpListener;
use tonic::service::Routes;

pub use args::{Args, DraftModel};
use service::DraftService;
pub use source::Source;

/// Where a draft worker listens unless told otherwise.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7452);

/// Loads the drafter and serves it until the process is asked to end.
///
/// # Errors
/// If a setting, the model or the address cannot be used.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let telemetry = init(&args.telemetry.config("foretoken-draft-worker"))?;
    // An address that is taken, or a certificate that cannot be used, should be known before the weights are read.
    let tls = args.listen.tls()?;
    let listener = args.listen.bind(DEFAULT_LISTEN).await?;
    let shutdown = shutdown_signal(args.listen.exit_on_stdin_close);
    tokio::pin!(shutdown);
    let source = tokio::select! {
        source = loading(&listener, tls.clone(), service_name::DRAFT_WORKER, Source::load(&args)) => source?,
        () = &mut shutdown => return Ok(()),
    };
    let server = args.listen.server_config(service_name::DRAFT_WORKER, tls);
    serve(server, source, listener, Drain::new(), shutdown).await?;
    telemetry.shutdown().await;
    Ok(())
}

/// Serves a drafter until `shutdown` resolves or the drain begins, then drains.
///
/// # Errors
/// If the transport fails.
pub async fn serve(
    config: ServerConfig,
    source: Source,
    listener: TcpListener,
    drain: Drain,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), TransportError> {
    let service = DraftService::new(source, drain.clone(), config.max_message_bytes).into_server();
    foretoken_transport::serve(config, listener, Routes::new(service), DESCRIPTOR_SET, drain, shutdown).await
}
