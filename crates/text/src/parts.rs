//! What every tokenizer is made of, wherever it came from: a `tokenizer.json` and the few facts beside it.
//!
//! GGUF and Hugging Face files are both turned into [`Parts`]; the bundle is [`Parts`] written as JSON. So one path
//! builds all tokenizers, and what goes over the wire is complete by construction.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::TextError;
use crate::table::{TokenEntry, TokenTable};
use crate::vocabulary::{AddedToken, Vocabulary};

const BUNDLE_FORMAT: &str = "foretoken-tokenizer/1";
/// A larger bundle is refused unread; the largest tokenizers known are below 20 MiB.
const MAX_BUNDLE_BYTES: usize = 64 << 20;

/// Names that end an answer in the supported families, whatever the files declare: models emit them also where the
/// declared EOS is another one.
const END_NAMES: [&str; 5] =
    ["<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>"];

/// Everything that makes a tokenizer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Parts {
    /// Names this layout, so that a later one is refused instead of misread.
    format: String,
    /// Whether a text of its own starts with BOS.
    pub(crate) add_bos: bool,
    pub(crate) bos: Option<u32>,
    /// The EOS the model declares; its text is `eos_token` in the chat template.
    pub(crate) eos: Option<u32>,
    /// All ids that end an answer.
    pub(crate) ends: BTreeSet<u32>,
    pub(crate) chat_template: Option<String>,
    /// The whole `tokenizer.json`, as it was given.
    pub(crate) tokenizer: Box<RawValue>,
}

impl Parts {
    /// Parts without any facts beside the `tokenizer.json`.
    pub(crate) fn new(tokenizer: Box<RawValue>) -> Self {
        Self {
            format: BUNDLE_FORMAT.to_owned(),
            add_bos: false,
            bos: None,
            eos: None,
            ends: BTreeSet::new(),
            chat_template: None,
            tokenizer,
        }
    }

    pub(crate) fn from_bundle(bytes: &[u8]) -> Result<Self, TextError> {
        let bundle_error = |detail| TextError::Bundle { detail };
        if bytes.len() > MAX_BUNDLE_BYTES {
            let detail = format!("{} bytes exceed the limit of {MAX_BUNDLE_BYTES}", bytes.len());
            return Err(bundle_error(detail));
        }
        let parts: Self = serde_json::from_slice(bytes).map_err(|error| bundle_error(error.to_string()))?;
        if parts.format != BUNDLE_FORMAT {
            let detail =
                format!("format `{}` is not `{BUNDLE_FORMAT}`; use services of one version", parts.format);
            return Err(bundle_error(detail));
        }
        Ok(parts)
    }

    pub(crate) fn to_bundle(&self) -> Vec<u8> {
        // Strings, numbers and a value that was parsed before: writing them into memory cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Completes the ids that end an answer: the declared EOS, and the names every supported family uses.
    pub(crate) fn complete_ends(&mut self, vocabulary: &Vocabulary) {
        self.ends.extend(self.eos);
        self.ends.extend(END_NAMES.iter().filter_map(|name| vocabulary.ids.get(*name)));
    }

    /// Every id that begins or ends a text.
    fn marks(&self) -> impl Iterator<Item = u32> + '_ {
        self.bos.into_iter().chain(self.eos).chain(self.ends.iter().copied())
    }

    /// The byte table; BOS and the ends are special whether or not their file says so.
    pub(crate) fn table(&self, vocabulary: &Vocabulary) -> Result<TokenTable, TextError> {
        let known: HashSet<u32> = vocabulary.ids.values().copied().collect();
        if let Some(id) = self.marks().find(|id| !known.contains(id)) {
            return Err(TextError::vocabulary(format!(
                "bos, eos or end-of-turn id {id} is not in the vocabulary"
            )));
        }
        let added: HashMap<&str, &AddedToken> =
            vocabulary.added.iter().map(|token| (token.content.as_str(), token)).collect();
        let marks: HashSet<u32> = self.marks().collect();
        let kind = vocabulary.kind;
        let mut entries = Vec::with_capacity(vocabulary.ids.len());
        for (text, &id) in &vocabulary.ids {
            if is_padding(text, id) {
                continue;
            }
            let added = added.get(text.as_str());
            let special = added.is_some_and(|token| token.special) || marks.contains(&id);
            let mut bytes = Vec::new();
            if added.is_some_and(|token| token.special || kind.added_are_literal()) {
                bytes.extend_from_slice(text.as_bytes());
            } else {
                kind.push_bytes(text, &mut bytes);
            }
            entries.push(TokenEntry { id, bytes, special });
        }
        TokenTable::new(entries)
    }
}

/// Converters fill the rows of a padded vocabulary with names like `[PAD151700]`; no text ever uses them.
pub(crate) fn is_padding(text: &str, id: u32) -> bool {
    let number = text.strip_prefix("[PAD").and_then(|rest| rest.strip_suffix(']'));
    number.is_some_and(|number| number.parse() == Ok(id))
}
