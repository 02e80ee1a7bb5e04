//! Text streams: what comes out piece by piece is the text as a whole, wherever the pieces end.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod common;

use common::{byte_vocab, detokenize, tokenizer};
use foretoken_text::{StopMatcher, Tokenizer};
use proptest::collection::vec;
use proptest::prelude::*;

/// Characters that are hard for byte-level tokens: several bytes, joiners, marks, other directions.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -~]{1,8}",
        "[\u{4e00}-\u{4eff}\u{3040}-\u{30ff}\u{ac00}-\u{acff}]{1,4}",
        "[\u{5d0}-\u{5ea}\u{627}-\u{64a}\u{200f}]{1,5}",
        "[a-z][\u{300}-\u{320}]{1,3}",
        "[\n\r\t \u{a0}\u{3000}]{1,5}",
        Just("\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}".to_owned()),
        Just("\u{1f44d}\u{1f3fd}".to_owned()),
        any::<char>().prop_map(String::from),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Cuts a text into pieces of at most the given numbers of characters.
fn pieces<'a>(text: &'a str, sizes: &[usize]) -> Vec<&'a str> {
    let mut rest = text;
    let mut out = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let end = rest.char_indices().nth(*size).map_or(rest.len(), |(at, _)| at);
        let (head, tail) = rest.split_at(end);
        out.push(head);
        rest = tail;
    }
    out
}

fn run(stops: &[&str], chunks: &[&str]) -> (String, bool) {
    let mut matcher = StopMatcher::new(stops.iter().map(|stop| (*stop).to_owned()).collect()).unwrap();
    let mut out = String::new();
    let mut stopped = false;
    for chunk in chunks {
        let step = matcher.push(chunk);
        assert!(!stopped || step.release.is_empty() && step.stopped, "nothing follows a stop");
        out.push_str(step.release);
        stopped = step.stopped;
    }
    out.push_str(matcher.finish());
    (out, stopped)
}

