//! Why a model could not be loaded.

use crate::engine::Engine;
use foretoken_kernels::Precision;
use std::path::{Path, PathBuf};

/// Why a model could not be loaded; says which file, tensor or field, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is cut short or is not what its name says.
    #[error("{} is damaged or not a model file: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, by field.
        problem: String,
    },
    /// The model has something that would silently be computed wrongly.
    #[error("unsupported model: {0}")]
    Unsupported(String),
    /// A hyperparameter is absent or cannot be right.
    #[error("field {field} {problem}")]
    Field {
        /// The field's name in the file.
        field: String,
        /// Its value and the limit.
        problem: String,
    },
    /// A tensor is absent.
    #[error("tensor {0} is missing from the file")]
    MissingTensor(String),
    /// A tensor is there but cannot be used.
    #[error("tensor {name} {problem}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The tokenizer could not be built.
    #[error("cannot use the model's tokenizer: {0}")]
    Tokenizer(#[from] foretoken_text::TextError),
    /// The tokenizer has tokens that the weights have no row for.
    #[error(
        "the tokenizer has {tokens} tokens and the embedding only {rows} rows; they belong to different models"
    )]
    Vocabulary {
        /// Tokens of the tokenizer.
        tokens: usize,
        /// Rows of the embedding.
        rows: usize,
    },
    /// The device cannot be used.
    #[error("device {device} {problem}")]
    Device {
        /// The device as it is written.
        device: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The engine cannot keep keys and values so.
    #[error(
        "keys and values as {kv_type} are kept by the fused engine only, and this model is run by {engine:?}; use f32"
    )]
    KvType {
        /// What was asked for.
        kv_type: Precision,
        /// The engine in use.
        engine: Engine,
    },
    /// A load option cannot be met.
    #[error("load option {option} is {value}: {problem}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: usize,
        /// The limit.
        problem: String,
    },
}

impl LoadError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn format(path: &Path, problem: impl Into<String>) -> Self {
        Self::Format { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { field: field.into(), problem: problem.into() }
    }

    pub(crate) fn tensor(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Tensor { name: name.into(), problem: problem.into() }
    }
}
