//! The command line. What it means is checked here as far as a single value goes; what must fit together is checked
//! by the command that uses it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use foretoken_transport::parse_duration;

use crate::access::AccessArgs;
use crate::bench::BenchArgs;
use crate::catalogue::DEFAULT_TARGET;
use crate::chat::ChatArgs;
use crate::ngram::NgramArgs;
use crate::rounds::RoundArgs;
use crate::sampling::SamplingArgs;
use crate::terminal::ColorChoice;

/// Exact text from a large model, guessed ahead by a small one
///
/// A drafter guesses a block of tokens, the target model checks the block in one pass, and an exact rule decides what
/// becomes text: the output is distributed as the target alone would have written it.
#[derive(Parser, Debug)]
#[command(
    name = "foretoken",
    version,
    max_term_width = 110,
    after_help = "Examples:\n  \
        foretoken generate \"The capital of France is\"\n  \
        foretoken generate --chat \"Write a haiku about rain\" --temperature 0.8 --seed 7\n  \
        foretoken chat                                      # a conversation\n  \
        foretoken up                                        # services in the foreground\n  \
        foretoken generate --server 127.0.0.1:7450 \"Hello\"  # use them\n  \
        foretoken models                                    # what can be used by name"
)]
pub(crate) struct Cli {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Write text that continues or answers a prompt
    Generate(Box<GenerateArgs>),
    /// Hold a conversation
    Chat(Box<ChatArgs>),
    /// Run the three services in the foreground, for many requests
    Up(Box<UpArgs>),
    /// Fetch a model, or check the one that is here
    Pull(PullArgs),
    /// List the models that have a name
    Models(ModelsArgs),
    /// Build tables that draft without a model
    Ngram(NgramArgs),
    /// Measure what models cost on this machine, and how well drafters guess
    Bench(BenchArgs),
    /// Serve as the orchestrator
    #[command(hide = true)]
    Orchestrator(Box<foretoken_orchestrator::Args>),
    /// Serve as a target-verifier
    #[command(hide = true)]
    TargetVerifier(Box<foretoken_target_verifier::Args>),
    /// Serve as a draft-worker
    #[command(hide = true)]
    DraftWorker(Box<foretoken_draft_worker::Args>),
}

/// Who drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drafter {
    /// A small model with the target's tokenizer
    Model,
    /// Look-up in the text so far and a table of n-grams, without weights
    Ngram,
    /// Nobody: plain decoding
    None,
}

impl Drafter {
    /// As `--drafter` spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Ngram => "ngram",
            Self::None => "none",
        }
    }
}

/// Arguments of `foretoken generate`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without --server the three services run on this machine for the length of the command.\n\n\
        Colours in a terminal: green was drafted and accepted, yellow repairs a rejected draft, cyan is the bonus behind a \
        block that passed whole, plain text was decoded without a draft.\n\n\
        Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n\n\
        Examples:\n  \
        foretoken generate \"Once upon a time\" --max-tokens 200\n  \
        foretoken generate --chat --system \"Answer briefly.\" \"What is a verb?\"\n  \
        foretoken generate --file prompt.txt --stop $'\\n\\n'  # bash writes line ends so\n  \
        foretoken generate --target ./big.gguf --draft ./small.gguf \"Hello\"\n  \
        foretoken generate --json \"Hello\" | jq .saved_passes"
)]
pub(crate) struct GenerateArgs {
    /// The prompt; without it and --file, standard input is read
    #[arg(value_name = "PROMPT", conflicts_with = "file", allow_hyphen_values = false)]
    pub(crate) prompt: Option<String>,

    /// Take the prompt from a file, less one line end at its end; - is standard input
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Put the prompt into the model's chat template, as the user's message
    #[arg(long)]
    pub(crate) chat: bool,

    /// A system message before the user's
    #[arg(long, value_name = "TEXT", requires = "chat", env = "FORETOKEN_SYSTEM")]
    pub(crate) system: Option<String>,

    /// How the text is sampled
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// How drafts are made and judged
    #[command(flatten)]
    pub(crate) rounds: RoundArgs,

    /// Where it runs
    #[command(flatten)]
    pub(crate) models: LocalArgs,

