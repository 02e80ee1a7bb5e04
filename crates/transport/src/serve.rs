//! Serves a loaded service until it is asked to end, and then ends, whatever its peers do.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::drain::Drain;
use crate::error::TransportError;
use crate::health::{Health, HealthSwitch};
use crate::incoming::connections;
use crate::tls::ServerTls;

/// How often a silent connection is pinged, and how long it may stay silent then.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for streams to end with a status once the drain has expired; after it their connections are cut.
const STATUS_GRACE: Duration = Duration::from_secs(1);

/// Time for the server to notice that its connections are gone.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// What [`serve()`] needs to know; [`ListenArgs::server_config`](crate::ListenArgs::server_config) makes one.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Full name of the service, e.g. `foretoken.v1.Verifier`: health and reflection know it by this.
    pub service_name: &'static str,
    /// Largest message taken. The service sets it on its own generated server too, which decodes.
    pub max_message_bytes: usize,
    /// Streams that one connection may have open at the same time.
    pub max_connection_streams: u32,
    /// How long running streams may go on after the shutdown.
    pub drain_timeout: Duration,
    /// Print one JSON line with name and address on standard output when ready.
    pub announce: bool,
    /// Lets the running service report itself as not ready.
    pub health: HealthSwitch,
    /// The listener's certificate; without one it speaks plaintext.
    pub tls: Option<ServerTls>,
}

/// Serves `routes`, with health and reflection beside them, until `shutdown` resolves or somebody begins the drain.
///
/// Call it once the service is loaded: from here on health reports SERVING. Then, in this order: health reports
/// NOT_SERVING, the drain begins, the listener closes and each connection is told to open no new stream; after
/// `drain_timeout` the drain expires, a second later what is left is cut off. The function returns in any case.
pub async fn serve(
    config: ServerConfig,
    listener: TcpListener,
    routes: Routes,
    descriptor_set: &'static [u8],
    drain: Drain,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), TransportError> {
    let service = config.service_name;
    let stopped =
        |reason: Box<dyn std::error::Error + Send + Sync>| TransportError::Serve { service, reason };
    let address = listener.local_addr().map_err(|error| stopped(error.into()))?;

    let (reporter, health_server) = tonic_health::server::health_reporter();
    let mut health = Health::new(service, reporter, &config.health);
    health.publish().await;
    let routes = with_reflection(routes.add_service(health_server), service, descriptor_set)?;

    let cut = CancellationToken::new();
    let encrypted = config.tls.is_some();
    let accepted = TcpListenerStream::new(listener);
    let incoming = connections(accepted, config.tls, drain.begun_token().clone(), cut.clone());
    let server = Server::builder()
        .max_concurrent_streams(config.max_connection_streams)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, drain.draining());
    let mut server = pin!(server);

    tracing::info!(service, %address, encrypted, "serving");
    if config.announce {
        announce(service, address);
    }
    tokio::select! {
        result = &mut server => return finished(service, result),
        () = shutdown => {}
        () = drain.draining() => {}
        () = health.follow() => {}
    }

    tracing::info!(service, timeout = ?config.drain_timeout, "draining");
    health.withdraw().await;
    drain.begin();
    tokio::select! {
        result = &mut server => return finished(service, result),
        () = tokio::time::sleep(config.drain_timeout) => drain.expire(),
        () = drain.expired() => {}
    }
    tracing::warn!(service, "the time to drain is over: ending the streams that are left");
    if let Ok(result) = tokio::time::timeout(STATUS_GRACE, &mut server).await {
        return finished(service, result);
    }
    cut.cancel();
    if tokio::time::timeout(CUT_GRACE, &mut server).await.is_err() {
        tracing::warn!(service, "connections did not close: leaving them to the end of the process");
    }
    Ok(())
}

fn finished(
    service: &'static str,
    result: Result<(), tonic::transport::Error>,
) -> Result<(), TransportError> {
    tracing::info!(service, "drained");
    result.map_err(|error| TransportError::Serve { service, reason: error.into() })
}

/// Adds reflection, in the version of today and in the one that older clients ask for.
///
/// It lists what this process serves, not all that the protocol files define: a client may call whatever it sees.
fn with_reflection(
    routes: Routes,
    service: &'static str,
    descriptor_set: &'static [u8],
) -> Result<Routes, TransportError> {
    let builder = || {
        [
            service,
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ]
        .into_iter()
        .fold(tonic_reflection::server::Builder::configure(), |builder, name| builder.with_service_name(name))
        .register_encoded_file_descriptor_set(descriptor_set)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
    };
    let invalid = |error: tonic_reflection::server::Error| TransportError::Descriptor {
        service,
        reason: error.to_string(),
    };
    let v1 = builder().build_v1().map_err(invalid)?;
    let v1alpha = builder().build_v1alpha().map_err(invalid)?;
    Ok(routes.add_service(v1).add_service(v1alpha))
}

/// One line for the parent process. Both texts are plain ASCII without quotes, so no JSON writer is needed.
fn announce(service: &str, address: SocketAddr) {
    let mut stdout = std::io::stdout().lock();
    let written =
        writeln!(stdout, r#"{{"service":"{service}","address":"{address}"}}"#).and_then(|()| stdout.flush());
    if let Err(error) = written {
        tracing::warn!(%error, "the address could not be announced on standard output");
    }
}
