//! The flags of a target-verifier.

use std::path::PathBuf;

use foretoken_telemetry::TelemetryArgs;
use foretoken_transport::ListenArgs;
use foretoken_worker::ModelArgs;

/// Everything a target-verifier is told.
#[derive(clap::Args, Debug, Clone)]
pub struct Args {
    /// The target model: a .gguf file, a .safetensors file with config.json and tokenizer.json beside it, or a folder of these
    #[arg(long, env = "FORETOKEN_MODEL", value_name = "PATH")]
    pub model: PathBuf,

    /// How the model is loaded.
    #[command(flatten)]
    pub model_args: ModelArgs,

    /// Where and how it serves.
    #[command(flatten)]
    pub listen: ListenArgs,

    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}
