//! Streams of bytes that count what passes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::IoState;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::client::TlsStream;

use super::counter::{WireConnection, WireRole};
use super::records::Records;
use super::streams::Streams;

/// Said of a server that answers a plaintext connection with TLS.
const SPEAKS_TLS: &str = "the server speaks TLS; give --tls-ca, and write host:port or https://host:port";

/// How long that is kept back: the call for which the connection was made must be on it before it fails, or would hear
/// only that it is closed.
const ALERT_PAUSE: Duration = Duration::from_millis(50);

/// A socket that counts. Wrap it in what encrypts, not the other way round.
#[derive(Debug)]
pub(crate) struct Counted {
    tcp: TcpStream,
    connection: Arc<WireConnection>,
    /// What is received, as TLS records, where somebody asks which of it is whole.
    records: Option<Records>,
}

impl Counted {
    pub(crate) fn new(tcp: TcpStream, role: WireRole) -> io::Result<Self> {
        let connection = WireConnection::open(role, tcp.local_addr()?, tcp.peer_addr()?);
        Ok(Self { tcp, connection, records: None })
    }

    /// An accepted one.
    pub(crate) fn accepted(tcp: TcpStream) -> io::Result<Self> {
        // Frames are small and each one is waited for.
        tcp.set_nodelay(true)?;
        Self::new(tcp, WireRole::Server)
    }

    /// The same for a socket below TLS whose records are followed.
    pub(crate) fn of_records(tcp: TcpStream, role: WireRole) -> io::Result<Self> {
        let mut counted = Self::new(tcp, role)?;
        counted.records = Some(Records::default());
        Ok(counted)
    }

    /// Bytes received, but for a record that is not whole yet.
    fn received_whole(&self) -> u64 {
        self.connection.bytes().received() - self.records.as_ref().map_or(0, Records::begun)
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(crate) fn connection(&self) -> &Arc<WireConnection> {
        &self.connection
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.connection.sent(*bytes);
        }
        written
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connection.close();
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.tcp).poll_read(cx, buf);
        let received = &buf.filled()[before..];
        if !received.is_empty() {
            self.connection.received(received.len());
            if let Some(records) = &mut self.records {
                records.feed(received);
            }
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write(cx, data);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write_vectored(cx, data);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// A counted socket, bare or below TLS.
#[derive(Debug)]
pub(crate) enum Socket<T> {
    /// Plaintext.
    Plain(Counted),
    /// `T` encrypts, over a socket that is counted.
    Tls(Box<T>),
}

impl<T: AsyncRead + Unpin> AsyncRead for Socket<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(counted) => Pin::new(counted).poll_read(cx, buf),
            // A peer that dies says no goodbye. HTTP/2 knows by itself which streams that cuts short, as over plaintext.
            Self::Tls(tls) => match Pin::new(tls).poll_read(cx, buf) {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(()))
                }
                read => read,
            },
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Socket<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(counted) => Pin::new(counted).poll_write(cx, data),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, data),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(counted) => Pin::new(counted).poll_write_vectored(cx, data),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, data),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(counted) => counted.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(counted) => Pin::new(counted).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(counted) => Pin::new(counted).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

impl Socket<TlsStream<Counted>> {
    /// Bytes received, if all that can be read of them has been read.
    fn read_out(&mut self) -> Option<u64> {
        match self {
            Self::Plain(counted) => Some(counted.received_whole()),
            Self::Tls(tls) => {
                let (counted, session) = tls.get_mut();
                let is_empty = |state: IoState| state.plaintext_bytes_to_read() == 0;
                session.process_new_packets().is_ok_and(is_empty).then(|| counted.received_whole())
            }
        }
    }

    /// The first bytes of a server that speaks TLS where nobody expects it: an alert, for no ClientHello came. No frame of
    /// HTTP/2 that a server may begin with begins like this.
    fn is_alert(&self, first: &[u8]) -> bool {
        matches!(self, Self::Plain(_)) && first.starts_with(&[0x15, 0x03])
    }
}

/// How a server begins.
#[derive(Debug)]
enum First {
    /// It has said nothing yet.
    Nothing,
    /// As expected.
    Frames,
    /// With a TLS alert, which is an error when that time has come.
    Alert(Pin<Box<Sleep>>),
}

/// A client's connection: counted, and on a metered channel read along frame by frame, above encryption.
#[derive(Debug)]
pub(crate) struct ClientIo {
    io: Socket<TlsStream<Counted>>,
    first: First,
    streams: Option<Box<Streams>>,
}

impl ClientIo {
    pub(crate) fn new(io: Socket<TlsStream<Counted>>, streams: Option<Streams>) -> Self {
        Self { io, first: First::Nothing, streams: streams.map(Box::new) }
    }

    /// What a write or a flush has put on the wire is of frames that are known: those of this write are told of before.
    fn carried(&mut self) {
        if let Some(streams) = &mut self.streams {
            streams.carried_up();
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let First::Alert(told) = &mut this.first {
            return told
                .as_mut()
                .poll(cx)
                .map(|()| Err(io::Error::new(io::ErrorKind::InvalidData, SPEAKS_TLS)));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buf);
        let data = &buf.filled()[before..];
        if matches!(this.first, First::Nothing) && !data.is_empty() {
            this.first = First::Frames;
            if this.io.is_alert(data) {
                buf.set_filled(before);
                this.first = First::Alert(Box::pin(tokio::time::sleep(ALERT_PAUSE)));
                return Pin::new(this).poll_read(cx, buf);
            }
        }
        if let Some(streams) = &mut this.streams {
            streams.received(data);
            if let Some(bytes) = this.io.read_out() {
                streams.carried_down(bytes);
            }
        }
        read
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, data);
        if let (Some(streams), Poll::Ready(Ok(bytes))) = (&mut this.streams, &written) {
            streams.sent(data, *bytes);
        }
        this.carried();
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.io).poll_flush(cx);
        this.carried();
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.io).poll_shutdown(cx);
        this.carried();
        shut
    }
}
