//! Makes a channel's connections: as tonic would make them, and counted.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tonic::codegen::http::Uri;
use tonic::codegen::{Service, StdError};

use crate::channel::ChannelConfig;
use crate::wire::{ClientIo, Counted, Streams, Waiting, WireRole};

/// Resolves, connects, wraps.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    http: HttpConnector,
    /// The channel's calls, where they are metered.
    metered: Option<Arc<Waiting>>,
}

impl Connector {
    pub(crate) fn new(config: &ChannelConfig, metered: Option<Arc<Waiting>>) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(config.connect_timeout));
        // Frames are small and each one is waited for.
        http.set_nodelay(true);
        Self { http, metered }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<ClientIo>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, StdError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, metered) = (self.http.call(uri), self.metered.clone());
        Box::pin(async move {
            let counted = Counted::new(connecting.await?.into_inner(), WireRole::Client)?;
            let streams = metered.map(|waiting| Streams::new(Arc::clone(counted.connection()), waiting));
            Ok(TokioIo::new(ClientIo::new(counted, streams)))
        })
    }
}
