//! Makes a channel's connections: as tonic would make them, counted, and encrypted where that is wanted.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tonic::codegen::http::Uri;
use tonic::codegen::{Service, StdError};

use crate::channel::ChannelConfig;
use crate::tls::{self, ClientTls};
use crate::wire::{ClientIo, Counted, Socket, Streams, Waiting, WireRole};

/// Resolves, connects, wraps.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    http: HttpConnector,
    timeout: Duration,
    /// Where connections are encrypted.
    tls: Option<ClientTls>,
    /// The channel's calls, where they are metered.
    metered: Option<Arc<Waiting>>,
}

impl Connector {
    pub(crate) fn new(config: &ChannelConfig, tls: Option<ClientTls>, metered: Option<Arc<Waiting>>) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(config.connect_timeout));
        // Frames are small and each one is waited for.
        http.set_nodelay(true);
        // What https asks for is done here.
        http.enforce_http(false);
        Self { http, timeout: config.connect_timeout, tls, metered }
    }
}

/// No connection in time. It has no source, so that its text is what a caller is shown.
#[derive(Debug)]
struct TimedOut {
    timeout: Duration,
    encrypting: bool,
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.encrypting { "no connection with TLS" } else { "no connection" };
        write!(f, "{what} within {:?}", self.timeout)
    }
}

impl std::error::Error for TimedOut {}

impl Service<Uri> for Connector {
    type Response = TokioIo<ClientIo>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, StdError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default().to_owned();
        let (tls, metered, timeout) = (self.tls.clone(), self.metered.clone(), self.timeout);
        let (connecting, encrypting) = (self.http.call(uri), tls.is_some());
        let connected = async move {
            let tcp = connecting.await?.into_inner();
            let (socket, connection) = match tls {
                None => {
                    let counted = Counted::new(tcp, WireRole::Client)?;
                    let connection = Arc::clone(counted.connection());
                    (Socket::Plain(counted), connection)
                }
                Some(tls) => {
                    let counted = Counted::of_records(tcp, WireRole::Client)?;
                    let connection = Arc::clone(counted.connection());
                    (Socket::Tls(Box::new(tls::connect(tls, &host, counted).await?)), connection)
                }
            };
            let streams = metered.map(|waiting| Streams::new(connection, waiting));
            Ok::<_, StdError>(TokioIo::new(ClientIo::new(socket, streams)))
        };
        Box::pin(async move {
            match tokio::time::timeout(timeout, connected).await {
                Ok(connected) => connected,
                Err(_) => Err(TimedOut { timeout, encrypting }.into()),
            }
        })
    }
}
