//! Reads along a stream of HTTP/2 frames (RFC 9113, section 4.1), in pieces of any size.
//!
//! It follows lengths and nothing else: no frame is checked, none is kept. Bytes that are no HTTP/2 are taken for frames
//! all the same, which harms nobody: the connection fails above.

/// Length of a frame's header.
pub(super) const HEADER_BYTES: usize = 9;

/// Length of what a client sends before its first frame (section 3.4).
pub(super) const PREFACE_BYTES: usize = 24;

/// Frame types and the flag that matter here (section 6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const END_STREAM: u8 = 1;

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) payload: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    fn read([l0, l1, l2, kind, flags, s0, s1, s2, s3]: [u8; HEADER_BYTES]) -> Self {
        Self {
            payload: u32::from_be_bytes([0, l0, l1, l2]),
            kind,
            flags,
            // The highest bit is reserved.
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & (u32::MAX >> 1),
        }
    }
}

/// What has just passed of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Its header.
    Head,
    /// Some of its payload.
    Payload(&'a [u8]),
    /// Nothing more: it is complete.
    End,
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct FrameReader {
    /// Bytes that still come before the first frame.
    preface: usize,
    header: [u8; HEADER_BYTES],
    filled: usize,
    /// The frame whose header is complete, and how much of its payload is still to come.
    current: Option<(Head, usize)>,
}

impl FrameReader {
    /// A reader that leaves out `preface` bytes.
    pub(super) fn after(preface: usize) -> Self {
        Self { preface, header: [0; HEADER_BYTES], filled: 0, current: None }
    }

    /// Takes the next bytes and tells what they are of.
    pub(super) fn feed(&mut self, bytes: &[u8], mut tell: impl FnMut(Head, Part<'_>)) {
        let (preface, mut bytes) = bytes.split_at(bytes.len().min(self.preface));
        self.preface -= preface.len();
        while !bytes.is_empty() {
            let Some((head, left)) = self.current else {
                let (taken, rest) = bytes.split_at(bytes.len().min(HEADER_BYTES - self.filled));
                self.header[self.filled..self.filled + taken.len()].copy_from_slice(taken);
                self.filled += taken.len();
                bytes = rest;
                if self.filled == HEADER_BYTES {
                    self.filled = 0;
                    let head = Head::read(self.header);
                    tell(head, Part::Head);
                    self.go_on(head, head.payload as usize, &mut tell);
                }
                continue;
            };
            let (taken, rest) = bytes.split_at(bytes.len().min(left));
            tell(head, Part::Payload(taken));
            bytes = rest;
            self.go_on(head, left - taken.len(), &mut tell);
        }
    }

    fn go_on(&mut self, head: Head, left: usize, tell: &mut impl FnMut(Head, Part<'_>)) {
        self.current = (left > 0).then_some((head, left));
        if left == 0 {
            tell(head, Part::End);
        }
    }
}
