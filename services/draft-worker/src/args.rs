//! The flags of a draft-worker.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use foretoken_engine::ngram::NgramConfig;
use foretoken_telemetry::TelemetryArgs;
use foretoken_transport::ListenArgs;
use foretoken_worker::ModelArgs;

/// Everything a draft-worker is told.
#[derive(clap::Args, Debug, Clone)]
pub struct Args {
    /// The draft model: a .gguf file, a .safetensors file or a folder with the target's tokenizer, or `ngram` for drafting without weights
    #[arg(long, env = "FORETOKEN_MODEL", value_name = "PATH|ngram", default_value = "ngram")]
    pub model: DraftModel,

    /// Longest run of tokens that n-gram look-up searches for
    #[arg(long, env = "FORETOKEN_NGRAM_MAX_MATCH", value_name = "TOKENS", default_value_t = NgramConfig::default().max_match)]
    pub ngram_max_match: usize,

    /// Shortest run of tokens whose earlier occurrence is a repetition; a shorter one only weighs beside a table
    #[arg(long, env = "FORETOKEN_NGRAM_MIN_MATCH", value_name = "TOKENS", default_value_t = NgramConfig::default().min_match)]
    pub ngram_min_match: usize,

    /// An n-gram table for what the text itself does not show: a file made by `foretoken ngram build`, or the name of the model
    /// whose table comes with this program
    #[arg(long, env = "FORETOKEN_NGRAM_TABLE", value_name = "FILE|NAME")]
    pub ngram_table: Option<String>,

    /// Likeliest tokens in a proposal: more accept better and cost more bytes
    #[arg(long, env = "FORETOKEN_LATTICE_K", value_name = "TOKENS", default_value_t = 32)]
    pub lattice_k: u32,

    /// Sum of a proposal's integers: finer proposals accept better and cost more bytes
    #[arg(long, env = "FORETOKEN_LATTICE_N", value_name = "N", default_value_t = 4096)]
    pub lattice_n: u32,

    /// How a model is loaded.
    #[command(flatten)]
    pub model_args: ModelArgs,

    /// Where and how it serves.
    #[command(flatten)]
    pub listen: ListenArgs,

    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// What drafts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftModel {
    /// Look-up in the text and a table of n-grams, without weights.
    Ngram,
    /// A model.
    Path(PathBuf),
}

impl FromStr for DraftModel {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == "ngram" { Self::Ngram } else { Self::Path(text.into()) })
    }
}

impl std::fmt::Display for DraftModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ngram => f.write_str("ngram"),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}
