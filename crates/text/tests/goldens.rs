//! Ids and fingerprints against Python's `tokenizers`, from both file formats and from the bundle.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod common;

use common::{GOLDENS, byte_tokenizer_json, byte_vocab, detokenize};
use foretoken_text::{HfFiles, Tokenizer};
use serde_json::json;

#[test]
fn every_family_gives_pythons_ids_from_every_source() {
    for (family, golden) in GOLDENS.iter() {
        let from_gguf = Tokenizer::from_gguf(golden.gguf_vocab()).unwrap();
        let from_hf = Tokenizer::from_hf(golden.hf_files()).unwrap();
        let from_bundle = Tokenizer::from_bundle(&from_gguf.to_bundle()).unwrap();
        for case in &golden.cases {
            let text = &case.text;
            assert_eq!(from_gguf.encode(text, true).unwrap(), case.ids, "{family}, GGUF: {text:?}");
            assert_eq!(from_hf.encode(text, true).unwrap(), case.ids, "{family}, tokenizer.json: {text:?}");
            assert_eq!(from_bundle.encode(text, true).unwrap(), case.ids, "{family}, bundle: {text:?}");
        }
    }
}

#[test]
fn all_text_without_special_tokens_comes_back() {
    for (family, golden) in GOLDENS.iter().filter(|(family, _)| *family != "qwen2") {
        let tokenizer = Tokenizer::from_gguf(golden.gguf_vocab()).unwrap();
        for case in golden.cases.iter().filter(|case| !case.text.contains("<|")) {
            assert_eq!(detokenize(&tokenizer, &case.ids), case.text, "{family}");
        }
    }
}

#[test]
fn both_formats_of_one_tokenizer_have_one_fingerprint() {
    let mut fingerprints = Vec::new();
    for golden in GOLDENS.values() {
        let from_gguf = Tokenizer::from_gguf(golden.gguf_vocab()).unwrap();
        let from_hf = Tokenizer::from_hf(golden.hf_files()).unwrap();
        assert_eq!(from_gguf.fingerprint(), from_hf.fingerprint());
        assert_eq!(from_gguf.first_difference(&from_hf), None);
        assert_eq!(from_gguf.vocab_size(), from_hf.vocab_size(), "padding rows do not count");
        assert_eq!(from_gguf.token_bytes(from_gguf.vocab_size() as u32), None);
        fingerprints.push(from_gguf.fingerprint().to_owned());
    }
    fingerprints.sort();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), GOLDENS.len(), "different vocabularies differ");
}

#[test]
fn the_fingerprint_is_pinned() {
    // It is compared between processes of different versions: a change of the algorithm must not pass unseen.
    let expected = "39319a7901d9a08a426dbfada4d747edc6c3ba6f7376406673d3917b5f52efe7";
    let from_gguf = Tokenizer::from_gguf(byte_vocab()).unwrap();
    let json = byte_tokenizer_json().to_string().into_bytes();
    let from_hf = Tokenizer::from_hf(HfFiles { tokenizer_json: json, ..HfFiles::default() }).unwrap();
    assert_eq!(from_gguf.fingerprint(), expected);
    assert_eq!(from_hf.fingerprint(), expected);
}

