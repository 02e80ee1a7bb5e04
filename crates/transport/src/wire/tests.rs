//! Frames in pieces of any size, against a plain reading of the whole.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::Arc;

use proptest::prelude::*;

use super::call::{CallBytes, WireBytes};
use super::counter::{WireConnection, WireRole, wire_connections};
use super::frames::{DATA, END_STREAM, FrameReader, HEADERS, PREFACE_BYTES, Part, RST_STREAM};
use super::streams::{Streams, Waiting};

/// A frame to be sent.
#[derive(Debug, Clone)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = (self.payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

/// Payload sizes around everything that matters: none, less than a header, the key, HTTP/2's own limit.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![Just(0), 1..30usize, 180..220usize, Just(16_384), 0..20_000usize];
    (size, any::<u8>()).prop_map(|(size, byte)| vec![byte; size])
}

fn frame() -> impl Strategy<Value = Frame> {
    (0..10u8, any::<u8>(), 0..u32::MAX >> 1, payload()).prop_map(|(kind, flags, stream, payload)| Frame {
        kind,
        flags,
        stream,
        payload,
    })
}

/// Cuts bytes at random places: the sizes are used in turn.
fn pieces<'a>(bytes: &'a [u8], sizes: &'a [usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut sizes, mut pieces) = (bytes, sizes.iter().cycle(), Vec::new());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![1..12usize, 1..300usize, 1..40_000usize], 1..12)
}

fn connection() -> Arc<WireConnection> {
    let address = ([127, 0, 0, 1], 1).into();
    WireConnection::open(WireRole::Client, address, address)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn frames_are_the_same_however_they_are_cut(
        frames in proptest::collection::vec(frame(), 0..12),
        preface in prop_oneof![Just(0), Just(PREFACE_BYTES)],
        sizes in sizes(),
    ) {
        let mut bytes = vec![b'P'; preface];
        frames.iter().for_each(|frame| bytes.extend(frame.bytes()));
        let (mut reader, mut read, mut ended) = (FrameReader::after(preface), Vec::<Frame>::new(), 0);
        for piece in pieces(&bytes, &sizes) {
            reader.feed(piece, |head, part| match part {
                Part::Head => {
                    let (kind, flags, stream) = (head.kind, head.flags, head.stream);
                    read.push(Frame { kind, flags, stream, payload: Vec::new() });
                }
                Part::Payload(payload) => read.last_mut().unwrap().payload.extend(payload),
                Part::End => {
                    ended += 1;
                    assert_eq!((ended, head.payload as usize), (read.len(), read[ended - 1].payload.len()));
                }
            });
        }
        prop_assert_eq!(format!("{read:?}"), format!("{frames:?}"));
        prop_assert_eq!(ended, frames.len());
    }

    /// Streams that speak in turns, each frame cut anywhere: every call's DATA is its own, and when all are settled
    /// nothing of the connection is left.
    #[test]
    fn calls_are_charged_with_their_own_frames_and_all_of_the_rest(
        turns in proptest::collection::vec((0..6usize, any::<bool>(), payload(), 0..4u8), 1..40),
        sizes in sizes(),
    ) {
        let (connection, waiting) = (connection(), Arc::new(Waiting::default()));
        let mut streams = Streams::new(Arc::clone(&connection), Arc::clone(&waiting));
        let mut send = |bytes: &[u8]| for pair in pieces(bytes, &sizes).chunks(2) {
            let slices: Vec<_> = pair.iter().map(|piece| IoSlice::new(piece)).collect();
            let all = pair.iter().map(|piece| piece.len()).sum();
            connection.sent(all);
            streams.sent(&slices, all);
            streams.carried_up();
        };
        send(&[b'P'; PREFACE_BYTES]);

        let calls: Vec<_> = (0..6).map(|_| CallBytes::default()).collect();
        let mut own = [WireBytes::default(); 6];
        let mut opened = HashMap::new();
        let mut received = Vec::new();
        for (who, up, mut payload, other) in turns {
            let next = 1 + 2 * opened.len() as u32;
            let mut first = false;
            let stream = *opened.entry(who).or_insert_with(|| {
                first = true;
                next
            });
            if first {
                // The body's first bytes, with which it was entered, may be longer than the first frame.
                payload = [format!("call {who} of six").as_bytes(), &payload].concat();
                waiting.enter(&[payload.as_slice(), b"more"].concat(), calls[who].clone());
                send(&Frame { kind: HEADERS, flags: 4, stream, payload: vec![1; 50] }.bytes());
            }
            if other > 0 {
                send(&Frame { kind: 3 + other, flags: 1, stream: 0, payload: vec![7; 8] }.bytes());
            }
            let moved = 9 + payload.len() as u64;
            let frame = Frame { kind: DATA, flags: 0, stream, payload };
            if up || first {
                own[who].up += moved;
                send(&frame.bytes());
            } else {
                own[who].down += moved;
                received.extend(frame.bytes());
            }
        }
        for piece in pieces(&received, &sizes) {
            connection.received(piece.len());
            streams.received(piece);
            streams.carried_down(connection.bytes().received());
        }
        for (call, own) in calls.iter().zip(own) {
            prop_assert_eq!(call.own(), own);
        }
        let mut charged = WireBytes::default();
        for call in &calls {
            let settled = call.settle();
            prop_assert!(settled.up >= call.own().up && settled.down >= call.own().down);
            charged.up += settled.up;
            charged.down += settled.down;
        }
        prop_assert_eq!(charged.up, connection.bytes().sent());
        prop_assert_eq!(charged.down, connection.bytes().received());
        prop_assert_eq!(charged, connection.charged());
    }
}

