//! Token ids to text, one token at a time, without ever showing half a character.
//!
//! A character may be spread over several tokens. Its bytes wait here until it is whole; bytes that can no longer become
//! a character turn into U+FFFD exactly as in [`String::from_utf8_lossy`], so that all pieces together equal the lossy
//! text of all bytes, however the tokens were grouped. Where the tokenizer puts a space in front of every text, the
//! first space of a whole text is left out.

use std::fmt;

use crate::tokenizer::Tokenizer;

/// Turns the tokens of one answer into text.
pub struct Detokenizer {
    tokenizer: Tokenizer,
    /// The beginning of a character: at most three bytes between calls.
    pending: Vec<u8>,
    /// Whether a space that comes first is none of the text's own.
    prefixed: bool,
    /// Whether some byte has come.
    started: bool,
    /// What the last call returned.
    text: String,
}

impl fmt::Debug for Detokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detokenizer").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl Detokenizer {
    pub(crate) fn new(tokenizer: Tokenizer, prefixed: bool) -> Self {
        Self { tokenizer, pending: Vec::new(), prefixed, started: false, text: String::new() }
    }

    /// The text that this token completed, often the token's own, sometimes nothing yet.
    ///
    /// Special tokens, and ids the vocabulary does not have, give no text.
    pub fn push(&mut self, id: u32) -> &str {
        self.text.clear();
        if !self.tokenizer.is_special(id)
            && let Some(bytes) = self.tokenizer.token_bytes(id)
        {
            let added = self.prefixed && !self.started && bytes.starts_with(b" ");
            self.started |= !bytes.is_empty();
            self.pending.extend_from_slice(&bytes[usize::from(added)..]);
            let whole = move_whole_characters(&self.pending, &mut self.text);
            self.pending.drain(..whole);
        }
        &self.text
    }

    /// Ends the answer: bytes that never became a character are U+FFFD. The detokenizer is then as new.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        self.text.push_str(&String::from_utf8_lossy(&self.pending));
        self.pending.clear();
        self.started = false;
        &self.text
    }
}

/// Appends all that is decided, valid or not, and returns how many bytes that was; the rest may still become a character.
fn move_whole_characters(bytes: &[u8], text: &mut String) -> usize {
    let mut done = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        done += chunk.valid().len();
        let invalid = chunk.invalid();
        let at_end = done + invalid.len() == bytes.len();
        if invalid.is_empty() || at_end && may_become_character(invalid) {
            break;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        done += invalid.len();
    }
    done
}

/// Whether more bytes could make a character of these.
fn may_become_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
