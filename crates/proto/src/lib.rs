//! Generated protocol code, its conversions to the engine's types, and the error table.
//!
//! [`v1`] is what `proto/foretoken/v1` compiles to. Services translate with [`convert`] at their border
//! and nowhere else; [`error`] makes every `Status` that leaves a service.

pub mod convert;
pub mod error;

/// The messages and services of `foretoken.v1`.
#[allow(missing_docs, unreachable_pub, missing_debug_implementations, clippy::all)]
pub mod v1 {
    tonic::include_proto!("foretoken.v1");
}

/// Encoded `FileDescriptorSet` of `foretoken.v1`, for reflection.
pub const DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("foretoken_descriptor");

/// Version of the protocol that this build speaks. It rises with every field that p depends on: a verifier that does not
/// know one would ignore it in silence.
pub const PROTOCOL_VERSION: u32 = 2;

/// Service names as gRPC health knows them.
pub mod service_name {
    /// The orchestrator.
    pub const ORCHESTRATOR: &str = "foretoken.v1.Orchestrator";
    /// The target-verifier.
    pub const TARGET_VERIFIER: &str = "foretoken.v1.TargetVerifier";
    /// The draft-worker.
    pub const DRAFT_WORKER: &str = "foretoken.v1.DraftWorker";
}
