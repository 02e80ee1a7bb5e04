//! Decoders of the Llama, Qwen2, Qwen3 and Gemma 3 families, from GGUF and `safetensors`, behind the
//! runtime's [`Decoder`] trait.
//!
//! [`load`] reads a model and its tokenizer and checks everything that could make its answers
//! wrong; a [`ModelDecoder`] runs ragged passes on the engine made for the device. On the CPU that is
//! the fused one (`fused/`, over the kernels of `foretoken-kernels`); beside it stands the reference
//! (`decoder.rs` over `compute/`, with the sessions' rows in `cache.rs`): plain arithmetic, one dot
//! product an output, which the others are tested against. `graph/` is candle's tensors, for GPUs.
//!
//! **Invariant:** on the CPU the logits of a row do not depend, not by one bit, on how its session's
//! tokens were split into passes nor on who shares them: whatever is summed is summed in one order.
//!
//! Not here: sampling, sessions beyond a cache slot, queues, downloads, gRPC.
//!
//! [`Decoder`]: foretoken_runtime::decoder::Decoder

mod cache;
mod compute;
mod config;
mod decoder;
mod device;
mod engine;
mod fused;
mod graph;
mod load;
mod slots;
mod weights;

pub use decoder::LlamaDecoder;
pub use device::{Device, DeviceError};
pub use engine::{Engine, ModelDecoder};
pub use foretoken_kernels::{Precision, Tier};
pub use fused::FusedDecoder;
pub use graph::GraphDecoder;
pub use load::{LoadError, LoadOptions, LoadStage, LoadStep, Loaded, load};
