//! Accepted connections, counted, encrypted where the listener has a certificate, that can be cut from our side.
//!
//! The HTTP/2 server closes a connection when its streams have ended. A peer that never ends one, or that
//! connected and never spoke, would keep the process from ending; [`Connection`] closes it from below.
//!
//! Handshakes run beside one another and beside what is accepted: a peer that dawdles holds up nobody, and has little
//! time. Of more than [`MAX_HANDSHAKES`] the oldest is given up, for those of honest peers are young.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::tls::{ServerTls, accept_failure};
use crate::wire::{Counted, Socket};

/// Pause after a failed accept. It fails at once and again while the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Longest that a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handshakes under way at the same time.
const MAX_HANDSHAKES: usize = 512;

/// How long a peer whose handshake failed is listened to, and how much it may say: closing at once would reset the connection,
/// and it would not hear why.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 64 << 10;

/// What a listener accepted, with `tls` once it is encrypted. `draining` closes the silent ones, `cut` all of them.
pub(crate) fn connections<S>(
    accepted: S,
    tls: Option<ServerTls>,
    draining: CancellationToken,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>>
where
    S: Stream<Item = io::Result<TcpStream>>,
{
    let accepted = accepted.then(async |accepted| match accepted {
        Ok(tcp) => Ok(tcp),
        Err(error) => {
            tracing::warn!(%error, "accepting a connection failed");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            Err(error)
        }
    });
    let (handshakes, begun) = (JoinSet::new(), VecDeque::new());
    Incoming { accepted: Box::pin(accepted), tls, draining, cut, handshakes, begun }
}

/// Connections as they are ready to be served.
struct Incoming<S> {
    accepted: Pin<Box<S>>,
    tls: Option<ServerTls>,
    draining: CancellationToken,
    cut: CancellationToken,
    handshakes: JoinSet<Option<Connection>>,
    /// Those of `handshakes`, the oldest first.
    begun: VecDeque<AbortHandle>,
}

impl<S> Incoming<S> {
    /// Begins a handshake.
    fn begin(&mut self, tcp: TcpStream, tls: ServerTls) {
        self.begun.retain(|handshake| !handshake.is_finished());
        if self.begun.len() >= MAX_HANDSHAKES
            && let Some(oldest) = self.begun.pop_front()
        {
            tracing::info!(
                limit = MAX_HANDSHAKES,
                "too many TLS handshakes at the same time: the oldest is given up"
            );
            oldest.abort();
        }
        let (draining, cut) = (self.draining.clone(), self.cut.clone());
        self.begun.push_back(self.handshakes.spawn(secured(tcp, tls, draining, cut)));
    }
}

impl<S: Stream<Item = io::Result<TcpStream>>> Stream for Incoming<S> {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match this.handshakes.poll_join_next(cx) {
                Poll::Ready(Some(Ok(Some(connection)))) => return Poll::Ready(Some(Ok(connection))),
                // It failed, which has been logged, or was given up.
                Poll::Ready(Some(Ok(None) | Err(_))) => continue,
                Poll::Ready(None) | Poll::Pending => {}
            }
            match (this.accepted.as_mut().poll_next(cx), &this.tls) {
                (Poll::Ready(Some(Ok(tcp))), Some(tls)) => {
                    let tls = tls.clone();
                    this.begin(tcp, tls);
                }
                (Poll::Ready(Some(Ok(tcp))), None) => {
                    let connection = Counted::accepted(tcp).map(|counted| {
                        Connection::new(Socket::Plain(counted), this.draining.clone(), this.cut.clone())
                    });
                    return Poll::Ready(Some(connection));
                }
                (Poll::Ready(Some(Err(error))), _) => return Poll::Ready(Some(Err(error))),
                (Poll::Ready(None), _) if this.handshakes.is_empty() => return Poll::Ready(None),
                (Poll::Ready(None) | Poll::Pending, _) => return Poll::Pending,
            }
        }
    }
}

/// A connection whose handshake succeeds, in time and before the drain.
async fn secured(
    tcp: TcpStream,
    tls: ServerTls,
    draining: CancellationToken,
    cut: CancellationToken,
) -> Option<Connection> {
    let peer = tcp.peer_addr().ok();
    let counted = Counted::accepted(tcp).ok()?;
    let handshake = TlsAcceptor::from(tls.current()).accept(counted).into_fallible();
    let outcome = tokio::select! {
        outcome = timeout(HANDSHAKE_TIMEOUT, handshake) => outcome,
        // Nothing can be in flight.
        () = draining.cancelled() => return None,
    };
    match outcome {
        Ok(Ok(stream)) => Some(Connection::new(Socket::Tls(Box::new(stream)), draining, cut)),
        Ok(Err((error, socket))) => {
            refused(peer, &error, &socket);
            tokio::select! {
                () = linger(socket) => {}
                () = draining.cancelled() => {}
            }
            None
        }
        Err(_) => {
            tracing::info!(?peer, limit = ?HANDSHAKE_TIMEOUT, "TLS handshake not finished in time");
            None
        }
    }
}

/// Logs why a connection was not accepted.
fn refused(peer: Option<SocketAddr>, error: &io::Error, socket: &Counted) {
    if socket.connection().bytes().received() == 0 {
        // Whoever only looks whether the port is open.
        tracing::debug!(?peer, "connection closed before its TLS handshake");
    } else {
        tracing::info!(?peer, reason = accept_failure(error), "TLS handshake failed");
    }
}

/// Lets a peer read the alert, which is on its way, before the connection ends.
async fn linger(mut socket: Counted) {
    let _end = socket.shutdown().await;
    let mut rest = socket.take(LINGER_BYTES);
    let _late = timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

/// A counted connection whose reads fail once it is to be closed.
#[derive(Debug)]
pub(crate) struct Connection {
    io: Socket<TlsStream<Counted>>,
    /// Until the peer's first byte, above TLS: nothing can be in flight, so the drain need not wait for it.
    silent: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn new(io: Socket<TlsStream<Counted>>, draining: CancellationToken, cut: CancellationToken) -> Self {
        Self { io, silent: Some(Box::pin(draining.cancelled_owned())), cut: Box::pin(cut.cancelled_owned()) }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.silent = None;
        } else if read.is_pending()
            && let Some(draining) = &mut self.silent
            && draining.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        let counted = match &self.io {
            Socket::Plain(counted) => counted,
            Socket::Tls(tls) => tls.get_ref().0,
        };
        counted.tcp().connect_info()
    }
}
