//! The tokens of a `tokenizer.json`, and the refusal of files whose tokens are not plain bytes.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::TextError;
use crate::kind::{Kind, Steps};

const TOKENIZER_JSON: &str = "tokenizer.json";

/// The tokens by their text as the file writes it.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) kind: Kind,
    pub(crate) ids: HashMap<String, u32>,
    pub(crate) added: Vec<AddedToken>,
}

/// A token that is found in the text before words are cut.
#[derive(Debug, Deserialize)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) special: bool,
}

#[derive(Deserialize)]
struct TokenizerFile<'a> {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    decoder: Option<Value>,
    #[serde(borrow)]
    model: ModelSection<'a>,
}

#[derive(Deserialize)]
struct ModelSection<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    byte_fallback: Option<bool>,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(borrow)]
    vocab: Option<&'a RawValue>,
}

impl Vocabulary {
    /// Reads the tokens and refuses, by name, every kind of tokenizer whose tokens are not plain bytes.
    pub(crate) fn read(json: &RawValue) -> Result<Self, TextError> {
        let file: TokenizerFile<'_> =
            serde_json::from_str(json.get()).map_err(|error| TextError::file(TOKENIZER_JSON, error))?;
        let kind = file.kind()?;
        let vocab =
            file.model.vocab.ok_or_else(|| TextError::file(TOKENIZER_JSON, "model.vocab is missing"))?;
        let mut ids: HashMap<String, u32> =
            serde_json::from_str(vocab.get()).map_err(|error| TextError::file(TOKENIZER_JSON, error))?;
        for token in &file.added_tokens {
            if let Some(before) = ids.insert(token.content.clone(), token.id)
                && before != token.id
            {
                let detail = format!("added token `{}` has id {} and id {before}", token.content, token.id);
                return Err(TextError::vocabulary(detail));
            }
        }
        Ok(Self { kind, ids, added: file.added_tokens })
    }
}

impl TokenizerFile<'_> {
    fn kind(&self) -> Result<Kind, TextError> {
        let model = &self.model;
        let refuse = |kind: String| Err(TextError::UnsupportedTokenizer { kind });
        if let Some(kind) = model.kind.as_deref().filter(|kind| *kind != "BPE") {
            return refuse(format!("tokenizer.json with model `{kind}`"));
        }
        if model.dropout.is_some_and(|dropout| dropout > 0.0) {
            return refuse("tokenizer.json with BPE dropout (random token ids)".to_owned());
        }
        let marks_words = |mark: &Option<String>| mark.as_deref().is_some_and(|mark| !mark.is_empty());
        if marks_words(&model.continuing_subword_prefix) || marks_words(&model.end_of_word_suffix) {
            return refuse("tokenizer.json with subword prefixes or suffixes".to_owned());
        }
        Kind::of(Steps {
            normalizer: self.normalizer.as_ref(),
            pre_tokenizer: self.pre_tokenizer.as_ref(),
            decoder: self.decoder.as_ref(),
            byte_fallback: model.byte_fallback == Some(true),
        })
    }
}
