//! Accepted connections, counted, that can be cut from our side.
//!
//! The HTTP/2 server closes a connection when its streams have ended. A peer that never ends one, or that
//! connected and never spoke, would keep the process from ending; [`Connection`] closes it from below.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::wire::{Counted, WireRole};

/// Pause after a failed accept. It fails at once and again while the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a listener accepted. `draining` closes the silent ones, `cut` all of them.
pub(crate) fn connections(
    accepted: impl Stream<Item = io::Result<TcpStream>>,
    draining: CancellationToken,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    accepted.then(move |accepted| {
        let (draining, cut) = (draining.clone(), cut.clone());
        async move {
            match accepted {
                Ok(tcp) => Connection::new(tcp, draining, cut),
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    Err(error)
                }
            }
        }
    })
}

/// A counted TCP connection whose reads fail once it is to be closed.
#[derive(Debug)]
pub(crate) struct Connection {
    io: Counted,
    /// Until the peer's first byte: nothing can be in flight, so the drain need not wait for it.
    silent: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn new(tcp: TcpStream, draining: CancellationToken, cut: CancellationToken) -> io::Result<Self> {
        // Frames are small and each one is waited for.
        tcp.set_nodelay(true)?;
        Ok(Self {
            io: Counted::new(tcp, WireRole::Server)?,
            silent: Some(Box::pin(draining.cancelled_owned())),
            cut: Box::pin(cut.cancelled_owned()),
        })
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
        self.io.tcp().connect_info()
    }
}
