//! Tiny tokenizers for table models.

use foretoken_text::{HfFiles, TextError, Tokenizer};
use serde_json::json;

/// A byte-level tokenizer whose ids 0, 1, 2, … are the single letters `a`, `b`, `c`, …; with `end_of_text`
/// one more id follows, which ends an answer.
///
/// # Errors
/// If there are more than 26 letters.
pub fn letters(count: usize, end_of_text: bool) -> Result<Tokenizer, TextError> {
    named(&(0..count).map(letter).collect::<Vec<_>>(), end_of_text)
}

/// A byte-level tokenizer over single-character tokens in the order given.
///
/// # Errors
/// If the tokens make no tokenizer.
pub fn named(tokens: &[String], end_of_text: bool) -> Result<Tokenizer, TextError> {
    let vocabulary: serde_json::Map<_, _> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    let end = json!({
        "id": tokens.len(), "content": "<|endoftext|>", "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": true
    });
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": if end_of_text { vec![end] } else { vec![] },
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": []
        }
    });
    let tokenizer_json = tokenizer.to_string().into_bytes();
    Tokenizer::from_hf(HfFiles { tokenizer_json, ..HfFiles::default() })
}

fn letter(id: usize) -> String {
    char::from(b'a' + (id % 26) as u8).to_string()
}
