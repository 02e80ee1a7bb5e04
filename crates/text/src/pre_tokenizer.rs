//! How text is cut into words before merging, per model family, by the name a GGUF file gives (`tokenizer.ggml.pre`).
//!
//! A GGUF file holds only the name; the rule behind it is public knowledge of each family and is written down here in the
//! form `tokenizer.json` uses. A wrong rule would give other ids without any error, so unknown names are refused.

use serde_json::{Value, json};

use crate::error::TextError;

/// Llama 3: contractions in any case, a word with at most one leading sign, digits in groups of up to three.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2 and 3: the same with single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A family's way of preparing text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreTokenizer {
    Gpt2,
    SmolLm,
    Llama3,
    Qwen2,
}

/// The names GGUF files use. One family has several, by the converter's age.
const NAMES: [(&str, PreTokenizer); 7] = [
    ("gpt-2", PreTokenizer::Gpt2),
    ("smollm", PreTokenizer::SmolLm),
    ("llama-bpe", PreTokenizer::Llama3),
    ("llama3", PreTokenizer::Llama3),
    ("llama-v3", PreTokenizer::Llama3),
    ("qwen2", PreTokenizer::Qwen2),
    ("deepseek-r1-qwen", PreTokenizer::Qwen2),
];

impl PreTokenizer {
    /// The rule behind a name.
    pub(crate) fn from_name(name: Option<&str>) -> Result<Self, TextError> {
        let found = NAMES.iter().find(|(known, _)| Some(*known) == name);
        found.map(|(_, rule)| *rule).ok_or_else(|| TextError::UnsupportedPreTokenizer {
            name: name.unwrap_or("(none given)").to_owned(),
            supported: NAMES.map(|(known, _)| known).join(", "),
        })
    }

    /// `pre_tokenizer` of a `tokenizer.json`.
    pub(crate) fn pre_tokenizer(self) -> Value {
        match self {
            Self::Gpt2 => byte_level(true),
            Self::SmolLm => {
                sequence(&[json!({"type": "Digits", "individual_digits": true}), byte_level(true)])
            }
            Self::Llama3 => sequence(&[split(LLAMA3), byte_level(false)]),
            Self::Qwen2 => sequence(&[split(QWEN2), byte_level(false)]),
        }
    }

    /// `normalizer` of a `tokenizer.json`.
    pub(crate) fn normalizer(self) -> Value {
        match self {
            Self::Qwen2 => json!({"type": "NFC"}),
            Self::Gpt2 | Self::SmolLm | Self::Llama3 => Value::Null,
        }
    }

    /// Whether a word that is a token as a whole is taken as that token, whatever the merges would make of it.
    pub(crate) fn ignores_merges(self) -> bool {
        self == Self::Llama3
    }

    /// Whether a BOS token starts the text when the file does not say.
    pub(crate) fn adds_bos_by_default(self) -> bool {
        self == Self::Llama3
    }
}

fn sequence(steps: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": steps})
}

fn split(regex: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false})
}

/// `use_regex` cuts by GPT-2's rule; without it the words are already cut and only bytes are mapped to characters.
fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokenizers::{
        NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizedString,
        PreTokenizer as _, PreTokenizerWrapper,
    };

    use super::*;

    #[derive(serde::Deserialize)]
    struct Golden {
        cases: Vec<Case>,
    }

    #[derive(serde::Deserialize)]
    struct Case {
        text: String,
        words: Vec<String>,
    }

    #[test]
    fn words_are_those_python_cuts() {
        let goldens = include_str!("../tests/data/goldens.json");
        let goldens: BTreeMap<String, Golden> = serde_json::from_str(goldens).unwrap();
        assert_eq!(goldens.keys().collect::<Vec<_>>(), ["gpt-2", "llama-bpe", "qwen2", "smollm"]);
        for (family, golden) in goldens {
            let rule = PreTokenizer::from_name(Some(&family)).unwrap();
            let cut: PreTokenizerWrapper = serde_json::from_value(rule.pre_tokenizer()).unwrap();
            let normalizer: Option<NormalizerWrapper> = serde_json::from_value(rule.normalizer()).unwrap();
            for case in golden.cases {
                let mut text = NormalizedString::from(case.text.as_str());
                if let Some(normalizer) = &normalizer {
                    normalizer.normalize(&mut text).unwrap();
                }
                let mut words = PreTokenizedString::from(text);
                cut.pre_tokenize(&mut words).unwrap();
                let splits = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
                let words: Vec<&str> = splits.iter().map(|(word, _, _)| *word).collect();
                assert_eq!(words, case.words, "{family}: {:?}", case.text);
            }
        }
    }

    #[test]
    fn names_of_one_family_share_its_rule() {
        for name in ["llama3", "llama-v3", "llama-bpe"] {
            assert_eq!(PreTokenizer::from_name(Some(name)), Ok(PreTokenizer::Llama3));
        }
        assert_eq!(PreTokenizer::from_name(Some("deepseek-r1-qwen")), Ok(PreTokenizer::Qwen2));
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        let refused = |name| PreTokenizer::from_name(name).unwrap_err().to_string();
        assert!(
            refused(Some("tekken"))
                .starts_with("pre-tokenizer `tekken` (tokenizer.ggml.pre) is not supported")
        );
        assert!(refused(Some("default")).contains("supported are gpt-2, smollm, llama-bpe"));
        assert!(refused(None).contains("`(none given)`"));
    }
}
