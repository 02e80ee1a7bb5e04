//! The CPU's part of a transformer pass: packed linear layers, attention over paged keys and values,
//! and the row-wise operations between them.
//!
//! **Invariants.** Every reduction has one order, which depends on the row alone: not on how many rows
//! share a pass, on a row's place among them, nor on the threads. All tiers of instructions compute
//! the same bits, so a machine's age changes speed and nothing else.
//!
//! This is the workspace's only crate with `unsafe`. It is confined to the vector instructions (behind
//! tokens, `simd`), to memory and its large pages (`buffer`, `region`), to what threads of one job share
//! (`shared`, the pages of `kv`), and to the pool; kernels are safe code over those. The portable tier runs under Miri,
//! which must not vary sines on purpose, and all tiers run under the address sanitizer:
//!
//! ```text
//! MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-deterministic-floats" cargo +nightly miri test --lib
//! RUSTFLAGS=-Zsanitizer=address cargo +nightly test --lib --target x86_64-unknown-linux-gnu
//! ```
//!
//! Not here: files, models, sessions, sampling. The way of a pass is `foretoken-model`'s.

mod activations;
mod attention;
mod buffer;
mod kv;
mod matmul;
mod norm;
mod pack;
mod placement;
mod pool;
mod region;
mod rope;
mod shared;
mod simd;
mod stream;
mod tier;

pub use activations::Activations;
pub use attention::{Attention, HeadNorms, Span};
pub use kv::{Cache, CacheShape, PAGE, Precision};
pub use matmul::{Gate, Linear, Next, Source, Team};
pub use pack::{Format, PackError, Packed};
pub use pool::{Part, Pool};
pub use rope::Angles;
pub use stream::Stream;
pub use tier::Tier;
