//! The raw bytes of every token in one flat block, and what follows from them: fingerprint and comparison.
//!
//! Ids may have holes: padded rows of a model that no text ever produces. A hole has no bytes and no fingerprint.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::error::TextError;

/// Ids at or above this are refused: no known vocabulary has a tenth of it, and the table grows with the highest id.
pub(crate) const MAX_VOCAB: u32 = 1 << 22;
/// A longer token is refused; the longest in use are runs of a few hundred spaces or dashes.
pub(crate) const MAX_TOKEN_BYTES: usize = 1 << 16;

const PRESENT: u8 = 1;
const SPECIAL: u8 = 2;

/// Bytes and kind of each token id.
#[derive(Debug)]
pub(crate) struct TokenTable {
    bytes: Vec<u8>,
    /// `offsets[id]..offsets[id + 1]` is where the token lies in `bytes`.
    offsets: Vec<u32>,
    flags: Vec<u8>,
    fingerprint: String,
}

/// One token on its way into the table.
#[derive(Debug)]
pub(crate) struct TokenEntry {
    pub(crate) id: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) special: bool,
}

impl TokenTable {
    /// Builds the table; ids may come in any order, each once.
    pub(crate) fn new(mut entries: Vec<TokenEntry>) -> Result<Self, TextError> {
        entries.sort_unstable_by_key(|entry| entry.id);
        let Some(last) = entries.last() else {
            return Err(TextError::vocabulary("holds no token"));
        };
        if last.id >= MAX_VOCAB {
            return Err(TextError::vocabulary(format!(
                "token id {} is not below the limit {MAX_VOCAB}",
                last.id
            )));
        }
        let slots = last.id as usize + 1;
        let mut table = Self {
            bytes: Vec::with_capacity(entries.iter().map(|entry| entry.bytes.len()).sum()),
            offsets: Vec::with_capacity(slots + 1),
            flags: vec![0; slots],
            fingerprint: String::new(),
        };
        for pair in entries.windows(2) {
            if let [a, b] = pair
                && a.id == b.id
            {
                let (a_text, b_text) = (readable(&a.bytes), readable(&b.bytes));
                return Err(TextError::vocabulary(format!("id {} is both {a_text} and {b_text}", a.id)));
            }
        }
        for entry in entries {
            if entry.bytes.len() > MAX_TOKEN_BYTES {
                let length = entry.bytes.len();
                let detail = format!("token {} has {length} bytes; the limit is {MAX_TOKEN_BYTES}", entry.id);
                return Err(TextError::vocabulary(detail));
            }
            let offset = table.end()?;
            table.offsets.resize(entry.id as usize + 1, offset);
            table.bytes.extend_from_slice(&entry.bytes);
            if let Some(flags) = table.flags.get_mut(entry.id as usize) {
                *flags = PRESENT | if entry.special { SPECIAL } else { 0 };
            }
        }
        let end = table.end()?;
        table.offsets.push(end);
        table.fingerprint = table.digest();
        Ok(table)
    }

    fn end(&self) -> Result<u32, TextError> {
        u32::try_from(self.bytes.len())
            .map_err(|_| TextError::vocabulary("tokens have more than 4 GiB together"))
    }

    /// SHA-256 over (id, length, bytes) of each token present, ascending; numbers as 32-bit little endian.
    fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for id in 0..self.flags.len() as u32 {
            if let Some(bytes) = self.bytes(id) {
                hash.update(id.to_le_bytes());
                hash.update((bytes.len() as u32).to_le_bytes());
                hash.update(bytes);
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let index = id as usize;
        if self.flags.get(index)? & PRESENT == 0 {
            return None;
        }
        let (start, end) = (*self.offsets.get(index)?, *self.offsets.get(index + 1)?);
        self.bytes.get(start as usize..end as usize)
    }

    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.flags.get(id as usize).is_some_and(|flags| flags & SPECIAL != 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.flags.len()
    }

    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub(crate) fn first_difference(&self, other: &Self) -> Option<TokenDifference> {
        let ids = 0..self.len().max(other.len()) as u32;
        ids.map(|id| (id, self.bytes(id), other.bytes(id))).find(|(_, ours, theirs)| ours != theirs).map(
            |(id, ours, theirs)| TokenDifference {
                id,
                ours: ours.map(<[u8]>::to_vec),
                theirs: theirs.map(<[u8]>::to_vec),
            },
        )
    }
}

/// The first token in which two tokenizers differ; its `Display` is meant for an error message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenDifference {
    /// The token's id.
    pub id: u32,
    /// The bytes in the tokenizer that was asked; `None`: it has no such token.
    pub ours: Option<Vec<u8>>,
    /// The bytes in the other tokenizer; `None`: it has no such token.
    pub theirs: Option<Vec<u8>>,
}

