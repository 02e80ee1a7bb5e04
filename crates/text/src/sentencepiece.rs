//! SentencePiece's way of writing tokens, and the merges that its scores stand for.
//!
//! A space is `▁`, a byte `<0x41>`. SentencePiece keeps a score per token where BPE has a list of merges; the list is made
//! here as the published converters make it, so that both file formats of a model give the same ids.

use std::collections::HashMap;

use serde_json::{Value, json};

/// Stands for a space in a token.
pub(crate) const SPACE: char = '▁';

/// Appends the bytes that a token stands for.
pub(crate) fn push_bytes(token: &str, out: &mut Vec<u8>) {
    if let Some(byte) = byte_of(token) {
        out.push(byte);
        return;
    }
    for (i, piece) in token.split(SPACE).enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(piece.as_bytes());
    }
}

/// The byte of a token like `<0x41>`.
fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let digits = Some(digits).filter(|digits| digits.len() == 2 && !digits.starts_with('+'))?;
    u8::from_str_radix(digits, 16).ok()
}

/// `normalizer` of a `tokenizer.json`: spaces become `▁`, and a text is given one in front if `prefixed`.
pub(crate) fn normalizer(prefixed: bool) -> Value {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    if !prefixed {
        return replace;
    }
    json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]})
}

/// Two tokens that make a third one.
struct Merge<'a> {
    halves: [&'a str; 2],
    ids: [u32; 2],
    /// Of the whole; the highest is merged first. Of equal ones the one with the longer first half, then the longer second.
    score: f32,
    lengths: [usize; 2],
}

/// All ways to make a token of two others, in the order in which they are tried.
///
/// `ids` are the tokens in use, `scores` the scores by id; a token without one cannot be made.
pub(crate) fn merges<'a>(ids: &HashMap<&'a str, u32>, scores: &[f32]) -> Vec<[&'a str; 2]> {
    let mut wholes: Vec<(u32, &'a str)> = ids.iter().map(|(token, id)| (*id, *token)).collect();
    wholes.sort_unstable();
    let mut found = Vec::new();
    for (id, token) in wholes {
        let Some(score) = scores.get(id as usize) else { continue };
        let first = found.len();
        for (count, (at, _)) in token.char_indices().enumerate().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                found.push(Merge {
                    halves: [left, right],
                    ids: [left_id, right_id],
                    // Zero has one sign only in the order below.
                    score: score + 0.0,
                    lengths: [count, right.chars().count()],
                });
            }
        }
        found[first..].sort_unstable_by_key(|merge: &Merge<'_>| merge.ids);
    }
    // Stable: what is equal stays in the order of the tokens.
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.lengths.cmp(&a.lengths)));
    found.into_iter().map(|merge| merge.halves).collect()
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
    fn tokens_are_text_with_spaces_or_one_byte() {
        assert_eq!(bytes("▁the"), b" the");
        assert_eq!(bytes("▁▁a▁"), b"  a ");
        assert_eq!(bytes("<0x0A>"), b"\n");
        assert_eq!(bytes("<0xfF>"), [0xFF]);
        for literal in ["<0x0>", "<0x0AB>", "<0xGG>", "<0x+1>", "<0x\u{e9}>", "0x0A"] {
            assert_eq!(bytes(literal), literal.as_bytes());
        }
    }

    #[test]
    fn merges_go_by_score_then_by_the_longer_first_half() {
        let tokens = ["a", "b", "ab", "ba", "aba", "<0x41>"];
        let ids: HashMap<&str, u32> = tokens.iter().copied().zip(0..).collect();
        let found = merges(&ids, &[-9.0, -9.0, -0.0, 0.0, -2.0, 0.0]);
        assert_eq!(found, [["a", "b"], ["b", "a"], ["ab", "a"], ["a", "ba"]]);
        let found = merges(&ids, &[0.0, 0.0, -5.0, -1.0, -0.5]);
        assert_eq!(found, [["ab", "a"], ["a", "ba"], ["b", "a"], ["a", "b"]]);
        assert!(merges(&ids, &[0.0, 0.0]).is_empty(), "without a score nothing is made");
    }
}
