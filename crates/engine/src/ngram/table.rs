//! The table of n-grams, as it is used and as it lies on disk.
//!
//! A *context* is a run of 1 to n − 1 tokens; a *row* says how often one token followed one context. Contexts are
//! not stored, only 16 bits of their hash: a wrong guess costs speed and never text, and with some eight rows to a
//! bucket one context in ten thousand is taken for another. A table is read whole and used in place.
//!
//! # The file
//!
//! Integers are little-endian. B buckets, R rows; a token takes w bytes: 2 where the vocabulary has fewer than 2¹⁶
//! tokens, else 4.
//!
//! | bytes | |
//! |---|---|
//! | 8 | `ftngram` and a zero |
//! | 4 | version, 1 |
//! | 4 | n, the order: 2 to 8 |
//! | 4 | V, the vocabulary's size |
//! | 4 | B |
//! | 4 | R |
//! | 8 | tokens counted |
//! | 64 | the tokenizer's fingerprint, lower-case hex |
//! | 4·B | for each bucket, the number of rows up to its end |
//! | 2·R | the low 16 bits of each row's context hash, ascending within a bucket |
//! | w·R | each row's token; V stands for all tokens that the context's other rows leave out |
//! | R | each row's count as a small float: c below 16 is c, else (16 + c mod 16)·2^(c div 16 − 1) |
//! | 32 | SHA-256 of everything before |
//!
//! The hash of a context is a chain over its tokens from the last to the first, h ← mix(h xor (token + 1)) from
//! h = 0 with SplitMix64's output function as mix. Its bucket is (h div 2³²)·B div 2³².

use std::borrow::Cow;
use std::ops::Range;

use sha2::{Digest, Sha256};
use thiserror::Error;

const MAGIC: [u8; 8] = *b"ftngram\0";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 100;
const FINGERPRINT_BYTES: usize = 64;
const CHECKSUM_BYTES: usize = 32;
/// Rows of a bucket on average.
const ROWS_PER_BUCKET: usize = 8;

/// Orders a table may have.
pub const ORDERS: std::ops::RangeInclusive<u32> = 2..=8;

/// Why bytes are no table that can be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    /// Something else, or the first bytes are damaged.
    #[error("it is no n-gram table: it does not begin with `ftngram`")]
    NotATable,
    /// Of another version of this program.
    #[error("it is an n-gram table of version {found}; this program reads version {VERSION}: build it anew")]
    Version {
        /// The version found.
        found: u32,
    },
    /// Cut off, or something was added.
    #[error("the n-gram table has {have} bytes and must have {need}: it is not whole")]
    Length {
        /// Bytes there are.
        have: usize,
        /// Bytes its head speaks of; the head's own if it is not even whole.
        need: usize,
    },
    /// A byte is not what was written.
    #[error("the n-gram table's checksum is wrong: it is damaged")]
    Checksum,
    /// Whole and undamaged, but not made by this program.
    #[error("the n-gram table contradicts itself: {0}")]
    Malformed(&'static str),
}

/// What a table says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// n: contexts have up to n − 1 tokens.
    pub order: u32,
    /// Size of the vocabulary; every token is below it.
    pub vocab_size: u32,
    /// How many tokens were counted.
    pub counted: u64,
    /// Fingerprint of the tokenizer that the tokens belong to.
    pub tokenizer_fingerprint: String,
}

/// How often a token followed a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Hash of the context.
    pub context: u64,
    /// The token, or the vocabulary's size for all that are left out.
    pub token: u32,
    /// How often.
    pub count: u32,
}

/// Counts of what followed which context.
#[derive(Clone)]
pub struct Table {
    bytes: Cow<'static, [u8]>,
    head: Head,
    columns: Columns,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("head", &self.head).field("rows", &self.columns.rows).finish()
    }
}

/// Where the columns lie in the file.
#[derive(Debug, Clone, Copy)]
struct Columns {
    buckets: usize,
    rows: usize,
    token_bytes: usize,
}

