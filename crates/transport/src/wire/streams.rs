//! Whose bytes a client's connection carries: the HTTP/2 streams of it, and the calls they belong to.
//!
//! A stream has its number from the HTTP/2 library, which tells nobody. So a call is recognised by the first message of its
//! body: it is entered in [`Waiting`] before the library gets it, and the stream whose first bytes it is is the call's.
//! A small flow-control window may cut it into many frames, so a stream's bytes are gathered until one call alone begins
//! like them. Sessions differ, by their session ids; calls that do not differ need not be told apart: each gets a stream
//! of theirs.

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

/// Length of what gRPC puts in front of a message: a flag, and the message's length.
const MESSAGE_PREFIX_BYTES: usize = 5;

/// Calls of a channel whose first bytes have not been seen to leave.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    /// Keys and whose they are.
    waiting: VecDeque<(Box<[u8]>, CallBytes)>,
    /// Some are missing, so that the only one left that begins like a stream may be another's.
    some_forgotten: bool,
}

/// Whose a stream is, as far as its first bytes tell.
enum Claim {
    Call(CallBytes),
    /// Of no call that waits.
    Nobody,
    /// Of one of several: the next bytes may tell.
    Undecided,
}

impl Waiting {
    /// Enters a call by the first bytes of its body, a whole message or more.
    pub(super) fn enter(&self, body: &[u8], call: CallBytes) {
        let key = key(body).into();
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.waiting.len() == MAX_WAITING {
            calls.waiting.pop_front();
            calls.some_forgotten = true;
        }
        calls.waiting.push_back((key, call));
    }

    /// Whose body begins like this: of those that begin alike to the end the one that somebody will ask after before
    /// others, because a session opened again begins like the one whose Open never left.
    fn claim(&self, first: &[u8]) -> Claim {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begins_so = |key: &[u8]| key.iter().zip(first).all(|(one, other)| one == other);
        let alike = || calls.waiting.iter().enumerate().filter(|(_, (key, _))| begins_so(key));
        let Some((oldest, (key, _))) = alike().next() else { return Claim::Nobody };
        let is_complete = first.len() >= key.len();
        if alike().any(|(_, (other, _))| other != key) || (calls.some_forgotten && !is_complete) {
            return Claim::Undecided;
        }
        let asked_after = alike().find(|(_, (_, call))| call.is_held_elsewhere());
        let index = asked_after.map_or(oldest, |(index, _)| index);
        calls.waiting.remove(index).map_or(Claim::Nobody, |(_, call)| Claim::Call(call))
    }
}

/// By what a body is recognised: its first message, or the first bytes of that. Messages begin with their length, so no
/// key is the beginning of another.
fn key(body: &[u8]) -> &[u8] {
    let len = body.get(1..MESSAGE_PREFIX_BYTES).and_then(|len| len.try_into().ok()).map(u32::from_be_bytes);
    let message = len.map_or(body.len(), |len| MESSAGE_PREFIX_BYTES.saturating_add(len as usize));
    &body[..message.min(body.len()).min(KEY_BYTES)]
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
        Self {
            up: FrameReader::after(PREFACE_BYTES),
            down: FrameReader::after(0),
            table: Table { connection, waiting, open: HashMap::new() },
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
    /// Not known yet: what it has moved until now, and its first bytes as far as they have left, at most a key's.
    Unknown {
        up: u64,
        down: u64,
        first: Vec<u8>,
    },
    Call(CallBytes),
    /// Of no call of the channel: the rest of the connection.
    Nobody,
}

impl Default for Owner {
    fn default() -> Self {
        Self::Unknown { up: 0, down: 0, first: Vec::new() }
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

    /// The next of its first bytes leave. Once they tell whose it is, the call is handed what was moved until then.
    fn began(&mut self, payload: &[u8], waiting: &Waiting, connection: &Arc<WireConnection>) {
        let Self::Unknown { up, down, first } = self else { return };
        let (up, down) = (*up, *down);
        let payload = &payload[..payload.len().min(KEY_BYTES - first.len())];
        if payload.is_empty() {
            return;
        }
        // Most first frames tell all: then nothing is kept.
        let claim = if first.is_empty() {
            waiting.claim(payload)
        } else {
            first.extend_from_slice(payload);
            waiting.claim(first)
        };
        match claim {
            Claim::Undecided if first.is_empty() => first.extend_from_slice(payload),
            Claim::Undecided => {}
            Claim::Nobody => *self = Self::Nobody,
            Claim::Call(call) => {
                call.left_on(connection);
                call.add(Way::Up, up);
                call.add(Way::Down, down);
                *self = Self::Call(call);
            }
        }
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
        if way == Way::Up {
            stream.owner.began(payload, &self.waiting, &self.connection);
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
