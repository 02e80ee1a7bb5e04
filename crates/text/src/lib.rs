//! Text on one side, token ids on the other: tokenizers, chat templates, incremental detokenization, stop strings.
//!
//! A [`Tokenizer`] is built from the metadata of a GGUF file ([`GgufVocab`]), from Hugging Face files ([`HfFiles`]), or
//! from the bundle another process made of either ([`Tokenizer::to_bundle`]). Whatever it came from, it is the same
//! value behind: token ids, the raw bytes of every token, a fingerprint over both, and the chat template.
//!
//! Text flows out through a [`Detokenizer`] (bytes to characters, one token at a time) and a [`StopMatcher`] (holds back
//! what may become a stop string). Both give the same text however the tokens were grouped into blocks.
//!
//! What is not here: reading model files (values are handed over), downloads, async, tensors, sampling.

mod byte_level;
mod chat;
mod detokenizer;
mod error;
mod gguf;
mod hf;
mod jinja;
mod kind;
mod parts;
mod pre_tokenizer;
mod sentencepiece;
mod stop;
mod table;
mod tokenizer;
mod vocabulary;

pub use chat::{ChatMessage, ChatTemplate};
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use gguf::GgufVocab;
pub use hf::HfFiles;
pub use stop::{MAX_STOP_BYTES, MAX_STOPS, StopMatcher, StopStep};
pub use table::TokenDifference;
pub use tokenizer::Tokenizer;