/// A body of two messages, the first of them `session` with gRPC's prefix, and longer than any window below.
fn body(session: &str, more: usize) -> Vec<u8> {
    let message = |bytes: &[u8]| [&[0], (bytes.len() as u32).to_be_bytes().as_slice(), bytes].concat();
    [message(format!("{session:.<60}").as_bytes()), message(&vec![9; more])].concat()
}

/// What a call does next.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// Its body is handed to the library.
    Enter,
    /// So much of it leaves in a frame: all that the peer's window allows.
    Up(usize),
    /// So much comes back.
    Down(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![Just(Turn::Enter), (0..70usize).prop_map(Turn::Up), (0..40usize).prop_map(Turn::Down)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Windows that cut the first messages anywhere, of calls that speak in turns over two connections: whoever differs from
    /// all others in its first message has its own bytes, and those who do not have theirs together.
    #[test]
    fn calls_are_told_apart_however_small_the_windows(
        who in proptest::collection::vec((0..5u8, 0..50usize), 2..8),
        turns in proptest::collection::vec((0..8usize, turn()), 1..150),
    ) {
        let mut hands = [Hand::new(), Hand::new()];
        hands[1].waiting = Arc::clone(&hands[0].waiting);
        hands[1].streams = Streams::new(Arc::clone(&hands[1].connection), Arc::clone(&hands[0].waiting));
        hands[1].streams.sent(&[IoSlice::new(&[b'P'; PREFACE_BYTES])], PREFACE_BYTES);

        let calls: Vec<_> = who.iter().map(|_| CallBytes::default()).collect();
        let bodies: Vec<_> = who.iter().map(|&(session, more)| body(&format!("{session}"), more)).collect();
        let mut own = vec![WireBytes::default(); calls.len()];
        let (mut left, mut entered) = (vec![0; calls.len()], vec![false; calls.len()]);
        // In the end all of every body has left.
        let rest = (0..calls.len()).flat_map(|call| [(call, Turn::Enter), (call, Turn::Up(usize::MAX))]);
        for (call, turn) in turns.into_iter().map(|(call, turn)| (call % who.len(), turn)).chain(rest) {
            let (hand, stream) = (&mut hands[call % 2], 1 + 2 * call as u32);
            if matches!(turn, Turn::Enter) && !entered[call] {
                entered[call] = true;
                hand.waiting.enter(&bodies[call], calls[call].clone());
                hand.up(HEADERS, 4, stream, b"headers");
            }
            match turn {
                Turn::Up(window) if entered[call] => {
                    let frame = &bodies[call][left[call]..];
                    let frame = &frame[..frame.len().min(window)];
                    left[call] += frame.len();
                    own[call].up += 9 + frame.len() as u64;
                    hand.up(DATA, 0, stream, frame);
                }
                Turn::Down(bytes) if entered[call] => {
                    own[call].down += 9 + bytes as u64;
                    hand.down(DATA, 0, stream, &vec![5; bytes]);
                }
                _ => {}
            }
        }
        for (session, _) in &who {
            let alike = || (0..who.len()).filter(|&call| who[call].0 == *session);
            let sum = |of: &dyn Fn(usize) -> WireBytes| alike().map(of).fold((0, 0), |(up, down), bytes| {
                (up + bytes.up, down + bytes.down)
            });
            prop_assert_eq!(sum(&|call| calls[call].own()), sum(&|call| own[call]), "session {}", session);
        }
    }
}

/// One call's connection, by hand.
struct Hand {
    connection: Arc<WireConnection>,
    waiting: Arc<Waiting>,
    streams: Streams,
}

impl Hand {
    fn new() -> Self {
        let (connection, waiting) = (connection(), Arc::new(Waiting::default()));
        let mut streams = Streams::new(Arc::clone(&connection), Arc::clone(&waiting));
        streams.sent(&[IoSlice::new(&[b'P'; PREFACE_BYTES])], PREFACE_BYTES);
        streams.carried_up();
        Self { connection, waiting, streams }
    }

    fn up(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let bytes = Frame { kind, flags, stream, payload: payload.to_vec() }.bytes();
        self.connection.sent(bytes.len());
        self.streams.sent(&[IoSlice::new(&bytes)], bytes.len());
        self.streams.carried_up();
    }

    fn down(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let bytes = Frame { kind, flags, stream, payload: payload.to_vec() }.bytes();
        self.connection.received(bytes.len());
        self.streams.received(&bytes);
        self.streams.carried_down(self.connection.bytes().received());
    }
}

#[test]
fn a_stream_is_over_when_both_ends_say_so_or_one_resets_it() {
    let mut hand = Hand::new();
    let calls = [CallBytes::default(), CallBytes::default()];
    for (call, stream) in calls.iter().zip([1, 3]) {
        hand.waiting.enter(b"open", call.clone());
        hand.up(HEADERS, 4, stream, b"headers");
        hand.up(DATA, 0, stream, b"open");
    }
    hand.up(DATA, END_STREAM, 1, b"");
    hand.down(DATA, 0, 1, b"still counts");
    hand.down(HEADERS, END_STREAM, 1, b"trailers");
    hand.down(DATA, 0, 1, b"nobody's");
    assert_eq!(calls[0].own(), WireBytes { up: 9 + 4 + 9, down: 9 + 12 });
    hand.up(RST_STREAM, 0, 3, &[0; 4]);
    hand.down(DATA, 0, 3, b"too late");
    assert_eq!(calls[1].own(), WireBytes { up: 9 + 4, down: 0 });
}

#[test]
fn what_comes_before_a_call_is_known_is_its_own_too() {
    let mut hand = Hand::new();
    let (call, other) = (CallBytes::default(), CallBytes::default());
    hand.waiting.enter(b"other", other.clone());
    hand.up(HEADERS, 4, 1, b"headers");
    hand.down(DATA, 0, 1, b"welcome");
    hand.up(DATA, 0, 1, b"");
    assert!(call.connection().is_none());
    hand.waiting.enter(b"hello", call.clone());
    hand.up(DATA, 0, 1, b"he");
    hand.up(DATA, 0, 1, b"llo");
    assert_eq!(call.own(), WireBytes { up: 4 * 9 + 5 - 9, down: 9 + 7 });
    assert_eq!(other.own(), WireBytes::default());
    assert!(Arc::ptr_eq(call.connection().unwrap(), &hand.connection));
}

#[test]
fn streams_of_nobody_and_bytes_that_are_no_http2_are_the_rest() {
    let mut hand = Hand::new();
    let call = CallBytes::default();
    hand.up(HEADERS, 4, 1, b"headers");
    hand.up(DATA, 0, 1, b"unheard of");
    hand.waiting.enter(b"later", call.clone());
    // A stream that began as nobody's stays so.
    hand.up(DATA, 0, 1, b"later");
    assert_eq!(call.own(), WireBytes::default());
    hand.down(b'H', b'T', u32::from_be_bytes(*b"TP/1") >> 1, &[b'.'; 300]);
    hand.up(HEADERS, 4, 3, b"headers");
    hand.up(DATA, 0, 3, b"later");
    assert_eq!(call.own(), WireBytes { up: 14, down: 0 });
    assert_eq!(call.settle().up, hand.connection.bytes().sent());
}

#[test]
fn a_call_made_again_is_not_taken_for_the_one_that_never_left() {
    let mut hand = Hand::new();
    let again = CallBytes::default();
    hand.waiting.enter(b"open", CallBytes::default());
    hand.waiting.enter(b"open", again.clone());
    for stream in [1, 3] {
        hand.up(HEADERS, 4, stream, b"headers");
        hand.up(DATA, 0, stream, b"open");
    }
    assert_eq!(again.own().up, 9 + 4, "the first stream is whose call is asked after");
}

#[test]
fn a_call_that_was_forgotten_is_not_taken_for_one_that_begins_alike() {
    let mut hand = Hand::new();
    let (forgotten, last) = (CallBytes::default(), CallBytes::default());
    hand.waiting.enter(&body("first", 0), forgotten.clone());
    for _ in 1..4096 {
        hand.waiting.enter(&body(&"of another length".repeat(5), 0), CallBytes::default());
    }
    hand.waiting.enter(&body("last", 0), last.clone());
    hand.up(HEADERS, 4, 1, b"headers");
    let (begins, goes_on) = (&body("first", 0)[..5], &body("first", 0)[5..]);
    hand.up(DATA, 0, 1, begins);
    hand.up(DATA, 0, 1, goes_on);
    assert_eq!((forgotten.own(), last.own()), Default::default());
    hand.up(HEADERS, 4, 3, b"headers");
    hand.up(DATA, 0, 3, &body("last", 0));
    assert_eq!(last.own().up, 9 + body("last", 0).len() as u64);
}

#[test]
fn a_call_that_nobody_asks_after_pays_for_itself() {
    let mut hand = Hand::new();
    let (asked, unasked) = (CallBytes::default(), CallBytes::default());
    for (call, stream) in [(asked.clone(), 1), (unasked, 3)] {
        hand.waiting.enter(b"open", call);
        hand.up(HEADERS, 4, stream, b"headers");
        hand.up(DATA, 0, stream, b"open");
    }
    let settled = asked.settle().up;
    assert_eq!(hand.connection.charged().up, settled);
    hand.up(RST_STREAM, 0, 3, &[0; 4]);
    // It has taken what was left of the rest; the reset is paid by whoever is next.
    assert_eq!(hand.connection.charged().up + 9 + 4, hand.connection.bytes().sent());
}

#[test]
fn closed_connections_leave_the_list() {
    let connection = connection();
    let listed = || wire_connections().iter().any(|other| Arc::ptr_eq(other, &connection));
    assert!(listed());
    connection.close();
    assert!(!listed());
}
