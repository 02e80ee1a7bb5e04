//! The byte-level alphabet: byte-level BPE writes every byte as one printable character.
//!
//! Printable Latin-1 characters stand for their own code point; the 68 other bytes follow from U+0100 on, in order. So a
//! vocabulary file can hold tokens that are not valid UTF-8 by themselves.

/// The byte each character below U+0144 stands for; `None` where the alphabet has no such character.
const BYTE_OF_CHAR: [Option<u8>; 256 + 68] = build();

const fn build() -> [Option<u8>; 256 + 68] {
    let mut table = [None; 256 + 68];
    let mut next_free = 256;
    let mut byte = 0;
    while byte < 256 {
        let code = if is_printable(byte as u8) {
            byte
        } else {
            next_free += 1;
            next_free - 1
        };
        table[code] = Some(byte as u8);
        byte += 1;
    }
    table
}

const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// Appends the bytes that a token written in the alphabet stands for.
///
/// A token with any character outside the alphabet was not written in it: it is taken literally, as every decoder of
/// this family does.
pub(crate) fn push_bytes(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for character in token.chars() {
        let byte = BYTE_OF_CHAR.get(character as usize).copied().flatten();
        let Some(byte) = byte else {
            out.truncate(start);
            out.extend_from_slice(token.as_bytes());
            return;
        };
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(token: &str) -> Vec<u8> {
        let mut out = Vec::new();
        push_bytes(token, &mut out);
        out
    }

    #[test]
    fn every_byte_has_exactly_one_character() {
        let mut seen = [0; 256];
        for byte in BYTE_OF_CHAR.iter().flatten() {
            seen[usize::from(*byte)] += 1;
        }
        assert_eq!(seen, [1; 256]);
    }

    #[test]
    fn well_known_characters_stand_for_their_bytes() {
        assert_eq!(bytes("Ġthe"), b" the");
        assert_eq!(bytes("Ċ"), b"\n");
        assert_eq!(bytes("ĉ"), b"\t");
        assert_eq!(bytes("è¾"), [0xE8, 0xBE]);
        assert_eq!(bytes("Ń"), [0xAD]);
    }

    #[test]
    fn a_token_outside_the_alphabet_is_literal() {
        assert_eq!(bytes("<｜end｜>"), "<｜end｜>".as_bytes());
        assert_eq!(bytes("a b"), b"a b");
    }
}