    /// Use the orchestrator at this address instead of starting services: host:port, http://host:port (plaintext) or
    /// https://host:port (TLS)
    #[arg(
        long,
        value_name = "HOST:PORT",
        help_heading = "Models and services",
        env = "FORETOKEN_SERVER",
        conflicts_with_all = ["target", "draft", "ngram_table"],
    )]
    pub(crate) server: Option<String>,

    /// How that is called
    #[command(flatten)]
    pub(crate) access: AccessArgs,

    /// Print one JSON record in place of text and table
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// Draw the rounds as a timeline below the answer, or list them in the record
    #[arg(long, help_heading = "Output")]
    pub(crate) trace: bool,

    /// Jaeger's pages, to which the closing table links a recorded trace if they answer
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:16686",
        help_heading = "Output",
        env = "FORETOKEN_JAEGER_URL"
    )]
    pub(crate) jaeger_url: String,

    /// No progress and no closing table
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// When to colour tokens by their origin
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Output",
        env = "FORETOKEN_COLOR"
    )]
    pub(crate) color: ColorChoice,
}

/// What services started here run.
#[derive(Args, Debug)]
#[command(next_help_heading = "Models and services")]
pub(crate) struct LocalArgs {
    /// The model whose text it is: a name (see `foretoken models`), a GGUF file, a folder with safetensors, or a
    /// repository of the Hugging Face hub as `org/name` (needs a build with the feature hf-hub)
    /// [default: SmolLM2-135M-Instruct, fetched on first use]
    #[arg(long, value_name = "MODEL", env = "FORETOKEN_TARGET")]
    target: Option<String>,

    /// A small model with the target's tokenizer that drafts; the same kinds as --target
    #[arg(long, value_name = "MODEL", env = "FORETOKEN_DRAFT")]
    draft: Option<String>,

    /// Who drafts [default: model with --draft, whatever there is with --server, else ngram]
    #[arg(long, value_name = "KIND", env = "FORETOKEN_DRAFTER")]
    pub(crate) drafter: Option<Drafter>,

    /// The table that the ngram drafter has beside look-up: a file made by `foretoken ngram build`, the name of a model
    /// whose table comes with this program, or none [default: the target's, if it has one]
    #[arg(long, value_name = "FILE|NAME|none", env = "FORETOKEN_NGRAM_TABLE")]
    ngram_table: Option<String>,

    /// How long a service may take to load its model and serve
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10m",
        value_parser = parse_duration,
        env = "FORETOKEN_START_TIMEOUT",
    )]
    pub(crate) start_timeout: Duration,

    /// Show the services' logs
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

impl LocalArgs {
    /// Name or path of the target model.
    pub(crate) fn target(&self) -> &str {
        given(self.target.as_ref()).unwrap_or(DEFAULT_TARGET)
    }

    /// Name or path of the draft model.
    pub(crate) fn draft(&self) -> Option<&str> {
        given(self.draft.as_ref())
    }

    /// The n-gram table that was asked for.
    pub(crate) fn ngram_table(&self) -> Option<&str> {
        given(self.ngram_table.as_ref())
    }
}

/// An empty variable is as good as none: that is how shells and compose files unset one.
fn given(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|value| !value.is_empty())
}

/// Arguments of `foretoken up`.
#[derive(Args, Debug)]
#[command(
    after_help = "Ends with Ctrl-C or SIGTERM: requests in work have five seconds to finish. A service that dies ends them all.\n\n\
        Examples:\n  \
        foretoken up\n  \
        foretoken up --target ./big.gguf --draft ./small.gguf --listen 127.0.0.1:9000\n  \
        foretoken up --verifiers 2 --draft-workers 2"
)]
pub(crate) struct UpArgs {
    /// Where the orchestrator listens. Traffic is not encrypted: keep to a loopback or trusted network, or run the services
    /// by themselves, with --tls-cert
    #[arg(long, value_name = "IP:PORT", default_value_t = foretoken_orchestrator::DEFAULT_LISTEN, env = "FORETOKEN_LISTEN")]
    pub(crate) listen: SocketAddr,

    /// How many verifiers, each with the target model in its own memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = workers(), env = "FORETOKEN_UP_VERIFIERS")]
    pub(crate) verifiers: u32,

