//! The model families, by the names that files of both formats give them.

use crate::compute::rope::Pairing;

/// A family of models. One architecture, with differences that are named here and nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Llama 2 and 3, `SmolLM2`, `TinyLlama`, Mistral.
    Llama,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3, the dense models.
    Qwen3,
}

impl Family {
    /// By GGUF's `general.architecture`. Mistral's files say `llama`.
    pub(super) fn of_gguf(architecture: &str) -> Option<Self> {
        match architecture {
            "llama" => Some(Self::Llama),
            "qwen2" => Some(Self::Qwen2),
            "qwen3" => Some(Self::Qwen3),
            _ => None,
        }
    }

    /// By `config.json`'s `model_type`.
    pub(super) fn of_hf(model_type: &str) -> Option<Self> {
        match model_type {
            "llama" | "mistral" => Some(Self::Llama),
            "qwen2" => Some(Self::Qwen2),
            "qwen3" => Some(Self::Qwen3),
            _ => None,
        }
    }

    /// Whether query, key and value projections have biases, which no file states.
    pub(super) fn biases(self) -> bool {
        self == Self::Qwen2
    }

    /// Whether query and key heads are normed.
    pub(super) fn qk_norm(self) -> bool {
        self == Self::Qwen3
    }

    /// Which components are rotated together in a GGUF file: converters permute the query and key
    /// rows of Llama, and leave those of the others as `safetensors` files have them.
    pub(super) fn gguf_pairing(self) -> Pairing {
        match self {
            Self::Llama => Pairing::Neighbours,
            Self::Qwen2 | Self::Qwen3 => Pairing::Halves,
        }
    }

    /// Head size where `config.json` is silent, if it is not hidden size over heads.
    pub(super) fn hf_head_dim(self) -> Option<usize> {
        (self == Self::Qwen3).then_some(128)
    }

    /// Whether a `sliding_window` in `config.json` means one unless `use_sliding_window` says no.
    /// Qwen's files state the width of a window that is off unless switched on.
    pub(super) fn window_by_width(self) -> bool {
        self == Self::Llama
    }
}
