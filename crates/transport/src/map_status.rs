//! Refusals that a generated server makes before the service sees the request.
//!
//! A request of a single message is read by the generated code: bytes that are no message, and messages over the
//! limit, are answered there, with codes of its own. [`MapStatus`] lets a service word these like its other errors.
//! It sees statuses in a response's headers only; those at the end of a stream are the service's own.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

/// A generated server with another wording for the statuses it answers with at once.
#[derive(Debug, Clone)]
pub struct MapStatus<S> {
    inner: S,
    map: fn(Status) -> Status,
}

impl<S> MapStatus<S> {
    /// `inner`, with `map` over its immediate statuses.
    pub fn new(inner: S, map: fn(Status) -> Status) -> Self {
        Self { inner, map }
    }
}

impl<S: NamedService> NamedService for MapStatus<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<http::Request<B>> for MapStatus<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (answer, map) = (self.inner.call(request), self.map);
        Box::pin(async move {
            let response = answer.await?;
            Ok(match Status::from_header_map(response.headers()) {
                Some(status) => map(status).into_http(),
                None => response,
            })
        })
    }
}
