//! Channels to other services.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::connector::Connector;
use crate::error::TransportError;
use crate::tls::ClientTls;
use crate::wire::{MeteredChannel, Waiting};

/// First and longest pause between two health questions.
const POLL_FIRST: Duration = Duration::from_millis(10);
const POLL_LONGEST: Duration = Duration::from_millis(500);

/// How a channel connects and notices that the other side is gone.
#[derive(Debug, Clone)]
pub struct ChannelConfig {
    /// Longest wait for a connection, with its TLS handshake where it has one.
    pub connect_timeout: Duration,
    /// How often a silent connection is pinged, streams or not.
    ///
    /// It finds a dead peer only while the connection is quiet: a caller that waits for an answer sets its own deadline.
    pub keepalive_interval: Duration,
    /// How long a ping may stay unanswered before the connection counts as dead.
    pub keepalive_timeout: Duration,
    /// Whom to trust and what to show. Without it only plaintext connections can be made.
    pub tls: Option<ClientTls>,
}

impl ChannelConfig {
    /// The defaults, with TLS if it is given.
    #[must_use]
    pub fn with_tls(tls: Option<ClientTls>) -> Self {
        Self { tls, ..Self::default() }
    }
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            keepalive_interval: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            tls: None,
        }
    }
}

/// A channel to `address`: `host:port`, `http://host:port` or `https://host:port`.
///
/// `http` is plaintext and `https` TLS; without a scheme it is TLS if `config` has any.
///
/// It connects at its first call, and again after a failure at the next one: a service may start after its clients.
/// Needs a tokio runtime around it.
pub fn channel(address: &str, config: &ChannelConfig) -> Result<Channel, TransportError> {
    lazy(address, config, None)
}

/// The same, with every call's bytes known by themselves.
pub fn metered_channel(address: &str, config: &ChannelConfig) -> Result<MeteredChannel, TransportError> {
    let waiting = Arc::new(Waiting::default());
    Ok(MeteredChannel::new(lazy(address, config, Some(Arc::clone(&waiting)))?, waiting))
}

fn lazy(
    address: &str,
    config: &ChannelConfig,
    metered: Option<Arc<Waiting>>,
) -> Result<Channel, TransportError> {
    let uri = parse(address, config.tls.is_some())
        .map_err(|reason| TransportError::Address { address: address.to_owned(), reason })?;
    let tls = match (uri.scheme_str(), uri.host(), &config.tls) {
        (Some("https"), Some(host), Some(tls)) => Some(tls.verifying(host)?),
        (Some("https"), ..) => return Err(TransportError::NoRoots { address: address.to_owned() }),
        _ => None,
    };
    let endpoint = Endpoint::from(uri)
        .http2_keep_alive_interval(config.keepalive_interval)
        .keep_alive_timeout(config.keepalive_timeout)
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_with_connector_lazy(Connector::new(config, tls, metered)))
}

/// Whether connections to `address` are encrypted, if it can be used at all.
#[must_use]
pub fn is_encrypted(address: &str, config: &ChannelConfig) -> bool {
    parse(address, config.tls.is_some()).is_ok_and(|uri| uri.scheme_str() == Some("https"))
}

fn parse(address: &str, encrypt: bool) -> Result<Uri, &'static str> {
    let scheme = if encrypt { "https" } else { "http" };
    let with_scheme =
        if address.contains("://") { address.to_owned() } else { format!("{scheme}://{address}") };
    let uri: Uri = with_scheme.parse().map_err(|_| "it is no host and port")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("the scheme is neither http nor https");
    }
    let authority = uri.authority().ok_or("the host is missing")?;
    if authority.as_str().contains('@') {
        return Err("it holds a user name");
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err("the host is missing");
    }
    if !matches!(uri.port_u16(), Some(1..)) {
        return Err("the port is missing or not between 1 and 65535");
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err("it holds a path");
    }
    Ok(uri)
}

/// Waits until `service_name` reports SERVING, asking again with growing pauses.
///
/// Fails early when a server answers that it has no such service: waiting would not help, the address is another's.
pub async fn wait_healthy(
    channel: Channel,
    service_name: &str,
    timeout: Duration,
) -> Result<(), TransportError> {
    let deadline = Instant::now() + timeout;
    let mut client = HealthClient::new(channel);
    let mut pause = POLL_FIRST;
    let mut last = "no answer".to_owned();
    loop {
        let request = HealthCheckRequest { service: service_name.to_owned() };
        match tokio::time::timeout_at(deadline, client.check(request)).await {
            Ok(Ok(answer)) => match answer.get_ref().status() {
                ServingStatus::Serving => return Ok(()),
                other => last = format!("it reports {}", other.as_str_name()),
            },
            Ok(Err(status)) if matches!(status.code(), Code::NotFound | Code::Unimplemented) => {
                return Err(TransportError::NotProvided { service: service_name.to_owned() });
            }
            Ok(Err(status)) => last = cause(&status),
            Err(_) => {}
        }
        if Instant::now() + pause >= deadline {
            return Err(TransportError::NotHealthy { service: service_name.to_owned(), timeout, last });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_LONGEST);
    }
}

/// The innermost reason: a status for a failed connection says only `transport error`.
pub(crate) fn cause(status: &Status) -> String {
    let mut source = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_with_host_and_port_are_taken() {
        for address in [
            "127.0.0.1:50051",
            "http://127.0.0.1:50051",
            "http://verifier:1/",
            "[::1]:50051",
            "localhost:50051",
        ] {
            assert!(channel(address, &ChannelConfig::default()).is_ok(), "{address}");
        }
    }

    #[tokio::test]
    async fn other_addresses_are_named_with_the_reason() {
        for (address, reason) in [
            ("", "no host and port"),
            ("verifier", "port is missing"),
            ("verifier:", "port is missing"),
            ("verifier:0", "port is missing"),
            ("verifier:99999", "port is missing or not between 1 and 65535"),
            (":50051", "host is missing"),
            ("https://verifier:443", "https needs a CA to verify the server with; give --tls-ca"),
            ("ftp://verifier:21", "scheme is neither http nor https"),
            ("user@verifier:50051", "user name"),
            ("verifier:50051/path", "path"),
            ("a b:1", "no host and port"),
        ] {
            let error = channel(address, &ChannelConfig::default()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("address {address:?} cannot be used")), "{error}");
            assert!(error.contains(reason), "{error}");
        }
    }

    #[tokio::test]
    async fn nobody_there_says_so_in_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let channel = channel(&address, &ChannelConfig::default()).unwrap();
        let error =
            wait_healthy(channel, "test.v1.Test", Duration::from_millis(100)).await.unwrap_err().to_string();
        assert!(
            error.starts_with("test.v1.Test was not ready within 100ms: ") && error.contains("refused"),
            "{error}"
        );
    }
}