impl Columns {
    fn new(vocab_size: u32, rows: usize) -> Self {
        Self {
            buckets: rows.div_ceil(ROWS_PER_BUCKET).max(1),
            rows,
            token_bytes: if vocab_size < 1 << 16 { 2 } else { 4 },
        }
    }

    fn checks(&self) -> usize {
        HEAD_BYTES + 4 * self.buckets
    }

    fn tokens(&self) -> usize {
        self.checks() + 2 * self.rows
    }

    fn counts(&self) -> usize {
        self.tokens() + self.token_bytes * self.rows
    }

    fn end(&self) -> usize {
        self.counts() + self.rows
    }

    fn bucket(&self, context: u64) -> usize {
        (((context >> 32) * self.buckets as u64) >> 32) as usize
    }
}

/// Rows that fit a file of `max_bytes`.
#[must_use]
pub fn rows_within(max_bytes: usize, vocab_size: u32) -> usize {
    let fits = |rows: usize| Columns::new(vocab_size, rows).end() + CHECKSUM_BYTES <= max_bytes;
    let (mut fitting, mut beyond) = (0, max_bytes.max(1));
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    fitting
}

/// The hash of no context.
pub(super) const NO_CONTEXT: u64 = 0;

/// The hash of a context with one more token in front of it.
pub(super) fn with_earlier(context: u64, token: u32) -> u64 {
    let z = (context ^ (u64::from(token) + 1)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Table {
    /// Writes a table. Rows of one context may come in any order.
    ///
    /// # Errors
    /// If the head is out of range: a fingerprint that is no lower-case hex SHA-256, or an order no table has.
    pub fn encode(head: &Head, mut rows: Vec<Row>) -> Result<Vec<u8>, TableError> {
        check_head(head)?;
        let columns = Columns::new(head.vocab_size, rows.len());
        let row_count =
            u32::try_from(rows.len()).map_err(|_| TableError::Malformed("more than 2^32 rows"))?;
        let place = |row: &Row| (columns.bucket(row.context), check_of(row.context));
        rows.sort_unstable_by_key(|row| (place(row), std::cmp::Reverse(row.count), row.token));

        let mut bytes = Vec::with_capacity(columns.end() + CHECKSUM_BYTES);
        bytes.extend(MAGIC);
        for number in [VERSION, head.order, head.vocab_size, columns.buckets as u32, row_count] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(head.counted.to_le_bytes());
        bytes.extend(head.tokenizer_fingerprint.as_bytes());
        let mut end = 0;
        for bucket in 0..columns.buckets {
            end += rows[end..].iter().take_while(|row| columns.bucket(row.context) == bucket).count();
            bytes.extend((end as u32).to_le_bytes());
        }
        rows.iter().for_each(|row| bytes.extend(check_of(row.context).to_le_bytes()));
        rows.iter().for_each(|row| bytes.extend(&row.token.to_le_bytes()[..columns.token_bytes]));
        bytes.extend(rows.iter().map(|row| code_of(row.count)));
        let checksum = Sha256::digest(&bytes);
        bytes.extend(checksum);
        Ok(bytes)
    }

    /// Takes a table in, after checking all of it.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn read(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, TableError> {
        let bytes = bytes.into();
        if bytes.get(..MAGIC.len()) != Some(&MAGIC) {
            return Err(TableError::NotATable);
        }
        if bytes.len() < HEAD_BYTES + CHECKSUM_BYTES {
            return Err(TableError::Length { have: bytes.len(), need: HEAD_BYTES + CHECKSUM_BYTES });
        }
        let number = |at: usize| u32_at(&bytes, at);
        let version = number(8);
        if version != VERSION {
            return Err(TableError::Version { found: version });
        }
        let counted = u64::from(number(28)) | u64::from(number(32)) << 32;
        let fingerprint = bytes[36..HEAD_BYTES].to_vec();
        let head = Head {
            order: number(12),
            vocab_size: number(16),
            counted,
            tokenizer_fingerprint: String::from_utf8(fingerprint)
                .map_err(|_| TableError::Malformed(NO_FINGERPRINT))?,
        };
        check_head(&head)?;
        let columns = Columns::new(head.vocab_size, number(24) as usize);
        let need = columns.end() + CHECKSUM_BYTES;
        if bytes.len() != need {
            return Err(TableError::Length { have: bytes.len(), need });
        }
        if *Sha256::digest(&bytes[..columns.end()]) != bytes[columns.end()..] {
            return Err(TableError::Checksum);
        }
        let table = Self { bytes, head, columns };
        table.check()?;
        Ok(table)
    }

    /// What it says of itself.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.rows
    }

    /// The rows of a context: tokens and counts, the most frequent first. Empty for a context it does not have.
    pub(super) fn continuations(&self, context: u64) -> impl Iterator<Item = (u32, u32)> + Clone + '_ {
        let check = check_of(context);
        self.bucket_rows(self.columns.bucket(context))
            .skip_while(move |&row| self.check_at(row) != check)
            .take_while(move |&row| self.check_at(row) == check)
            .map(|row| (self.token_at(row), count_of(self.bytes[self.columns.counts() + row])))
    }

    fn check(&self) -> Result<(), TableError> {
        if number_of_buckets(&self.bytes) != self.columns.buckets {
            return Err(TableError::Malformed("its buckets do not fit its rows"));
        }
        let mut ends = (0..self.columns.buckets).map(|bucket| self.bucket_end(bucket));
        if !ends.clone().is_sorted() || ends.next_back() != Some(self.columns.rows) {
            return Err(TableError::Malformed("a bucket ends before it begins, or behind the last row"));
        }
        if (0..self.columns.rows).any(|row| self.token_at(row) > self.head.vocab_size) {
            return Err(TableError::Malformed("a token is outside the vocabulary"));
        }
        Ok(())
    }

    fn bucket_end(&self, bucket: usize) -> usize {
        u32_at(&self.bytes, HEAD_BYTES + 4 * bucket) as usize
    }

    fn bucket_rows(&self, bucket: usize) -> Range<usize> {
        let start = bucket.checked_sub(1).map_or(0, |before| self.bucket_end(before));
        start..self.bucket_end(bucket)
    }

    fn check_at(&self, row: usize) -> u16 {
        u16_at(&self.bytes, self.columns.checks() + 2 * row)
    }

    fn token_at(&self, row: usize) -> u32 {
        let at = self.columns.tokens() + self.columns.token_bytes * row;
        if self.columns.token_bytes == 2 { u16_at(&self.bytes, at).into() } else { u32_at(&self.bytes, at) }
    }
}

