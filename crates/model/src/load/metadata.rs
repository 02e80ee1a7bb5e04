//! Typed access to the metadata of a GGUF file, and the vocabulary in it; errors name the key.

use super::LoadError;
use super::container::Value;
use foretoken_text::GgufVocab;
use std::collections::BTreeMap;

/// Values by key.
pub(super) struct Metadata(pub(super) BTreeMap<String, Value>);

impl Metadata {
    /// Moves a list of texts out; absent is empty.
    fn texts(&mut self, key: &str) -> Result<Vec<String>, LoadError> {
        match self.0.remove(key) {
            None => Ok(Vec::new()),
            Some(Value::Texts(texts)) => Ok(texts),
            // Writers type an empty list as they like.
            Some(Value::Integers(list)) if list.is_empty() => Ok(Vec::new()),
            Some(_) => Err(LoadError::field(key, "is not a list of texts")),
        }
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, LoadError> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(LoadError::field(key, format!("is {other:?}, not a boolean"))),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<&str, LoadError> {
        match self.0.get(key) {
            Some(Value::Text(text)) => Ok(text),
            Some(other) => Err(LoadError::field(key, format!("is {other:?}, not a text"))),
            None => Err(LoadError::field(key, "is missing")),
        }
    }

    pub(super) fn size(&self, key: &str) -> Result<usize, LoadError> {
        self.size_or_none(key)?.ok_or_else(|| LoadError::field(key, "is missing"))
    }

    pub(super) fn size_or_none(&self, key: &str) -> Result<Option<usize>, LoadError> {
        let size = match self.0.get(key) {
            None => return Ok(None),
            Some(Value::Unsigned(v)) => usize::try_from(*v).ok(),
            Some(Value::Signed(v)) => usize::try_from(*v).ok(),
            Some(_) => None,
        };
        size.map(Some).ok_or_else(|| LoadError::field(key, "is not a whole number from 0"))
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Float(v)) => Ok(Some(*v)),
            Some(Value::Unsigned(v)) => Ok(Some(*v as f64)),
            Some(Value::Signed(v)) => Ok(Some(*v as f64)),
            Some(_) => Err(LoadError::field(key, "is not a number")),
        }
    }

    pub(super) fn required_number(&self, key: &str) -> Result<f64, LoadError> {
        self.number(key)?.ok_or_else(|| LoadError::field(key, "is missing"))
    }

    /// The tokenizer's part; its long lists are moved out.
    pub(super) fn vocabulary(&mut self) -> Result<GgufVocab, LoadError> {
        let id = |key: &str| -> Result<Option<u32>, LoadError> {
            let Some(id) = self.size_or_none(key)? else { return Ok(None) };
            match u32::try_from(id) {
                // The writer's "none".
                Ok(u32::MAX) => Ok(None),
                Ok(id) => Ok(Some(id)),
                Err(_) => Err(LoadError::field(key, format!("is {id}, which is no token id"))),
            }
        };
        let (bos, eos) = (id("tokenizer.ggml.bos_token_id")?, id("tokenizer.ggml.eos_token_id")?);
        let eot = id("tokenizer.ggml.eot_token_id")?;
        let (unknown, padding) =
            (id("tokenizer.ggml.unknown_token_id")?, id("tokenizer.ggml.padding_token_id")?);
        let add_bos = self.boolean("tokenizer.ggml.add_bos_token")?;
        let add_space_prefix = self.boolean("tokenizer.ggml.add_space_prefix")?;
        let optional_text = |key: &str| self.0.contains_key(key).then(|| self.text(key)).transpose();
        let model = self.text("tokenizer.ggml.model")?.to_owned();
        let pre = optional_text("tokenizer.ggml.pre")?.map(str::to_owned);
        let chat_template = optional_text("tokenizer.chat_template")?.map(str::to_owned);
        let token_types = match self.0.remove("tokenizer.ggml.token_type") {
            None => Vec::new(),
            Some(Value::Integers(types)) => {
                types.into_iter().map(|t| i32::try_from(t).unwrap_or(0)).collect()
            }
            Some(_) => {
                return Err(LoadError::field("tokenizer.ggml.token_type", "is not a list of integers"));
            }
        };
        let scores = match self.0.remove("tokenizer.ggml.scores") {
            None => Vec::new(),
            Some(Value::Floats(scores)) => scores.into_iter().map(|score| score as f32).collect(),
            Some(Value::Integers(list)) if list.is_empty() => Vec::new(),
            Some(_) => return Err(LoadError::field("tokenizer.ggml.scores", "is not a list of numbers")),
        };
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let merges = self.texts("tokenizer.ggml.merges")?;
        Ok(GgufVocab {
            model,
            pre,
            tokens,
            scores,
            token_types,
            merges,
            bos,
            eos,
            eot,
            unknown,
            padding,
            add_bos,
            add_space_prefix,
            chat_template,
        })
    }
}
