//! Vocabularies for tests: the goldens made with Python, and a small one made here.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(
    clippy::unwrap_used,
    reason = "only test functions are exempt by themselves; all of this is for tests"
)]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use foretoken_text::{GgufVocab, HfFiles, Tokenizer};
use serde::Deserialize;
use serde_json::{Value, json};

/// What Python said about one family.
#[derive(Debug, Deserialize)]
pub(crate) struct Golden {
    gguf: GoldenGguf,
    tokenizer_json: Value,
    pub(crate) cases: Vec<GoldenCase>,
}

#[derive(Debug, Deserialize)]
struct GoldenGguf {
    pre: String,
    tokens: Vec<String>,
    token_types: Vec<i32>,
    merges: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct GoldenCase {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
}

pub(crate) static GOLDENS: LazyLock<BTreeMap<String, Golden>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../data/goldens.json")).unwrap());

impl Golden {
    pub(crate) fn gguf_vocab(&self) -> GgufVocab {
        GgufVocab {
            model: "gpt2".into(),
            pre: Some(self.gguf.pre.clone()),
            tokens: self.gguf.tokens.clone(),
            token_types: self.gguf.token_types.clone(),
            merges: self.gguf.merges.clone(),
            bos: Some(1),
            eos: Some(2),
            add_bos: Some(false),
            ..GgufVocab::default()
        }
    }

    pub(crate) fn hf_files(&self) -> HfFiles {
        HfFiles { tokenizer_json: self.tokenizer_json.to_string().into_bytes(), ..HfFiles::default() }
    }
}

/// A SentencePiece tokenizer in both file formats; one has no GGUF form.
#[derive(Debug, Deserialize)]
pub(crate) struct SentencePiece {
    gguf: Option<SentencePieceGguf>,
    tokenizer_json: Value,
}

#[derive(Debug, Deserialize)]
struct SentencePieceGguf {
    tokens: Vec<String>,
    scores: Vec<f32>,
    token_types: Vec<i32>,
    add_space_prefix: bool,
}

pub(crate) static SENTENCEPIECE: LazyLock<BTreeMap<String, SentencePiece>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../data/sentencepiece.json")).unwrap());

impl SentencePiece {
    pub(crate) fn gguf_vocab(&self) -> Option<GgufVocab> {
        self.gguf.as_ref().map(|gguf| GgufVocab {
            model: "llama".into(),
            pre: Some("default".into()),
            tokens: gguf.tokens.clone(),
            scores: gguf.scores.clone(),
            token_types: gguf.token_types.clone(),
            bos: Some(1),
            eos: Some(2),
            unknown: Some(0),
            add_space_prefix: Some(gguf.add_space_prefix),
            ..GgufVocab::default()
        })
    }

    pub(crate) fn tokenizer_json(&self) -> Value {
        self.tokenizer_json.clone()
    }

    pub(crate) fn hf_files(&self) -> HfFiles {
        HfFiles { tokenizer_json: self.tokenizer_json.to_string().into_bytes(), ..HfFiles::default() }
    }
}

/// The smollm golden's tokenizer: all 256 bytes, some merges, three control and two user-defined tokens.
pub(crate) fn tokenizer() -> Tokenizer {
    static TOKENIZER: LazyLock<Tokenizer> =
        LazyLock::new(|| Tokenizer::from_gguf(GOLDENS["smollm"].gguf_vocab()).unwrap());
    TOKENIZER.clone()
}

/// The character that stands for a byte in the byte-level alphabet.
pub(crate) fn letter(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !printable(*other)).count() as u32;
    char::from_u32(256 + before).unwrap()
}

/// Ids 0..=255 are the bytes themselves, 256 is "Ġt", 257 "he", 258 "Ġthe", 259 `<|endoftext|>`, 260 `<|im_start|>`,
/// 261 `<|im_end|>`.
pub(crate) fn byte_vocab() -> GgufVocab {
    let mut tokens: Vec<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
    tokens.extend(["Ġt", "he", "Ġthe", "<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(String::from));
    let mut token_types = vec![1; tokens.len()];
    token_types[259..].fill(3);
    GgufVocab {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens,
        token_types,
        merges: ["Ġ t", "h e", "Ġt he"].map(String::from).to_vec(),
        bos: Some(260),
        eos: Some(261),
        ..GgufVocab::default()
    }
}

/// The same vocabulary as a `tokenizer.json`, with the special tokens outside `model.vocab`, as newer models have it.
pub(crate) fn byte_tokenizer_json() -> Value {
    let vocab = byte_vocab();
    let ids: BTreeMap<&str, usize> =
        vocab.tokens[..259].iter().enumerate().map(|(id, t)| (t.as_str(), id)).collect();
    let added: Vec<Value> = (259..262)
        .map(|id| {
            json!({"id": id, "content": vocab.tokens[id], "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false})
        })
        .collect();
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": ids, "merges": vocab.merges},
    })
}

/// All text of a list of ids.
pub(crate) fn detokenize(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut detokenizer = tokenizer.detokenizer();
    let mut text: String = ids.iter().map(|id| detokenizer.push(*id).to_owned()).collect();
    text.push_str(detokenizer.finish());
    text
}