/// The text before the stop string that ends first, the longest of several that end together.
fn naive(stops: &[&str], text: &str) -> (String, bool) {
    let ends = stops.iter().filter_map(|stop| text.find(stop).map(|at| (at + stop.len(), at)));
    ends.min().map_or_else(|| (text.to_owned(), false), |(_, start)| (text[..start].to_owned(), true))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encoded_text_comes_back_whole(text in text()) {
        let tokenizer = tokenizer();
        prop_assume!(!text.contains('<') && !text.contains('\u{fffd}'));
        let ids = tokenizer.encode(&text, true).unwrap();
        let mut detokenizer = tokenizer.detokenizer();
        let mut out = String::new();
        for id in ids {
            let piece = detokenizer.push(id);
            prop_assert!(!piece.contains('\u{fffd}'), "half a character was shown");
            out.push_str(piece);
        }
        prop_assert_eq!(detokenizer.finish(), "");
        prop_assert_eq!(out, text);
    }

    #[test]
    fn any_tokens_give_the_lossy_text_of_their_bytes(ids in vec(0_u32..600, 0..40)) {
        let tokenizer = tokenizer();
        let bytes: Vec<u8> = ids
            .iter()
            .filter(|id| !tokenizer.is_special(**id))
            .flat_map(|id| tokenizer.token_bytes(*id).unwrap_or_default().to_vec())
            .collect();
        prop_assert_eq!(detokenize(&tokenizer, &ids), String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_bytes_give_their_lossy_text(bytes in vec(any::<u8>(), 0..40)) {
        let tokenizer = byte_tokenizer();
        let ids: Vec<u32> = bytes.iter().copied().map(u32::from).collect();
        prop_assert_eq!(detokenize(&tokenizer, &ids), String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn stops_are_found_as_in_the_whole_text(
        text in "[abé]{0,60}",
        stops in vec("[abé]{1,5}", 0..5),
        sizes in vec(1_usize..6, 1..8),
    ) {
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        prop_assert_eq!(run(&stops, &pieces(&text, &sizes)), naive(&stops, &text));
    }

    #[test]
    fn only_what_may_become_a_stop_is_held_back(text in "[ab]{0,40}", stops in vec("[ab]{1,6}", 1..4)) {
        let mut matcher = StopMatcher::new(stops.clone()).unwrap();
        let mut out = String::new();
        for (at, character) in text.char_indices() {
            let step = matcher.push(&text[at..at + character.len_utf8()]);
            out.push_str(step.release);
            if step.stopped {
                break;
            }
            let held = &text[out.len()..=at];
            prop_assert!(held.is_empty() || stops.iter().any(|stop| stop.starts_with(held)), "held {held:?}");
        }
    }
}

fn byte_tokenizer() -> Tokenizer {
    static TOKENIZER: std::sync::LazyLock<Tokenizer> =
        std::sync::LazyLock::new(|| Tokenizer::from_gguf(byte_vocab()).unwrap());
    TOKENIZER.clone()
}

#[test]
fn an_emoji_split_at_every_byte_appears_with_its_last_byte() {
    let tokenizer = byte_tokenizer();
    let family = "\u{1f468}\u{200d}\u{1f469}";
    let mut detokenizer = tokenizer.detokenizer();
    let shown: Vec<String> =
        family.bytes().map(|byte| detokenizer.push(u32::from(byte)).to_owned()).collect();
    let expected = ["", "", "", "\u{1f468}", "", "", "\u{200d}", "", "", "", "\u{1f469}"];
    assert_eq!(shown, expected);
    assert_eq!(detokenizer.finish(), "");
}

#[test]
fn a_special_token_inside_a_character_does_not_break_it() {
    let tokenizer = byte_tokenizer();
    assert_eq!(detokenize(&tokenizer, &[0xC3, 260, 0xA9, 261]), "é");
}

#[test]
fn an_unfinished_character_becomes_one_replacement_and_the_detokenizer_is_as_new() {
    let tokenizer = byte_tokenizer();
    let mut detokenizer = tokenizer.detokenizer();
    assert_eq!(detokenizer.push(0xF0), "");
    assert_eq!(detokenizer.push(0x9F), "");
    assert_eq!(detokenizer.finish(), "\u{fffd}");
    assert_eq!(detokenizer.finish(), "");
    assert_eq!(detokenizer.push(u32::from(b'a')), "a");
    assert_eq!(detokenizer.push(u32::MAX), "", "an id without a token has no text");
}

#[test]
fn the_stop_that_is_complete_first_wins_and_the_longest_of_several() {
    for chunks in [vec!["xabcdy"], vec!["x", "a", "b", "c", "d", "y"], vec!["xab", "cdy"]] {
        assert_eq!(run(&["abcd", "bc"], &chunks), ("xa".into(), true));
        assert_eq!(run(&["bc", "abc"], &chunks), ("x".into(), true));
        assert_eq!(run(&["abcde", "zz"], &chunks), ("xabcdy".into(), false));
    }
}

#[test]
fn held_back_text_is_released_when_it_cannot_become_a_stop() {
    let mut matcher = StopMatcher::new(vec!["\n\nUser:".into()]).unwrap();
    assert_eq!(matcher.push("yes\n").release, "yes");
    assert_eq!(matcher.push("\nUse").release, "");
    assert_eq!(matcher.push("ful").release, "\n\nUseful");
    assert_eq!(matcher.push("\n").release, "");
    assert_eq!(matcher.finish(), "\n");
    assert_eq!(matcher.finish(), "");
}

#[test]
fn without_stops_everything_passes_at_once() {
    let mut matcher = StopMatcher::new(Vec::new()).unwrap();
    let step = matcher.push("text");
    assert_eq!((step.release, step.stopped), ("text", false));
}

#[test]
fn stop_limits_are_named() {
    let refused = |stops: Vec<String>| StopMatcher::new(stops).unwrap_err().to_string();
    assert_eq!(refused(vec!["a".into(); 17]), "stop: 17 stop strings exceed the limit of 16");
    assert_eq!(refused(vec!["a".into(), String::new()]), "stop: stop string 1 is empty");
    assert_eq!(refused(vec!["a".repeat(257)]), "stop: stop string 0 has 257 bytes; the limit is 256");
    assert!(StopMatcher::new(vec!["a".repeat(256); 16]).is_ok());
}
