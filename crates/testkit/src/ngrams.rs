//! Small tables of n-grams.

use foretoken_engine::ngram::{Corpus, CountConfig, Table};
use foretoken_text::Tokenizer;

/// Bytes of a table at most: far more than small texts need.
const MAX_BYTES: usize = 1 << 20;

/// The bytes of a table counted from texts over a tokenizer's ids.
///
/// # Panics
/// If the order is one that no table has, or a text holds an id that the tokenizer does not have.
#[must_use]
pub fn encoded(order: u32, tokenizer: &Tokenizer, texts: &[&[u32]]) -> Vec<u8> {
    let mut corpus = Corpus::new(order).expect("a table may have this order");
    for text in texts {
        corpus.add(&[], text).expect("a small text can be numbered");
    }
    let config = CountConfig {
        vocab_size: u32::try_from(tokenizer.vocab_size()).expect("a small vocabulary"),
        tokenizer_fingerprint: tokenizer.fingerprint().to_owned(),
        max_bytes: MAX_BYTES,
    };
    corpus.table(&config).expect("the texts are over the tokenizer's ids")
}

/// [`encoded`], read.
///
/// # Panics
/// As [`encoded`].
#[must_use]
pub fn table(order: u32, tokenizer: &Tokenizer, texts: &[&[u32]]) -> Table {
    Table::read(encoded(order, tokenizer, texts)).expect("what was written can be read")
}
