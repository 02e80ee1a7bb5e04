//! Decoders of the Llama, Qwen2 and Qwen3 families, from GGUF and `safetensors`, behind the runtime's
//! [`Decoder`] trait.
//!
//! [`load`] reads a model and its tokenizer and checks everything that could make its answers
//! wrong; [`LlamaDecoder`] runs ragged passes on the CPU. The way of a pass: `decoder.rs` (checks,
//! layers, head) over `compute/` (arithmetic on slices), with the sessions' rows in `cache.rs`.
//!
//! **Invariant:** the logits of a row do not depend, not by one bit, on how its session's tokens
//! were split into passes nor on who shares them. Hence no batched matrix kernel is used here: every
//! output is a dot product of one weight row and one input row, in one order.
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
mod graph;
mod load;
mod slots;
mod weights;

pub use decoder::LlamaDecoder;
pub use device::{Device, DeviceError};
pub use engine::{Engine, ModelDecoder};
pub use graph::GraphDecoder;
pub use load::{LoadError, LoadOptions, LoadStage, LoadStep, Loaded, load};
