//! The model families, by the names that files of both formats give them.

use crate::compute::rope::Pairing;
use foretoken_kernels::Gate;

/// A family of models. One architecture, with differences that are named here and nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Llama 2 and 3, `SmolLM2`, `TinyLlama`, Mistral.
    Llama,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3, the dense models.
    Qwen3,
    /// Gemma 3, the text models.
    Gemma3,
}

/// What files call the families, for who has another one.
pub(super) const GGUF_NAMES: &str = "\"llama\", \"qwen2\", \"qwen3\" and \"gemma3\"";
/// The same in `config.json`.
pub(super) const HF_NAMES: &str = "\"llama\", \"mistral\", \"qwen2\", \"qwen3\" and \"gemma3_text\"";

impl Family {
    /// By GGUF's `general.architecture`. Mistral's files say `llama`.
    pub(super) fn of_gguf(architecture: &str) -> Option<Self> {
        match architecture {
            "llama" => Some(Self::Llama),
            "qwen2" => Some(Self::Qwen2),
            "qwen3" => Some(Self::Qwen3),
            "gemma3" => Some(Self::Gemma3),
            _ => None,
        }
    }

    /// By `config.json`'s `model_type`.
    pub(super) fn of_hf(model_type: &str) -> Option<Self> {
        match model_type {
            "llama" | "mistral" => Some(Self::Llama),
            "qwen2" => Some(Self::Qwen2),
            "qwen3" => Some(Self::Qwen3),
            "gemma3_text" => Some(Self::Gemma3),
            _ => None,
        }
    }

    /// Whether query, key and value projections have biases, which no file states.
    pub(super) fn biases(self) -> bool {
        self == Self::Qwen2
    }

    /// Whether query and key heads are normed.
    pub(super) fn qk_norm(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Gemma3)
    }

    /// Whether what attention and feed-forward give is normed before it is added.
    pub(super) fn post_norms(self) -> bool {
        self == Self::Gemma3
    }

    /// What the gate of a feed-forward layer is put through, and what `config.json` calls that.
    pub(super) fn gate(self) -> (Gate, &'static str) {
        match self {
            Self::Llama | Self::Qwen2 | Self::Qwen3 => (Gate::Silu, "silu"),
            Self::Gemma3 => (Gate::GeluTanh, "gelu_pytorch_tanh"),
        }
    }

    /// What embeddings are multiplied by.
    pub(super) fn embedding_scale(self, hidden: usize) -> f32 {
        if self == Self::Gemma3 { (hidden as f32).sqrt() } else { 1.0 }
    }

    /// What `safetensors` files leave out of the weights of norms; GGUF files hold them whole.
    pub(super) fn hf_norm_offset(self) -> f32 {
        if self == Self::Gemma3 { 1.0 } else { 0.0 }
    }

    /// Of so many layers the last one sees all positions, if files name a window and no pattern.
    pub(super) fn full_every(self) -> usize {
        if self == Self::Gemma3 { 6 } else { 0 }
    }

    /// Whether the embedding is the head where `config.json` is silent.
    pub(super) fn hf_tied(self) -> bool {
        self == Self::Gemma3
    }

    /// Which components are rotated together in a GGUF file: converters permute the query and key
    /// rows of Llama, and leave those of the others as `safetensors` files have them.
    pub(super) fn gguf_pairing(self) -> Pairing {
        match self {
            Self::Llama => Pairing::Neighbours,
            Self::Qwen2 | Self::Qwen3 | Self::Gemma3 => Pairing::Halves,
        }
    }

    /// Head size where `config.json` is silent, if it is not hidden size over heads.
    pub(super) fn hf_head_dim(self) -> Option<usize> {
        match self {
            Self::Qwen3 => Some(128),
            Self::Gemma3 => Some(256),
            Self::Llama | Self::Qwen2 => None,
        }
    }

    /// Whether a `sliding_window` in `config.json` means one unless `use_sliding_window` says no.
    /// Qwen's files state the width of a window that is off unless switched on.
    pub(super) fn window_by_width(self) -> bool {
        self == Self::Llama
    }
}