    /// How many draft workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = workers(), env = "FORETOKEN_UP_DRAFT_WORKERS")]
    pub(crate) draft_workers: u32,

    /// How drafts are made and judged unless a request says otherwise
    #[command(flatten)]
    pub(crate) rounds: RoundArgs,

    /// What runs
    #[command(flatten)]
    pub(crate) models: LocalArgs,
}

/// Arguments of `foretoken pull`.
#[derive(Args, Debug)]
#[command(
    after_help = "Models are kept in the user's cache folder; FORETOKEN_MODELS moves them. The file's path goes to standard output."
)]
pub(crate) struct PullArgs {
    /// Name of the model, see `foretoken models`
    #[arg(value_name = "MODEL", default_value = DEFAULT_TARGET)]
    pub(crate) model: String,
}

/// Arguments of `foretoken models`.
#[derive(Args, Debug)]
pub(crate) struct ModelsArgs {
    /// Print a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

fn workers() -> impl clap::builder::TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"foretoken").chain(words))
    }

    fn generate(words: &[&str]) -> GenerateArgs {
        let words: Vec<_> = std::iter::once(&"generate").chain(words).copied().collect();
        match parse(&words).unwrap().command {
            Command::Generate(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_holds() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_greedy_and_local() {
        let args = generate(&["Hello"]);
        assert_eq!(args.prompt.as_deref(), Some("Hello"));
        assert_eq!(
            (args.sampling.temperature, args.sampling.top_p, args.sampling.max_tokens),
            (0.0, 1.0, 128)
        );
        assert_eq!((args.models.target(), args.models.draft()), (DEFAULT_TARGET, None));
        assert!(args.server.is_none() && args.rounds.draft_len.is_none() && args.sampling.seed.is_none());
    }

    #[test]
    fn the_help_names_the_default_target() {
        let help = Cli::command().find_subcommand_mut("generate").unwrap().render_long_help().to_string();
        assert!(help.contains(&format!("[default: {DEFAULT_TARGET}")), "{help}");
    }

    #[test]
    fn values_out_of_range_are_named_with_their_limit() {
        for (words, told) in [
            (["--temperature", "101"], "between 0 and 100"),
            (["--temperature", "NaN"], "between 0 and 100"),
            (["--top-p", "0"], "above 0 and at most 1"),
            (["--min-p", "1.5"], "between 0 and 1"),
            (["--repetition-penalty", "0"], "between 0.01 and 100"),
            (["--presence-penalty", "-2.5"], "between -2 and 2"),
            (["--frequency-penalty", "NaN"], "between -2 and 2"),
            (["--logit-bias", "5"], "ID=BIAS"),
            (["--logit-bias", "x=1"], "no token id"),
            (["--logit-bias", "5=-101"], "between -100 and 100"),
            (["--samples", "17"], "is not in 1..=16"),
            (["--logprobs", "21"], "is not in 0..=20"),
            (["--seed", "9007199254740992"], "is not in 0..9007199254740992"),
            (["--min-confidence", "1.5"], "between 0 and 1"),
            (["--rule", "tree"], "[possible values: token, block, gumbel]"),
            (["--max-tokens", "0"], "is not in 1.."),
            (["--stop", ""], "1 to 256"),
            (["--drafter", "oracle"], "[possible values: model, ngram, none]"),
        ] {
            let error = parse(&["generate", words[0], words[1], "x"]).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(told) && text.contains(words[0]), "{text}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for words in [
            ["generate", "--file", "f", "prompt"].as_slice(),
            &["generate", "--system", "s", "prompt"],
            &["generate", "--server", "h:1", "--target", "m", "prompt"],
            &["generate", "--server", "h:1", "--draft", "m", "prompt"],
            &["up", "--verifiers", "0"],
        ] {
            assert_eq!(parse(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn services_are_there_but_not_shown() {
        let help = Cli::command().render_long_help().to_string();
        for service in crate::cluster::SUBCOMMANDS {
            assert!(!help.contains(&format!("  {service}")), "{help}");
            assert!(Cli::command().find_subcommand(service).is_some());
        }
    }
}
