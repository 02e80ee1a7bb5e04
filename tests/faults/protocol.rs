//! The workers' conversations as a foreign client meets them: generated code, and bytes.

mod decode;
mod draft;
mod frames;
mod memory;
mod open;
pub(crate) mod stream;
mod verdict;
mod wire;
