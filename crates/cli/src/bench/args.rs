//! Arguments of `foretoken bench`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueEnum};
use foretoken_model::Precision;

use crate::catalogue::DEFAULT_TARGET;

/// Arguments of `foretoken bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What is measured
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// What is measured.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// Time one pass over m rows, T(m), against the memory's speed
    Pass(PassArgs),
    /// Compare drafters without weights on a file of prompts: tokens a round, and how often guesses stand
    Drafters(DraftersArgs),
}

/// Arguments of `foretoken bench drafters`.
#[derive(Args, Debug)]
#[command(
    after_help = "Greedy text does not depend on who drafts. So every prompt is answered once, many at a time, and each drafter is \
        replayed against the answers: look-up in the text, the table, and both mixed.\n\n\
        Examples:\n  \
        foretoken bench drafters --prompts questions.jsonl\n  \
        foretoken bench drafters --prompts questions.txt --ngram-table my.ngram --answers kept.answers --json"
)]
pub(crate) struct DraftersArgs {
    /// Prompts, one a line, plain or JSON with `prompt` or `turns` and perhaps a `category`
    #[arg(long, value_name = "FILE")]
    pub(super) prompts: PathBuf,

    /// The model that answers: a name (see `foretoken models`), a GGUF file, or a folder with safetensors
    #[arg(long, value_name = "MODEL", default_value = DEFAULT_TARGET, env = "FORETOKEN_TARGET")]
    pub(super) model: String,

    /// The table, a file or the name of the model whose table comes with this program [default: the model's, if it has
    /// one]
    #[arg(long, value_name = "FILE|NAME", env = "FORETOKEN_NGRAM_TABLE")]
    pub(super) ngram_table: Option<String>,

    /// Tokens drafted per round
    #[arg(long, value_name = "N", default_value = "4", value_parser = count::<1>())]
    pub(super) draft_len: usize,

    /// Longest answer, in tokens
    #[arg(long, short = 'n', value_name = "N", default_value = "64", value_parser = count::<2>())]
    pub(super) max_tokens: usize,

    /// Take prompts as they are, without the model's chat template
    #[arg(long)]
    pub(super) raw: bool,

    /// Keep the answers in this file, and use those it holds
    #[arg(long, value_name = "FILE")]
    pub(super) answers: Option<PathBuf>,

    /// Answers in work at once
    #[arg(long, value_name = "N", default_value = "16", value_parser = count::<1>())]
    pub(super) sessions: usize,

    /// Threads of a pass [default: all processors]
    #[arg(long, value_name = "N", env = "FORETOKEN_THREADS")]
    pub(super) threads: Option<usize>,

    /// Print a JSON array
    #[arg(long)]
    pub(super) json: bool,
}

/// Arguments of `foretoken bench pass`.
#[derive(Args, Debug)]
#[command(
    after_help = "T(m) is the time of one pass that feeds m tokens behind a filled cache and returns the logits of all of them. \
        What speculation can win is decided by T(m)/T(1). The bound is the time in which the memory alone delivers the bytes \
        that a pass reads (weights and cache), measured in the same run with the same threads.\n\n\
        Examples:\n  \
        foretoken bench pass\n  \
        foretoken bench pass --model ./big.gguf --context 512 --threads 8 --json\n  \
        foretoken bench pass --context 0 --rows 512 --logits last    # a prefill"
)]
pub(crate) struct PassArgs {
    /// A name (see `foretoken models`), a GGUF file, or a folder with safetensors
    #[arg(long, value_name = "MODEL", default_value = DEFAULT_TARGET, env = "FORETOKEN_TARGET")]
    pub(super) model: String,

    /// Positions in the cache before a pass, comma-separated
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "128,512,2048", value_parser = count::<0>())]
    pub(super) context: Vec<usize>,

    /// Threads of a pass, comma-separated [default: 1 and all]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = count::<1>())]
    pub(super) threads: Vec<usize>,

    /// Rows of a pass, comma-separated
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,2,3,4,5,6,8,12,16,24,32",
        value_parser = count::<1>(),
    )]
    pub(super) rows: Vec<usize>,

    /// Which rows of a pass give logits
    #[arg(long, value_name = "ROWS", default_value = "all")]
    pub(super) logits: Logits,

    /// How keys and values are kept: f32 or f16
    #[arg(long, env = "FORETOKEN_KV_TYPE", value_name = "TYPE", default_value_t = Precision::F32)]
    pub(super) kv_type: Precision,

    /// Passes timed of each kind; their median is told
    #[arg(long, value_name = "N", default_value = "15", value_parser = count::<1>())]
    pub(super) repeats: usize,

    /// Print JSON: an object, or an array of them for several contexts or thread counts
    #[arg(long)]
    pub(super) json: bool,
}

/// Which rows of a pass give logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Logits {
    /// All of them, as when a block is verified
    All,
    /// The last one, as when a prompt is read
    Last,
}

/// A count from `LEAST` up.
fn count<const LEAST: u64>() -> impl TypedValueParser<Value = usize> {
    // Far above every use, and far from overflow in sums of two.
    clap::value_parser!(u64).range(LEAST..=1 << 24).map(|value| value as usize)
}
