//! SentencePiece tokenizers: spaces in front, bytes without a token, both file formats, and what is refused.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod common;

use common::{SENTENCEPIECE, detokenize};
use foretoken_text::{GgufVocab, HfFiles, Tokenizer};
use serde_json::{Value, json};

fn vocab(name: &str) -> GgufVocab {
    SENTENCEPIECE[name].gguf_vocab().unwrap()
}

fn llama() -> Tokenizer {
    Tokenizer::from_gguf(vocab("llama")).unwrap()
}

fn pushed(tokenizer: &Tokenizer, before: &[u32], ids: &[u32]) -> Vec<String> {
    let mut detokenizer = tokenizer.detokenizer_after(before);
    ids.iter().map(|id| detokenizer.push(*id).to_owned()).collect()
}

#[test]
fn both_formats_of_one_tokenizer_have_one_fingerprint() {
    for name in ["llama", "gemma"] {
        let from_gguf = Tokenizer::from_gguf(vocab(name)).unwrap();
        let from_hf = Tokenizer::from_hf(SENTENCEPIECE[name].hf_files()).unwrap();
        assert_eq!(from_gguf.first_difference(&from_hf), None, "{name}");
        assert_eq!(from_gguf.fingerprint(), from_hf.fingerprint());
        assert_eq!(from_gguf.vocab_size(), from_hf.vocab_size(), "padding rows do not count");
    }
    let [llama, gemma] = ["llama", "gemma"].map(|name| Tokenizer::from_gguf(vocab(name)).unwrap());
    assert_ne!(llama.fingerprint(), gemma.fingerprint());
}

#[test]
fn the_space_in_front_of_a_text_is_none_of_its_own() {
    let tokenizer = llama();
    let ids = tokenizer.encode("the", false).unwrap();
    assert_eq!(tokenizer.token_bytes(ids[0]), Some(&b" the"[..]));
    assert_eq!(detokenize(&tokenizer, &ids), "the");
    let ids = tokenizer.encode("  the", false).unwrap();
    assert_eq!(detokenize(&tokenizer, &ids), "  the");
    // Gemma puts none there.
    let gemma = Tokenizer::from_gguf(vocab("gemma")).unwrap();
    let ids = gemma.encode(" the", false).unwrap();
    assert_eq!(detokenize(&gemma, &ids), " the");
}

#[test]
fn the_space_in_front_of_an_answer_is_its_own_unless_it_begins_the_text() {
    let tokenizer = llama();
    let prompt = tokenizer.encode("of", true).unwrap();
    let the = tokenizer.encode("the", false).unwrap();
    assert_eq!(prompt[0], 1, "a text begins with BOS where the file does not say otherwise");
    assert_eq!(pushed(&tokenizer, &prompt, &the), [" the"]);
    assert_eq!(pushed(&tokenizer, &[1], &the), ["the"]);
    assert_eq!(pushed(&tokenizer, &[], &[&the[..], &the[..]].concat()), ["the", " the"]);
    // Special tokens in front of the answer's own text do not begin it.
    assert_eq!(pushed(&tokenizer, &[1], &[2, the[0]]), ["", "the"]);
    let mut detokenizer = tokenizer.detokenizer();
    for _ in 0..2 {
        assert_eq!(detokenizer.push(the[0]), "the", "as new after the end");
        assert_eq!(detokenizer.finish(), "");
    }
}

#[test]
fn a_character_of_bytes_appears_with_its_last_byte() {
    let tokenizer = llama();
    let text = "\u{20000}\u{1f469}\u{200d}";
    let ids = tokenizer.encode(text, false).unwrap();
    // The space, then three characters of four, four and three bytes.
    assert_eq!(ids.len(), 1 + 4 + 4 + 3, "the model has no tokens for them");
    let shown = pushed(&tokenizer, &[], &ids);
    let expected =
        ["", "", "", "", "\u{20000}", "", "", "", "\u{1f469}", "", "", "\u{200d}"].map(String::from);
    assert_eq!(shown, expected);
    // Half a character followed by text is U+FFFD, and the text.
    let the = tokenizer.encode("the", false).unwrap();
    let broken = [&ids[..3], &the[..]].concat();
    assert_eq!(detokenize(&tokenizer, &broken), "\u{fffd} the");
}

#[test]
fn tokens_found_as_a_whole_are_what_they_say() {
    let gemma = Tokenizer::from_gguf(vocab("gemma")).unwrap();
    let ids = gemma.encode("the<end_of_turn>\n\n   the", false).unwrap();
    let texts: Vec<String> =
        ids.iter().map(|id| String::from_utf8_lossy(gemma.token_bytes(*id).unwrap()).into_owned()).collect();
    assert!(texts.contains(&"<end_of_turn>".to_owned()) && texts.contains(&"\n\n".to_owned()), "{texts:?}");
    assert!(texts.contains(&"   ".to_owned()), "{texts:?}");
    let turn = ids[texts.iter().position(|text| text == "<end_of_turn>").unwrap()];
    assert!(gemma.eos_ids().contains(&turn), "it ends an answer");
}

#[test]
fn contradictions_in_gguf_metadata_are_named() {
    let error = |change: fn(&mut GgufVocab)| {
        let mut vocab = vocab("llama");
        change(&mut vocab);
        Tokenizer::from_gguf(vocab).unwrap_err().to_string()
    };
    assert!(error(|vocab| vocab.scores.truncate(3)).contains("tokens, but 3 scores"));
    assert!(error(|vocab| vocab.scores.clear()).contains("tokens, but 0 scores"));
    assert!(error(|vocab| vocab.unknown = Some(9999)).contains("unknown_token_id 9999 is not below"));
    assert!(error(|vocab| vocab.tokens[400] = "<s>".into()).contains("tokens 1 and 400 are both"));
}

#[test]
fn decoders_that_a_table_of_bytes_cannot_follow_are_refused() {
    let error = |change: fn(&mut Value)| {
        let mut json = SENTENCEPIECE["llama"].tokenizer_json();
        change(&mut json);
        let files = HfFiles { tokenizer_json: json.to_string().into_bytes(), ..HfFiles::default() };
        Tokenizer::from_hf(files).unwrap_err().to_string()
    };
    let decoder = "byte_fallback and another decoder";
    assert!(error(|json| json["decoder"] = json!(null)).contains(decoder));
    assert!(error(|json| json["decoder"]["decoders"][0]["content"] = json!("_")).contains(decoder));
    assert!(error(|json| json["decoder"]["decoders"][3]["start"] = json!(2)).contains(decoder));
    assert!(error(|json| json["decoder"] = json!({"type": "Metaspace"})).contains(decoder));
    assert!(error(|json| json["model"]["byte_fallback"] = json!(false)).contains("without byte_fallback"));
}

#[test]
fn long_prompts_of_one_kind_stay_fast() {
    let tokenizer = llama();
    for pattern in [" ", "a", "\n", " \n", "!", "1", "\u{20000}", "the "] {
        let text = pattern.repeat(20_000);
        let ids = tokenizer.encode(&text, true).unwrap();
        assert_eq!(detokenize(&tokenizer, &ids), text);
    }
}
