//! Health while a service still loads what it serves.
//!
//! A process that reads weights for minutes lives, and should say so: the empty name reports SERVING, the service's
//! name NOT_SERVING. Everything else is answered with UNIMPLEMENTED. The listener is only lent: what
//! [`serve`](crate::serve()) does with it afterwards is another server.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic_health::ServingStatus;

use crate::incoming::connections;
use crate::tls::ServerTls;

/// Time for questions under way when the loading is done; then their connections are cut.
const GRACE: Duration = Duration::from_millis(500);

/// Answers health questions on `listener`, with `tls` if it has a certificate, until `load` is done, and returns what it made.
///
/// Without a server the questions would wait in the listener's queue, and a probe could not tell loading from hanging.
pub async fn loading<T>(
    listener: &TcpListener,
    tls: Option<ServerTls>,
    service_name: &'static str,
    load: impl Future<Output = T>,
) -> T {
    let (mut reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", ServingStatus::Serving).await;
    reporter.set_service_status(service_name, ServingStatus::NotServing).await;
    let (done, cut) = (CancellationToken::new(), CancellationToken::new());
    let incoming = connections(Lent(listener), tls, done.clone(), cut.clone());
    let server =
        Server::builder().add_service(health).serve_with_incoming_shutdown(incoming, done.cancelled());
    let (mut server, mut load) = (pin!(server), pin!(load));
    let loaded = tokio::select! {
        loaded = &mut load => loaded,
        // It ends before its time only with an error, and health alone is no reason to stop.
        ended = &mut server => {
            tracing::warn!(?ended, "health cannot be asked for while loading");
            return load.await;
        }
    };
    for name in ["", service_name] {
        // Ends the watches, which would otherwise be streams like any other.
        reporter.clear_service_status(name).await;
    }
    done.cancel();
    if tokio::time::timeout(GRACE, &mut server).await.is_err() {
        cut.cancel();
        let _closed = tokio::time::timeout(GRACE, &mut server).await;
    }
    loaded
}

/// The connections of a listener that somebody else owns.
struct Lent<'a>(&'a TcpListener);

impl Stream for Lent<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(cx).map(|accepted| Some(accepted.map(|(tcp, _peer)| tcp)))
    }
}
