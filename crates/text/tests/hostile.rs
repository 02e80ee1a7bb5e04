//! Broken and hostile files: an error that names what is wrong, never a panic, never a wrong tokenizer.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod common;

use common::{GOLDENS, byte_tokenizer_json, byte_vocab};
use foretoken_text::{GgufVocab, HfFiles, TextError, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

fn gguf_error(change: impl FnOnce(&mut GgufVocab)) -> String {
    let mut vocab = byte_vocab();
    change(&mut vocab);
    Tokenizer::from_gguf(vocab).unwrap_err().to_string()
}

fn hf_error(change: impl FnOnce(&mut Value)) -> String {
    let mut json = byte_tokenizer_json();
    change(&mut json);
    let files = HfFiles { tokenizer_json: json.to_string().into_bytes(), ..HfFiles::default() };
    Tokenizer::from_hf(files).unwrap_err().to_string()
}

#[test]
fn other_kinds_are_refused_by_name() {
    assert_eq!(
        gguf_error(|vocab| vocab.model = "bert".into()),
        "tokenizer model `bert` (WordPiece) is not supported yet; byte-level BPE (`gpt2`) and SentencePiece BPE \
         (`llama`) are"
    );
    assert!(gguf_error(|vocab| vocab.pre = Some("tekken".into())).starts_with("pre-tokenizer `tekken`"));
    assert!(gguf_error(|vocab| vocab.pre = None).starts_with("pre-tokenizer `(none given)`"));
    assert!(hf_error(|json| json["model"]["type"] = json!("Unigram")).contains("model `Unigram`"));
    assert!(
        hf_error(|json| json["model"]["byte_fallback"] = json!(true))
            .contains("byte_fallback and another decoder")
    );
    assert!(hf_error(|json| json["pre_tokenizer"] = json!(null)).contains("without a ByteLevel step"));
    assert!(hf_error(|json| json["model"]["dropout"] = json!(0.1)).contains("dropout"));
    assert!(hf_error(|json| json["model"]["end_of_word_suffix"] = json!("</w>")).contains("suffixes"));
    let unigram = json!({"model": {"type": "Unigram", "vocab": [["a", -1.5]]}}).to_string().into_bytes();
    let refused = Tokenizer::from_hf(HfFiles { tokenizer_json: unigram, ..HfFiles::default() }).unwrap_err();
    assert!(matches!(refused, TextError::UnsupportedTokenizer { .. }), "{refused}");
}

#[test]
fn contradictions_in_gguf_metadata_are_named() {
    let error = gguf_error(|vocab| vocab.merges.push("Ġthe xyz".into()));
    assert_eq!(error, r#"vocabulary: merge 3 ("Ġthe xyz") needs "xyz", which is no token"#);
    let error = gguf_error(|vocab| vocab.merges.push("t t".into()));
    assert_eq!(error, r#"vocabulary: merge 3 ("t t") needs "tt", which is no token"#);
    assert!(
        gguf_error(|vocab| vocab.merges.push("the".into())).contains(r#"merge 3 is "the", not two tokens"#)
    );
    assert!(gguf_error(|vocab| vocab.tokens[7] = "he".into()).contains(r#"tokens 7 and 257 are both "he""#));
    assert!(gguf_error(|vocab| vocab.token_types[7] = 9).contains("token 7 has the unknown type 9"));
    assert!(gguf_error(|vocab| vocab.token_types.truncate(3)).contains("262 tokens, but 3 token types"));
    assert!(
        gguf_error(|vocab| vocab.eos = Some(262)).contains("eos_token_id 262 is not below the 262 tokens")
    );
    assert!(gguf_error(|vocab| vocab.bos = Some(u32::MAX)).contains("bos_token_id 4294967295"));
    assert!(gguf_error(|vocab| vocab.token_types[261] = 5).contains("id 261 is not in the vocabulary"));
    let huge = "x".repeat(1 << 20);
    assert!(
        gguf_error(|vocab| vocab.tokens[7] = huge).contains("token 7 has 1048576 bytes; the limit is 65536")
    );
    let empty = GgufVocab { model: "gpt2".into(), pre: Some("smollm".into()), ..GgufVocab::default() };
    assert!(Tokenizer::from_gguf(empty).unwrap_err().to_string().contains("holds no token"));
}

#[test]
fn contradictions_in_tokenizer_json_are_named() {
    assert!(hf_error(|json| json["model"]["merges"] = json!(["a zz"])).contains("tokenizer.json"));
    assert!(hf_error(|json| json["model"]["merges"] = json!(["azz"])).contains("tokenizer.json"));
    assert!(hf_error(|json| json["model"]["vocab"]["a"] = json!(98)).contains("id 98 is both"));
    let error = hf_error(|json| json["model"]["vocab"]["far"] = json!(u32::MAX));
    assert!(error.contains("token id 4294967295 is not below the limit"), "{error}");
    assert!(hf_error(|json| json["model"]["vocab"]["far"] = json!(-1)).contains("invalid value"));
    let error = hf_error(|json| json["added_tokens"][0]["id"] = json!(300));
    assert!(error.contains("added token `<|endoftext|>` has id 300, but loads as Some(259)"), "{error}");
    let error = hf_error(|json| json["model"]["vocab"]["<|endoftext|>"] = json!(270));
    assert!(error.contains("added token `<|endoftext|>` has id 259 and id 270"), "{error}");
    assert!(hf_error(|json| json["version"] = json!("2.0")).contains("2.0"));
    let bad_regex = json!([{"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]);
    let error =
        hf_error(|json| json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": bad_regex}));
    assert!(error.starts_with("tokenizer.json: "), "{error}");
    let huge = "x".repeat(1 << 20);
    assert!(
        hf_error(|json| json["model"]["vocab"][huge.as_str()] = json!(262)).contains("has 1048576 bytes")
    );
}

#[test]
fn files_that_are_no_json_are_named() {
    let files = |config: &[u8], generation: &[u8]| HfFiles {
        tokenizer_json: byte_tokenizer_json().to_string().into_bytes(),
        tokenizer_config_json: Some(config.to_vec()),
        generation_config_json: Some(generation.to_vec()),
        chat_template_jinja: None,
    };
    let error = |files| Tokenizer::from_hf(files).unwrap_err().to_string();
    assert!(error(HfFiles::default()).starts_with("tokenizer.json: EOF"));
    assert!(
        error(HfFiles { tokenizer_json: vec![0xFF; 9], ..HfFiles::default() })
            .starts_with("tokenizer.json: ")
    );
    assert!(error(files(b"{", b"{}")).starts_with("tokenizer_config.json: "));
    assert!(error(files(b"{}", b"[1")).starts_with("generation_config.json: "));
    let deep = "[".repeat(100_000).into_bytes();
    assert!(error(HfFiles { tokenizer_json: deep, ..HfFiles::default() }).starts_with("tokenizer.json: "));
}

#[test]
fn bundles_of_other_versions_are_refused() {
    let bundle = common::tokenizer().to_bundle();
    let text = String::from_utf8(bundle.clone()).unwrap();
    let other = text.replacen("foretoken-tokenizer/1", "foretoken-tokenizer/9", 1);
    let error = Tokenizer::from_bundle(other.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("format `foretoken-tokenizer/9` is not `foretoken-tokenizer/1`"), "{error}");
    assert!(matches!(Tokenizer::from_bundle(b""), Err(TextError::Bundle { .. })));
    assert!(matches!(Tokenizer::from_bundle(&bundle[..bundle.len() / 2]), Err(TextError::Bundle { .. })));
    assert!(matches!(Tokenizer::from_bundle(&vec![b' '; (64 << 20) + 1]), Err(TextError::Bundle { .. })));
    let foreign = text.replacen("\"ends\":[", "\"ends\":[4000000,", 1);
    let error = Tokenizer::from_bundle(foreign.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("id 4000000 is not in the vocabulary"), "{error}");
}

#[test]
fn a_bundle_carries_everything() {
    let mut vocab = byte_vocab();
    vocab.add_bos = Some(true);
    vocab.eot = Some(258);
    vocab.chat_template = Some("{{ bos_token }}\"\u{2028}\\n{{ messages[0].content }}".into());
    let made = Tokenizer::from_gguf(vocab).unwrap();
    let read = Tokenizer::from_bundle(&made.to_bundle()).unwrap();
    assert_eq!(read.to_bundle(), made.to_bundle());
    assert_eq!(read.fingerprint(), made.fingerprint());
    assert_eq!(read.first_difference(&made), None);
    assert_eq!((read.bos_id(), read.adds_bos(), read.eos_ids()), (Some(260), true, &[258, 259, 261][..]));
    assert_eq!(read.chat(), made.chat());
    for id in 0..300 {
        assert_eq!(read.token_bytes(id), made.token_bytes(id));
        assert_eq!(read.is_special(id), made.is_special(id));
    }
    let text = "in the <|im_start|>beginning";
    assert_eq!(read.encode(text, true).unwrap(), made.encode(text, true).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_bundles_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut bundle = Tokenizer::from_gguf(byte_vocab()).unwrap().to_bundle();
        let at = at.index(bundle.len());
        if cut {
            bundle.truncate(at);
        } else {
            bundle[at] = byte;
        }
        if let Ok(tokenizer) = Tokenizer::from_bundle(&bundle) {
            let _ids = tokenizer.encode("in the beginning é <|im_end|>", true);
        }
    }

    #[test]
    fn random_metadata_never_panics(
        tokens in prop::collection::vec("[ab\u{120} \u{1f600}]{0,3}|\\[PAD[0-9]\\]", 0..12),
        kinds in prop::collection::vec(-1_i32..8, 0..12),
        merges in prop::collection::vec("[ab ]{0,4}", 0..4),
        marks in prop::collection::vec(prop::option::of(0_u32..12), 4),
        scores in prop::collection::vec(any::<f32>(), 0..12),
        sentencepiece in any::<bool>(),
    ) {
        let vocab = GgufVocab {
            model: if sentencepiece { "llama".into() } else { "gpt2".into() },
            pre: Some("qwen2".into()),
            scores: if sentencepiece { scores.into_iter().chain([0.0; 12]).take(tokens.len()).collect() } else { scores },
            unknown: marks[3],
            tokens,
            token_types: kinds,
            merges,
            bos: marks[0],
            eos: marks[1],
            eot: marks[2],
            ..GgufVocab::default()
        };
        if let Ok(tokenizer) = Tokenizer::from_gguf(vocab) {
            for id in tokenizer.encode("ab ba [PAD3]\u{1f600}", true).unwrap() {
                prop_assert!(tokenizer.token_bytes(id).is_some());
            }
        }
    }
}

#[test]
fn long_prompts_of_one_kind_stay_fast() {
    let tokenizer = Tokenizer::from_gguf(GOLDENS["llama-bpe"].gguf_vocab()).unwrap();
    for pattern in [" ", "a", "\n", " \n", "!", "1", "é"] {
        let text = pattern.repeat(50_000);
        let ids = tokenizer.encode(&text, true).unwrap();
        assert_eq!(common::detokenize(&tokenizer, &ids), text);
    }
}
