//! The one error type of this crate: what was wrong, with the value and the limit, and what to do about it.

/// Why a tokenizer, a chat template or a set of stop strings was refused, or why using one failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The kind of tokenizer is known, but not built here.
    #[error("{kind} is not supported yet; byte-level BPE (`gpt2`) and SentencePiece BPE (`llama`) are")]
    UnsupportedTokenizer {
        /// What the file holds, by the name it gives itself.
        kind: String,
    },
    /// The GGUF file names a way of cutting text into words that is not built here.
    #[error("pre-tokenizer `{name}` (tokenizer.ggml.pre) is not supported yet; supported are {supported}")]
    UnsupportedPreTokenizer {
        /// The name in the file.
        name: String,
        /// The names that work, for the reader.
        supported: String,
    },
    /// The vocabulary contradicts itself or exceeds a limit.
    #[error("vocabulary: {detail}")]
    Vocabulary {
        /// Which entry, which value, which limit.
        detail: String,
    },
    /// A file is not what it should be.
    #[error("{file}: {detail}")]
    File {
        /// The file's name.
        file: &'static str,
        /// What could not be read.
        detail: String,
    },
    /// A bundle was made by another version, or is not a bundle.
    #[error("tokenizer bundle: {detail}")]
    Bundle {
        /// What could not be read.
        detail: String,
    },
    /// Text could not be turned into tokens.
    #[error("encoding failed: {detail}")]
    Encode {
        /// What the tokenizer said.
        detail: String,
    },
    /// The model's chat template does not parse, refused the messages, or ran past its bound.
    #[error("chat template: {detail}")]
    Chat {
        /// What the template engine or the template itself said.
        detail: String,
    },
    /// A list of stop strings breaks a limit.
    #[error("stop: {detail}")]
    Stop {
        /// Which stop string, which limit.
        detail: String,
    },
}

impl TextError {
    pub(crate) fn vocabulary(detail: impl Into<String>) -> Self {
        Self::Vocabulary { detail: detail.into() }
    }

    pub(crate) fn file(file: &'static str, detail: impl std::fmt::Display) -> Self {
        Self::File { file, detail: detail.to_string() }
    }

    pub(crate) fn chat(detail: impl Into<String>) -> Self {
        Self::Chat { detail: detail.into() }
    }
}
