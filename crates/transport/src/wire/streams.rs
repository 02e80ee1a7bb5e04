//! Whose bytes a client's connection carries: the HTTP/2 streams of it, and the calls they belong to.
//!
//! A stream has its number from the HTTP/2 library, which tells nobody. So a call is recognised by the first bytes of its
//! body: they are entered in [`Waiting`] before the library gets them, and the stream whose first payload they are is the
//! call's. Sessions differ in them, by their session ids; calls that do not differ need not be told apart, and get
//! their streams in order.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::sync::{Arc, Mutex, PoisonError};

use super::call::{CallBytes, Way};
use super::counter::WireConnection;
use super::frames::{
    DATA, END_STREAM, FrameReader, HEADER_BYTES, HEADERS, Head, PREFACE_BYTES, Part, RST_STREAM,
};

/// First bytes by which a call is recognised: more than gRPC's prefix, the framing of an Open and the longest session id.
const KEY_BYTES: usize = 192;

/// Calls whose first bytes may be on their way; of more, the oldest never left and are forgotten.
const MAX_WAITING: usize = 4096;

/// Calls of a channel whose first bytes have not been seen to leave.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<VecDeque<(Box<[u8]>, CallBytes)>>);

impl Waiting {
    /// Enters a call by the first bytes of its body.
    pub(super) fn enter(&self, body: &[u8], call: CallBytes) {
        let key = body[..body.len().min(KEY_BYTES)].into();
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() == MAX_WAITING {
            calls.pop_front();
        }
        calls.push_back((key, call));
    }

    /// Whose body begins like this: of those that somebody will ask after before others, because a session opened
    /// again begins like the one whose Open never left.
    fn claim(&self, first: &[u8]) -> Option<CallBytes> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = || calls.iter().enumerate().filter(|(_, (key, _))| key.starts_with(first));
        let asked_after = alike().find(|(_, (_, call))| call.is_held_elsewhere());
        let (index, _) = asked_after.or_else(|| alike().next())?;
        calls.remove(index).map(|(_, call)| call)
    }
}

/// The frames of one connection.
#[derive(Debug)]
pub(crate) struct Streams {
    up: FrameReader,
    down: FrameReader,
    table: Table,
}

impl Streams {
    /// Reads along `connection`, whose calls are among `waiting`.
    pub(crate) fn new(connection: Arc<WireConnection>, waiting: Arc<Waiting>) -> Self {
        let (open, first) = (HashMap::new(), First { bytes: [0; KEY_BYTES], filled: 0 });
        Self {
            up: FrameReader::after(PREFACE_BYTES),
            down: FrameReader::after(0),
            table: Table { connection, waiting, open, first },
        }
    }

    /// `bytes` of `data` have been sent.
    pub(super) fn sent(&mut self, data: &[IoSlice<'_>], bytes: usize) {
        let mut left = bytes;
        for slice in data {
            let taken = &slice[..slice.len().min(left)];
            left -= taken.len();
            self.up.feed(taken, |head, part| self.table.passed(Way::Up, head, part));
        }
    }

    /// All that the connection has sent is of what was told here: below TLS it may be less.
    pub(super) fn carried_up(&mut self) {
        self.table.connection.up.carried(self.table.connection.bytes().sent());
    }

    /// `data` has been received.
    pub(super) fn received(&mut self, data: &[u8]) {
        self.down.feed(data, |head, part| self.table.passed(Way::Down, head, part));
    }

    /// Of what the connection has received, `bytes` are of what was told here.
    pub(super) fn carried_down(&mut self, bytes: u64) {
        self.table.connection.down.carried(bytes);
    }
}

/// The open streams of a connection, as many as the peer allows at once.
#[derive(Debug)]
struct Table {
    connection: Arc<WireConnection>,
    waiting: Arc<Waiting>,
    open: HashMap<u32, Stream>,
    first: First,
}

/// The first payload of a stream, as it leaves.
#[derive(Debug)]
struct First {
    bytes: [u8; KEY_BYTES],
    filled: usize,
}

impl First {
    /// Takes what has passed of a frame, nothing with its header; gives its first `key` bytes once they are there.
    fn complete(&mut self, key: usize, payload: &[u8]) -> Option<&[u8]> {
        if payload.is_empty() {
            self.filled = 0;
            return None;
        }
        let taken = payload.len().min(key - self.filled);
        self.bytes[self.filled..self.filled + taken].copy_from_slice(&payload[..taken]);
        self.filled += taken;
        (self.filled == key).then_some(&self.bytes[..key])
    }
}

#[derive(Debug, Default)]
struct Stream {
    owner: Owner,
    up_ended: bool,
    down_ended: bool,
}

/// Whose a stream is.
#[derive(Debug)]
enum Owner {
    /// Not known before its first payload has left; what it has moved until then.
    Unknown {
        up: u64,
        down: u64,
    },
    Call(CallBytes),
    /// Of no call of the channel: the rest of the connection.
    Nobody,
}

impl Default for Owner {
    fn default() -> Self {
        Self::Unknown { up: 0, down: 0 }
    }
}

impl Owner {
    fn add(&mut self, way: Way, bytes: usize) {
        match (self, way) {
            (Self::Call(call), _) => call.add(way, bytes as u64),
            (Self::Unknown { up: moved, .. }, Way::Up) | (Self::Unknown { down: moved, .. }, Way::Down) => {
                *moved += bytes as u64;
            }
            (Self::Nobody, _) => {}
        }
    }

    /// Says whose it is, and hands over what it has moved.
    fn settle_on(&mut self, call: Option<CallBytes>, connection: &Arc<WireConnection>) {
        let Self::Unknown { up, down } = *self else { return };
        *self = call.map_or(Self::Nobody, |call| {
            call.left_on(connection);
            call.add(Way::Up, up);
            call.add(Way::Down, down);
            Self::Call(call)
        });
    }
}

impl Table {
    fn passed(&mut self, way: Way, head: Head, part: Part<'_>) {
        match (head.kind, part) {
            (HEADERS, Part::Head) if way == Way::Up => {
                self.open.entry(head.stream).or_default();
            }
            (DATA, Part::Head) => self.data(way, &head, HEADER_BYTES, &[]),
            (DATA, Part::Payload(payload)) => self.data(way, &head, payload.len(), payload),
            (DATA | HEADERS, Part::End) if head.flags & END_STREAM != 0 => self.ended(way, head.stream),
            (RST_STREAM, Part::End) => {
                self.open.remove(&head.stream);
            }
            _ => {}
        }
    }

    fn data(&mut self, way: Way, head: &Head, bytes: usize, payload: &[u8]) {
        let Some(stream) = self.open.get_mut(&head.stream) else { return };
        stream.owner.add(way, bytes);
        if way == Way::Up && matches!(stream.owner, Owner::Unknown { .. }) {
            // A frame's payload is of one chunk of the body, so all of a key that fits into it comes with it.
            let key = KEY_BYTES.min(head.payload as usize);
            if let Some(first) = self.first.complete(key, payload) {
                stream.owner.settle_on(self.waiting.claim(first), &self.connection);
            }
        }
    }

    fn ended(&mut self, way: Way, id: u32) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        match way {
            Way::Up => stream.up_ended = true,
            Way::Down => stream.down_ended = true,
        }
        if stream.up_ended && stream.down_ended {
            self.open.remove(&id);
        }
    }
}