#[test]
fn a_changed_token_is_found_by_its_id() {
    let ours = Tokenizer::from_gguf(byte_vocab()).unwrap();
    let mut vocab = byte_vocab();
    vocab.tokens[259] = "<|end_of_text|>".into();
    let theirs = Tokenizer::from_gguf(vocab).unwrap();
    assert_ne!(ours.fingerprint(), theirs.fingerprint());
    let difference = ours.first_difference(&theirs).unwrap();
    assert_eq!(difference.to_string(), r#"token 259 is "<|endoftext|>" here and "<|end_of_text|>" there"#);
}

#[test]
fn special_tokens_are_parsed_and_have_literal_bytes() {
    let tokenizer = common::tokenizer();
    let ids = tokenizer.encode("<|im_start|>a<think><|im_end|>", false).unwrap();
    assert_eq!((ids[0], ids[3]), (1, 2));
    assert_eq!(tokenizer.token_bytes(1), Some(&b"<|im_start|>"[..]));
    assert_eq!(tokenizer.token_bytes(ids[2]), Some(&b"<think>"[..]));
    assert!(tokenizer.is_special(1) && tokenizer.is_special(2) && !tokenizer.is_special(ids[1]));
    assert!(!tokenizer.is_special(ids[2]), "user-defined tokens are text");
    assert_eq!(detokenize(&tokenizer, &ids), "a<think>");
}

#[test]
fn bos_is_added_once_and_only_where_wanted() {
    let mut vocab = byte_vocab();
    let without = Tokenizer::from_gguf(vocab.clone()).unwrap();
    assert_eq!(without.encode("a", true).unwrap(), [97]);
    vocab.add_bos = Some(true);
    let with = Tokenizer::from_gguf(vocab.clone()).unwrap();
    assert_eq!(with.encode("a", true).unwrap(), [260, 97]);
    assert_eq!(with.encode("a", false).unwrap(), [97]);
    assert_eq!(with.encode("", true).unwrap(), [260]);
    assert_eq!(with.encode("<|im_start|>a", true).unwrap(), [260, 97]);
    vocab.add_bos = None;
    vocab.pre = Some("llama-bpe".into());
    assert!(Tokenizer::from_gguf(vocab).unwrap().adds_bos(), "Llama 3 wants BOS");
}

#[test]
fn truncation_in_the_file_does_not_cut_prompts() {
    let json = byte_tokenizer_json().to_string().into_bytes();
    let tokenizer = Tokenizer::from_hf(HfFiles { tokenizer_json: json, ..HfFiles::default() }).unwrap();
    assert_eq!(tokenizer.encode("abcdefgh", true).unwrap().len(), 8);
}

#[test]
fn hugging_face_files_tell_how_texts_begin_and_end() {
    let files = |config: serde_json::Value, generation: serde_json::Value, post: serde_json::Value| {
        let mut json = byte_tokenizer_json();
        json["post_processor"] = post;
        HfFiles {
            tokenizer_json: json.to_string().into_bytes(),
            tokenizer_config_json: Some(config.to_string().into_bytes()),
            generation_config_json: Some(generation.to_string().into_bytes()),
            chat_template_jinja: None,
        }
    };
    let template = json!({"type": "TemplateProcessing", "pair": [], "special_tokens":
        {"<|im_start|>": {"id": "<|im_start|>", "ids": [260], "tokens": ["<|im_start|>"]}},
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]});
    let sequence = json!({"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}, template]});

    let plain = Tokenizer::from_hf(files(json!({}), json!({}), json!(null))).unwrap();
    assert_eq!((plain.bos_id(), plain.eos_ids()), (None, &[259, 261][..]));

    let config =
        json!({"bos_token": null, "eos_token": {"content": "he"}, "chat_template": "{{ eos_token }}"});
    let named = Tokenizer::from_hf(files(config, json!({"eos_token_id": [256, 9999]}), json!(null))).unwrap();
    assert_eq!(named.eos_ids(), [256, 257, 259, 261], "ids the vocabulary lacks are left out");
    assert!(named.is_special(257), "what ends an answer is not part of it");
    assert_eq!(named.chat().unwrap().render(&[], false).unwrap(), "he");

    let with_bos = Tokenizer::from_hf(files(json!({}), json!({"bos_token_id": 260}), sequence)).unwrap();
    assert_eq!(with_bos.encode("a", true).unwrap(), [260, 97]);

    let config = json!({"bos_token": "<|im_start|>", "add_bos_token": true});
    let by_config = Tokenizer::from_hf(files(config, json!({"eos_token_id": 97}), json!(null))).unwrap();
    assert_eq!(by_config.encode("b", true).unwrap(), [260, 98]);
    assert_eq!(by_config.eos_ids(), [97, 259, 261]);
}

#[test]
fn one_tokenizer_serves_many_threads() {
    fn shared<T: Send + Sync + Clone>(value: &T) -> T {
        value.clone()
    }
    let tokenizer = shared(&common::tokenizer());
    let expected = tokenizer.encode("Hello, we can use it", true).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(tokenizer.encode("Hello, we can use it", true).unwrap(), expected));
        }
    });
}
