//! Arguments of `foretoken ngram`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use crate::catalogue::DEFAULT_TARGET;

/// Arguments of `foretoken ngram`.
#[derive(Args, Debug)]
pub(crate) struct NgramArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: NgramCommand,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum NgramCommand {
    /// Count a table of n-grams, from texts or from the target's own answers
    Build(Box<BuildArgs>),
}

/// Arguments of `foretoken ngram build`.
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("source").required(true).multiple(true).args(["text", "generate"]),
    after_help = "A table fits every model with the tokenizer it was counted with, and guesses best for the model that wrote its \
        texts. Answers are kept beside the table, in FILE.answers: a command that was stopped goes on where it was, and a \
        larger --tokens adds to them.\n\n\
        Examples:\n  \
        foretoken ngram build --generate --tokens 500000 --out my.ngram\n  \
        foretoken ngram build --text logs.txt --text manual.txt --target ./model.gguf --out my.ngram\n  \
        foretoken generate --ngram-table my.ngram \"Hello\""
)]
pub(crate) struct BuildArgs {
    /// Where the table goes
    #[arg(long, short, value_name = "FILE")]
    pub(super) out: PathBuf,

    /// The model whose tokenizer it is for, and which answers: a name (see `foretoken models`), a GGUF file, or a folder
    /// with safetensors
    #[arg(long, value_name = "MODEL", default_value = DEFAULT_TARGET, env = "FORETOKEN_TARGET")]
    pub(super) target: String,

    /// Count this text; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(super) text: Vec<PathBuf>,

    /// Count the target's own answers
    #[arg(long)]
    pub(super) generate: bool,

    /// What the target answers, a prompt a line, plain or JSON with `prompt` or `turns` [default: prompts of many kinds
    /// that come with this program]
    #[arg(long, value_name = "FILE", requires = "generate")]
    pub(super) prompts: Option<PathBuf>,

    /// Take prompts as they are, without the model's chat template
    #[arg(long, requires = "generate")]
    pub(super) raw: bool,

    /// Answer until there are so many tokens
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "generate")]
    pub(super) tokens: u64,

    /// Longest answer, in tokens
    #[arg(long, value_name = "N", default_value_t = 128, requires = "generate", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) max_tokens: u32,

    /// How answers are sampled; 1 is the target's own distribution
    #[arg(long, value_name = "T", default_value_t = 1.0, requires = "generate")]
    pub(super) temperature: f64,

    /// Of the first answer; each other one has the next
    #[arg(long, value_name = "N", default_value_t = 1, requires = "generate")]
    pub(super) seed: u64,

    /// Answers in work at once: more share a pass over the weights
    #[arg(long, value_name = "N", default_value_t = 32, requires = "generate", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) sessions: u32,

    /// Threads of a pass [default: all processors]
    #[arg(long, value_name = "N", env = "FORETOKEN_THREADS")]
    pub(super) threads: Option<usize>,

    /// Longest n-gram: contexts have one token less
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=8))]
    pub(super) order: u32,

    /// Bytes of the table at most; what is least useful is left out
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    pub(super) max_bytes: usize,
}
