//! What draft-worker and target-verifier share.
//!
//! [`ModelArgs`] load a model into a runtime ([`Host`]); [`bridge()`] carries one session's frames and replies
//! between a gRPC stream and whatever answers them ([`WorkerSession`]), under a span of the session
//! ([`in_session_span`]) and one of each traced frame; [`open_problem`] makes a refused Open a status. Neither service's own messages are here.

mod args;
mod bridge;
mod frames;
mod host;
mod message;
mod metrics;
mod problem;
mod session;
mod span;
mod warm_up;

pub use args::ModelArgs;
pub use bridge::{ReplyStream, bridge, first_open};
pub use host::{Host, HostError};
pub use message::{Account, Outcome, WorkerFrame, WorkerReply};
pub use metrics::WorkerMetrics;
pub use problem::{check_tokenizer, open_problem};
pub use session::WorkerSession;
pub use span::{in_session_span, record_open};

/// Bytes of a tokenizer bundle sent in one message: well below gRPC's default limit of 4 MiB.
const TOKENIZER_CHUNK_BYTES: usize = 256 << 10;

/// A tokenizer bundle in parts.
pub fn tokenizer_chunks(bundle: &[u8]) -> Vec<Result<foretoken_proto::v1::TokenizerChunk, tonic::Status>> {
    bundle
        .chunks(TOKENIZER_CHUNK_BYTES)
        .map(|chunk| Ok(foretoken_proto::v1::TokenizerChunk { data: chunk.to_vec().into() }))
        .collect()
}
