//! Records what passes between a client and a server, and reads HTTP/2's DATA frames out of it: a second count that
//! shares nothing with the first.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

type Bytes = Arc<Mutex<Vec<u8>>>;

/// The first connection through here, both ways.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    up: Bytes,
    down: Bytes,
}

/// The DATA frames of one stream in one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Data {
    /// Sizes of the payloads.
    pub(crate) frames: Vec<usize>,
    /// All payloads.
    pub(crate) payload: Vec<u8>,
}

impl Data {
    /// With nine bytes of header each.
    pub(crate) fn wire(&self) -> u64 {
        (self.payload.len() + 9 * self.frames.len()) as u64
    }
}

impl Recorder {
    pub(crate) async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (up, down) = (Bytes::default(), Bytes::default());
        let recorder = Self { address, up: Arc::clone(&up), down: Arc::clone(&down) };
        tokio::spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(target).await.unwrap();
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
            }
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(copy(from_client, to_server, up));
            tokio::spawn(copy(from_server, to_client, down));
        });
        recorder
    }

    /// Bytes up and down so far.
    pub(crate) fn len(&self) -> (u64, u64) {
        let len = |bytes: &Bytes| bytes.lock().unwrap().len() as u64;
        (len(&self.up), len(&self.down))
    }

    /// The streams of the recording by their numbers: DATA up and down.
    pub(crate) fn streams(&self) -> BTreeMap<u32, (Data, Data)> {
        let mut streams = BTreeMap::<u32, (Data, Data)>::new();
        let up = self.up.lock().unwrap();
        assert_eq!(&up[..24], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        for (stream, payload) in data_frames(&up[24..]) {
            let data = &mut streams.entry(stream).or_default().0;
            data.frames.push(payload.len());
            data.payload.extend(payload);
        }
        for (stream, payload) in data_frames(&self.down.lock().unwrap()) {
            let data = &mut streams.entry(stream).or_default().1;
            data.frames.push(payload.len());
            data.payload.extend(payload);
        }
        streams
    }
}

fn data_frames(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_at(9);
        let len = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let (payload, rest) = rest.split_at(len);
        if header[3] == 0 {
            frames.push((u32::from_be_bytes(header[5..].try_into().unwrap()), payload));
        }
        bytes = rest;
    }
    frames
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, record: Bytes) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        record.lock().unwrap().extend(&buffer[..len]);
        if to.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}
