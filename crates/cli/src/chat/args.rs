//! Arguments of `foretoken chat`.

use clap::Args;

use crate::access::AccessArgs;
use crate::cli::LocalArgs;
use crate::rounds::RoundArgs;
use crate::sampling::SamplingArgs;
use crate::terminal::ColorChoice;

/// Arguments of `foretoken chat`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without --server the three services run on this machine for the length of the conversation. It is sent whole \
        with every message, through the model's chat template. An answer has up to 512 tokens unless --max-tokens says \
        otherwise.\n\n\
        In the conversation: /set shows and changes how answers are sampled and drafted, /system the system prompt, /reset \
        forgets what was said, /help lists everything, /quit or Ctrl-D ends. Ctrl-C stops an answer; once more, at the prompt, \
        it ends.\n\n\
        Colours in a terminal: green was drafted and accepted, yellow repairs a rejected draft, cyan is the bonus behind a \
        block that passed whole, plain text was decoded without a draft.\n\n\
        Examples:\n  \
        foretoken chat\n  \
        foretoken chat --system \"Answer briefly.\" --temperature 0.7\n  \
        foretoken chat --server 127.0.0.1:7450\n  \
        printf 'Hello\\nAnd in French?\\n' | foretoken chat"
)]
pub(crate) struct ChatArgs {
    /// The system prompt
    #[arg(long, value_name = "TEXT", env = "FORETOKEN_SYSTEM")]
    pub(super) system: Option<String>,

    /// How answers are sampled
    #[command(flatten)]
    pub(super) sampling: SamplingArgs,

    /// How drafts are made and judged
    #[command(flatten)]
    pub(super) rounds: RoundArgs,

    /// Where it runs
    #[command(flatten)]
    pub(crate) models: LocalArgs,

    /// Use the orchestrator at this address instead of starting services: host:port, http://host:port (plaintext) or
    /// https://host:port (TLS)
    #[arg(
        long,
        visible_alias = "orchestrator",
        value_name = "HOST:PORT",
        help_heading = "Models and services",
        env = "FORETOKEN_SERVER",
        conflicts_with_all = ["target", "draft", "ngram_table"],
    )]
    pub(super) server: Option<String>,

    /// How that is called
    #[command(flatten)]
    pub(super) access: AccessArgs,

    /// No progress and no line of figures behind an answer
    #[arg(long, short, help_heading = "Output")]
    pub(super) quiet: bool,

    /// When to colour tokens by their origin
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Output",
        env = "FORETOKEN_COLOR"
    )]
    pub(super) color: ColorChoice,
}