const NO_FINGERPRINT: &str = "its tokenizer's fingerprint is no SHA-256 in lower-case hex";

fn check_head(head: &Head) -> Result<(), TableError> {
    let hex = |&byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let fingerprint = head.tokenizer_fingerprint.as_bytes();
    if fingerprint.len() != FINGERPRINT_BYTES || !fingerprint.iter().all(hex) {
        return Err(TableError::Malformed(NO_FINGERPRINT));
    }
    if !ORDERS.contains(&head.order) {
        return Err(TableError::Malformed("its order is not between 2 and 8"));
    }
    Ok(())
}

fn number_of_buckets(bytes: &[u8]) -> usize {
    u32_at(bytes, 20) as usize
}

fn check_of(context: u64) -> u16 {
    context as u16
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A count as a small float: exact below 32, then within 1/32 of it, at most 507,904.
fn code_of(count: u32) -> u8 {
    let count = count.min(count_of(u8::MAX));
    if count < 16 {
        return count as u8;
    }
    let shift = count.ilog2() - 4;
    // To the nearest; rounding up into the next power of two is the next code all the same.
    let rounded = if shift == 0 { count } else { ((count >> (shift - 1)) + 1) >> 1 };
    (((shift + 1) << 4) + rounded - 16).min(255) as u8
}

fn count_of(code: u8) -> u32 {
    let code = u32::from(code);
    if code < 16 { code } else { (16 + code % 16) << (code / 16 - 1) }
}

#[cfg(test)]
mod tests;
