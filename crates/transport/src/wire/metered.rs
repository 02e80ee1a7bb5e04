//! A channel whose calls know what they moved.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service, http};
use tonic::transport::channel::ResponseFuture;
use tonic::transport::{Channel, Error};

use super::call::CallBytes;
use super::streams::Waiting;

/// A [`Channel`] over which every call has a [`CallBytes`]: the one in its request's extensions, else one of its own.
/// Made by [`metered_channel`](crate::metered_channel()).
#[derive(Debug, Clone)]
pub struct MeteredChannel {
    channel: Channel,
    waiting: Arc<Waiting>,
}

impl MeteredChannel {
    /// `channel`, all of whose connections look among `waiting` for their calls.
    pub(crate) fn new(channel: Channel, waiting: Arc<Waiting>) -> Self {
        Self { channel, waiting }
    }
}

impl Service<http::Request<Body>> for MeteredChannel {
    type Response = http::Response<Body>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> ResponseFuture {
        let call = request.extensions_mut().remove().unwrap_or_default();
        let waiting = Arc::clone(&self.waiting);
        self.channel.call(request.map(|body| Body::new(Metered { body, unseen: Some((call, waiting)) })))
    }
}

/// A request's body, whose first bytes tell whose they are.
struct Metered {
    body: Body,
    /// Until they have come.
    unseen: Option<(CallBytes, Arc<Waiting>)>,
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref().filter(|data| !data.is_empty())
            && let Some((call, waiting)) = self.unseen.take()
        {
            waiting.enter(data, call);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
