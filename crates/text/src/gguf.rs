//! A tokenizer from the metadata of a GGUF file, handed over as plain values.
//!
//! The metadata is written as the `tokenizer.json` it was once converted from; only what GGUF leaves out comes from
//! elsewhere: the rule for cutting words from [`PreTokenizer`], the merges of a SentencePiece model from its scores.

use std::collections::HashMap;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::error::TextError;
use crate::kind::sentencepiece_decoder;
use crate::parts::{Parts, is_padding};
use crate::pre_tokenizer::PreTokenizer;
use crate::sentencepiece;
use crate::table::{MAX_VOCAB, readable};
use crate::vocabulary::Vocabulary;

/// Values of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// The vocabulary of a GGUF file; each field is one metadata key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GgufVocab {
    /// `tokenizer.ggml.model`: `gpt2` is byte-level BPE, `llama` SentencePiece BPE; no other kind is supported.
    pub model: String,
    /// `tokenizer.ggml.pre`: the name of the rule that cuts text into words; SentencePiece has none.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: the tokens as their kind writes them, by id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: of each token, which SentencePiece has in place of merges; not used by the other kind.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 a byte; empty: all
    /// normal.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.merges`: two tokens and a space between them, the most frequent pair first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: ends a turn.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`: stands for what SentencePiece cannot write; not used by the other kind, which
    /// knows every byte it was trained on.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`; not used, batches here are not padded.
    pub padding: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`; the family decides where the file does not say.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`: whether SentencePiece gives a text a space in front; it does where the file does
    /// not say.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

/// What surrounds the tokens of one kind, in the words of `tokenizer.json`.
struct Rules<'a> {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    merges: Vec<[&'a str; 2]>,
    ignore_merges: bool,
    byte_fallback: bool,
    unknown: Option<&'a str>,
    adds_bos_by_default: bool,
}

