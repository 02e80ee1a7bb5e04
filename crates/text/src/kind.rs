//! The two kinds of BPE tokenizers: how their files write bytes, and how a `tokenizer.json` tells which it is.
//!
//! Both leave the way from text to ids to the `tokenizers` crate. The way back is ours, token by token, so a file whose
//! decoder does anything that a table of bytes cannot is refused by name.

use serde_json::{Value, json};

use crate::error::TextError;
use crate::{byte_level, sentencepiece};

/// How the tokens of a vocabulary are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Every byte is one printable character (GPT-2, Llama 3, Qwen).
    ByteLevel,
    /// A space is `▁`, and bytes that are in no token are tokens `<0x00>` to `<0xFF>` (Llama 2, Mistral, Gemma).
    SentencePiece {
        /// Whether a text is given a space in front before it is cut, which is no part of the text.
        prefixed: bool,
    },
}

/// The steps of a `tokenizer.json` that tell its kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps<'a> {
    pub(crate) normalizer: Option<&'a Value>,
    pub(crate) pre_tokenizer: Option<&'a Value>,
    pub(crate) decoder: Option<&'a Value>,
    pub(crate) byte_fallback: bool,
}

impl Kind {
    /// The kind of a file, or the name of what is none of both.
    pub(crate) fn of(steps: Steps<'_>) -> Result<Self, TextError> {
        if steps.byte_fallback {
            return sentencepiece_kind(steps.decoder);
        }
        let byte_level = |step: Option<&Value>| step.is_some_and(|step| names_type(step, "ByteLevel"));
        if byte_level(steps.pre_tokenizer) || byte_level(steps.normalizer) {
            return Ok(Self::ByteLevel);
        }
        Err(TextError::UnsupportedTokenizer {
            kind: "tokenizer.json without a ByteLevel step and without byte_fallback".to_owned(),
        })
    }

    /// Appends the bytes that a token stands for.
    pub(crate) fn push_bytes(self, token: &str, out: &mut Vec<u8>) {
        match self {
            Self::ByteLevel => byte_level::push_bytes(token, out),
            Self::SentencePiece { .. } => sentencepiece::push_bytes(token, out),
        }
    }

    /// Whether tokens that are found in the text as a whole are written as the text has them, not as other tokens are.
    pub(crate) fn added_are_literal(self) -> bool {
        self == Self::ByteLevel
    }

    /// Whether the first space of a whole text is none of its own.
    pub(crate) fn prefixed(self) -> bool {
        self == Self::SentencePiece { prefixed: true }
    }
}

/// The decoder of the SentencePiece kind: spaces, bytes, and the added space taken away where there is one.
pub(crate) fn sentencepiece_decoder(prefixed: bool) -> Value {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": sentencepiece::SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefixed {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps})
}

fn sentencepiece_kind(decoder: Option<&Value>) -> Result<Kind, TextError> {
    let known = |prefixed: &bool| decoder == Some(&sentencepiece_decoder(*prefixed));
    match [true, false].into_iter().find(known) {
        Some(prefixed) => Ok(Kind::SentencePiece { prefixed }),
        None => Err(TextError::UnsupportedTokenizer {
            kind: "tokenizer.json with byte_fallback and another decoder than Replace ▁, ByteFallback, Fuse, Strip"
                .to_owned(),
        }),
    }
}

/// Whether a step, or any step of a sequence, has this type.
fn names_type(step: &Value, wanted: &str) -> bool {
    match step {
        Value::Object(fields) => {
            fields.get("type").and_then(Value::as_str) == Some(wanted)
                || ["pretokenizers", "normalizers"].iter().any(|key| {
                    fields
                        .get(*key)
                        .and_then(Value::as_array)
                        .is_some_and(|s| s.iter().any(|s| names_type(s, wanted)))
                })
        }
        _ => false,
    }
}
