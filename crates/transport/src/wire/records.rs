//! Reads along TLS records (RFC 8446, section 5.1), as far as their lengths: how much of what has come is whole.
//!
//! A part of a record cannot be read above, so nobody can say yet whose bytes it is.

/// Length of a record's header: type, version, and two bytes of length.
const HEADER_BYTES: usize = 5;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Records {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that have come.
    filled: usize,
    /// Bytes of the payload that are still to come, once the header is whole.
    left: usize,
    /// Bytes of the record that has begun.
    begun: u64,
}

impl Records {
    /// Takes the next bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let in_header = self.filled < HEADER_BYTES;
            let wanted = if in_header { HEADER_BYTES - self.filled } else { self.left };
            let (taken, rest) = bytes.split_at(bytes.len().min(wanted));
            bytes = rest;
            self.begun += taken.len() as u64;
            if in_header {
                self.header[self.filled..self.filled + taken.len()].copy_from_slice(taken);
                self.filled += taken.len();
                self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            } else {
                self.left -= taken.len();
            }
            if self.filled == HEADER_BYTES && self.left == 0 {
                (self.filled, self.begun) = (0, 0);
            }
        }
    }

    /// Bytes that are of a record that is not whole yet.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_not_whole_is_the_same_however_it_is_cut(
            sizes in proptest::collection::vec(prop_oneof![Just(0usize), 1..40usize, 16_000..16_641usize], 1..8),
            cuts in proptest::collection::vec(1..9000usize, 1..10),
        ) {
            let (mut bytes, mut ends) = (Vec::new(), vec![0]);
            for size in sizes {
                bytes.extend([23, 3, 3]);
                bytes.extend((size as u16).to_be_bytes());
                bytes.extend(vec![5; size]);
                ends.push(bytes.len());
            }
            let (mut records, mut at, mut cuts) = (Records::default(), 0, cuts.iter().cycle());
            while at < bytes.len() {
                let next = bytes.len().min(at + cuts.next().unwrap());
                records.feed(&bytes[at..next]);
                at = next;
                let whole = ends.iter().rev().find(|&&end| end <= at).unwrap();
                prop_assert_eq!(records.begun(), (at - whole) as u64);
            }
        }
    }
}