impl GgufVocab {
    /// Checks everything and writes it in the common form.
    pub(crate) fn into_parts(mut self) -> Result<(Parts, Vocabulary), TextError> {
        self.restore_spaces();
        let rules = match self.model.as_str() {
            "gpt2" => Self::byte_level,
            "llama" => Self::sentencepiece,
            other => return Err(TextError::UnsupportedTokenizer { kind: name_of_model(other) }),
        };
        self.check_sizes()?;
        let ids = self.used_tokens()?;
        let rules = rules(&self, &ids)?;
        let document = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": self.added_tokens(),
            "normalizer": rules.normalizer,
            "pre_tokenizer": rules.pre_tokenizer,
            "post_processor": null,
            "decoder": rules.decoder,
            "model": {
                "type": "BPE",
                "dropout": null,
                "unk_token": rules.unknown,
                "continuing_subword_prefix": null,
                "end_of_word_suffix": null,
                "fuse_unk": rules.unknown.is_some(),
                "byte_fallback": rules.byte_fallback,
                "ignore_merges": rules.ignore_merges,
                "vocab": ids,
                "merges": rules.merges,
            },
        });
        let json = to_raw_value(&document).map_err(|error| TextError::vocabulary(error.to_string()))?;
        let vocabulary = Vocabulary::read(&json)?;
        let mut parts = Parts::new(json);
        parts.bos = self.bos;
        parts.eos = self.eos;
        parts.ends.extend(self.eot);
        parts.complete_ends(&vocabulary);
        parts.add_bos = self.bos.is_some() && self.add_bos.unwrap_or(rules.adds_bos_by_default);
        parts.chat_template = self.chat_template;
        Ok((parts, vocabulary))
    }

    fn byte_level<'a>(&'a self, ids: &HashMap<&'a str, u32>) -> Result<Rules<'a>, TextError> {
        let family = PreTokenizer::from_name(self.pre.as_deref())?;
        Ok(Rules {
            normalizer: family.normalizer(),
            pre_tokenizer: family.pre_tokenizer(),
            decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            merges: self.split_merges(ids)?,
            ignore_merges: family.ignores_merges(),
            byte_fallback: false,
            unknown: None,
            adds_bos_by_default: family.adds_bos_by_default(),
        })
    }

    /// The whole text is one word; the space in front comes anew behind each token that was found as a whole.
    fn sentencepiece<'a>(&'a self, ids: &HashMap<&'a str, u32>) -> Result<Rules<'a>, TextError> {
        let (tokens, scores) = (self.tokens.len(), self.scores.len());
        if scores != tokens {
            return Err(TextError::vocabulary(format!("{tokens} tokens, but {scores} scores")));
        }
        let prefixed = self.add_space_prefix.unwrap_or(true);
        let unknown = match self.unknown {
            Some(id) => self.tokens.get(id as usize).map(String::as_str),
            None => self.numbered().find(|(id, _)| self.kind(*id) == UNKNOWN).map(|(_, token)| token),
        };
        Ok(Rules {
            normalizer: sentencepiece::normalizer(prefixed),
            pre_tokenizer: Value::Null,
            decoder: sentencepiece_decoder(prefixed),
            merges: sentencepiece::merges(ids, &self.scores),
            ignore_merges: false,
            byte_fallback: true,
            unknown: unknown.filter(|token| ids.contains_key(token)),
            adds_bos_by_default: true,
        })
    }

    /// Writes the spaces of user-defined tokens as SentencePiece does, which converters undo: as its pieces they are made
    /// by merges like all others.
    fn restore_spaces(&mut self) {
        if self.model != "llama" {
            return;
        }
        for (token, kind) in self.tokens.iter_mut().zip(&self.token_types) {
            if *kind == USER_DEFINED && token.contains(' ') {
                *token = token.replace(' ', &sentencepiece::SPACE.to_string());
            }
        }
    }

    fn check_sizes(&self) -> Result<(), TextError> {
        let tokens = self.tokens.len();
        if tokens > MAX_VOCAB as usize {
            return Err(TextError::vocabulary(format!("{tokens} tokens exceed the limit of {MAX_VOCAB}")));
        }
        let types = self.token_types.len();
        if types != 0 && types != tokens {
            return Err(TextError::vocabulary(format!("{tokens} tokens, but {types} token types")));
        }
        let marks = [
            ("bos_token_id", self.bos),
            ("eos_token_id", self.eos),
            ("eot_token_id", self.eot),
            ("unknown_token_id", self.unknown.filter(|_| self.model == "llama")),
        ];
        for (name, id) in marks {
            if let Some(id) = id.filter(|id| *id as usize >= tokens) {
                return Err(TextError::vocabulary(format!("{name} {id} is not below the {tokens} tokens")));
            }
        }
        Ok(())
    }

    fn kind(&self, id: u32) -> i32 {
        self.token_types.get(id as usize).copied().unwrap_or(NORMAL)
    }

    fn numbered(&self) -> impl Iterator<Item = (u32, &str)> {
        (0..).zip(self.tokens.iter().map(String::as_str))
    }

    /// Text → id of all tokens but the padding entries.
    fn used_tokens(&self) -> Result<HashMap<&str, u32>, TextError> {
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (id, text) in self.numbered() {
            match self.kind(id) {
                UNUSED => continue,
                _ if is_padding(text, id) => continue,
                NORMAL | UNKNOWN | CONTROL | USER_DEFINED | BYTE => {}
                other => {
                    return Err(TextError::vocabulary(format!("token {id} has the unknown type {other}")));
                }
            }
            if let Some(first) = ids.insert(text, id) {
                let text = readable(text.as_bytes());
                return Err(TextError::vocabulary(format!("tokens {first} and {id} are both {text}")));
            }
        }
        Ok(ids)
    }

    fn split_merges(&self, ids: &HashMap<&str, u32>) -> Result<Vec<[&str; 2]>, TextError> {
        let mut joined = String::new();
        let mut pairs = Vec::with_capacity(self.merges.len());
        for (rank, merge) in self.merges.iter().enumerate() {
            let Some((left, right)) = merge.split_once(' ') else {
                let merge = readable(merge.as_bytes());
                return Err(TextError::vocabulary(format!("merge {rank} is {merge}, not two tokens")));
            };
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            for token in [left, right, &joined] {
                if !ids.contains_key(token) {
                    let (token, merge) = (readable(token.as_bytes()), readable(merge.as_bytes()));
                    return Err(TextError::vocabulary(format!(
                        "merge {rank} ({merge}) needs {token}, which is no token"
                    )));
                }
            }
            pairs.push([left, right]);
        }
        Ok(pairs)
    }

    /// Tokens that are found in the text as a whole. What starts or ends a text is one of them even where the file calls
    /// it normal: some converters do, and the chat template must find it.
    fn added_tokens(&self) -> Vec<serde_json::Value> {
        let marks = [self.bos, self.eos, self.eot];
        let mut added = Vec::new();
        for (id, text) in self.numbered() {
            let kind = self.kind(id);
            let special = matches!(kind, CONTROL | UNKNOWN) || marks.contains(&Some(id));
            if text.is_empty() || kind == UNUSED || is_padding(text, id) || !(special || kind == USER_DEFINED)
            {
                continue;
            }
            added.push(json!({
                "id": id,
                "content": text,
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": special,
            }));
        }
        added
    }
}

/// The name a GGUF file gives, and the one people know it by.
fn name_of_model(model: &str) -> String {
    let known_as = match model {
        "bert" => " (WordPiece)",
        "t5" => " (Unigram)",
        "rwkv" => " (RWKV)",
        "" => " (tokenizer.ggml.model is missing)",
        _ => "",
    };
    format!("tokenizer model `{model}`{known_as}")
}