impl fmt::Display for TokenDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |bytes: &Option<Vec<u8>>| bytes.as_deref().map_or_else(|| "absent".to_owned(), readable);
        write!(f, "token {} is {} here and {} there", self.id, side(&self.ours), side(&self.theirs))
    }
}

/// The bytes as quoted text, invalid UTF-8 as `\x..` escapes; long tokens are cut.
pub(crate) fn readable(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let shown = bytes.get(..SHOWN).unwrap_or(bytes);
    let mut text = String::from("\"");
    for chunk in shown.utf8_chunks() {
        text.extend(chunk.valid().escape_debug());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text.push('"');
    if bytes.len() > SHOWN {
        text.push_str(&format!(" ({} bytes)", bytes.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(tokens: &[(u32, &[u8])]) -> TokenTable {
        let entries =
            tokens.iter().map(|(id, bytes)| TokenEntry { id: *id, bytes: bytes.to_vec(), special: *id == 0 });
        TokenTable::new(entries.collect()).unwrap()
    }

    #[test]
    fn holes_have_no_bytes_and_do_not_count() {
        let table = table(&[(7, b"seven"), (0, b""), (3, b"\xf0\x9f")]);
        assert_eq!(table.len(), 8);
        assert_eq!(table.bytes(0), Some(&b""[..]));
        assert_eq!(table.bytes(1), None);
        assert_eq!(table.bytes(3), Some(&b"\xf0\x9f"[..]));
        assert_eq!(table.bytes(7), Some(&b"seven"[..]));
        assert_eq!(table.bytes(8), None);
        assert_eq!(table.bytes(u32::MAX), None);
        assert!(table.is_special(0) && !table.is_special(3) && !table.is_special(u32::MAX));
    }

    #[test]
    fn the_fingerprint_is_the_documented_hash() {
        // printf '\x01\0\0\0\x02\0\0\0ab\x04\0\0\0\0\0\0\0' | sha256sum
        let expected = "dbc0a07b55d5ba6bb1e6a5dad8fbd8b57ca21f0b7a974e0748ffe6a66eb43283";
        let table = table(&[(1, b"ab"), (4, b"")]);
        assert_eq!(table.fingerprint(), expected);
    }

    #[test]
    fn the_first_difference_reads_well() {
        let ours = table(&[(0, b"a"), (1, "é".as_bytes())]);
        let theirs = table(&[(0, b"a"), (1, b"\xc3"), (2, b"c")]);
        assert_eq!(ours.first_difference(&ours), None);
        let difference = ours.first_difference(&theirs).unwrap();
        assert_eq!(difference.to_string(), r#"token 1 is "é" here and "\xc3" there"#);
        let shorter = table(&[(0, b"a")]);
        let difference = shorter.first_difference(&ours).unwrap();
        assert_eq!(difference.to_string(), r#"token 1 is absent here and "é" there"#);
    }

    #[test]
    fn limits_are_named() {
        let entry = |id, length| TokenEntry { id, bytes: vec![b'x'; length], special: false };
        let refused = |entries| TokenTable::new(entries).unwrap_err().to_string();
        assert_eq!(refused(vec![]), "vocabulary: holds no token");
        assert!(refused(vec![entry(u32::MAX, 1)]).contains("4294967295 is not below the limit 4194304"));
        assert!(refused(vec![entry(1, 1 << 20)]).contains("token 1 has 1048576 bytes; the limit is 65536"));
        assert!(refused(vec![entry(1, 1), entry(1, 2)]).contains(r#"id 1 is both "x" and "xx""#));
    }
}
