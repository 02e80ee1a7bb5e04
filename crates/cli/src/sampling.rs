//! How text is sampled: the flags, and the parts of a request that they become.

use clap::Args;
use foretoken_proto::v1::{LogitBias, Sampling};

/// How text is sampled.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// 0 always takes the likeliest token; up to 100
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = temperature, env = "FORETOKEN_TEMPERATURE")]
    pub(crate) temperature: f64,

    /// Keep only the K likeliest tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0, env = "FORETOKEN_TOP_K")]
    pub(crate) top_k: u32,

    /// Keep the likeliest tokens that make up this mass; 1 keeps all
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = top_p, env = "FORETOKEN_TOP_P")]
    pub(crate) top_p: f64,

    /// Keep tokens at least this likely compared to the likeliest; 0 keeps all
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = min_p, env = "FORETOKEN_MIN_P")]
    pub(crate) min_p: f64,

    /// Divide the logits above 0, and multiply those below, of tokens that the prompt or the answer holds; 1 is none
    #[arg(
        long,
        value_name = "R",
        default_value_t = 1.0,
        value_parser = repetition_penalty,
        env = "FORETOKEN_REPETITION_PENALTY",
    )]
    pub(crate) repetition_penalty: f64,

    /// Subtract this from the logits of tokens that the answer holds; 0 is none
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        value_parser = penalty,
        allow_negative_numbers = true,
        env = "FORETOKEN_PRESENCE_PENALTY",
    )]
    pub(crate) presence_penalty: f64,

    /// Subtract this once for each time the answer holds the token; 0 is none
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        value_parser = penalty,
        allow_negative_numbers = true,
        env = "FORETOKEN_FREQUENCY_PENALTY",
    )]
    pub(crate) frequency_penalty: f64,

    /// Add to the logits of tokens, by their ids, from -100 to 100
    #[arg(
        long,
        value_name = "ID=BIAS,…",
        value_delimiter = ',',
        value_parser = logit_bias,
        env = "FORETOKEN_LOGIT_BIAS",
    )]
    pub(crate) logit_bias: Vec<LogitBias>,

    /// Let only these tokens come, by their ids
    #[arg(long, value_name = "ID,…", value_delimiter = ',', env = "FORETOKEN_ALLOWED_IDS")]
    pub(crate) allowed_ids: Vec<u32>,

    /// Let these tokens never come
    #[arg(long, value_name = "ID,…", value_delimiter = ',', env = "FORETOKEN_FORBIDDEN_IDS")]
    pub(crate) forbidden_ids: Vec<u32>,

    /// Makes the answer repeatable, whoever drafts unless --rule says otherwise; below 2^53
    /// [default: chosen at random, and told]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 53), env = "FORETOKEN_SEED")]
    pub(crate) seed: Option<u64>,

    /// Longest answer, in tokens
    #[arg(
        long,
        short = 'n',
        value_name = "N",
        default_value_t = 128,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "FORETOKEN_MAX_TOKENS",
    )]
    pub(crate) max_tokens: u32,

    /// No end-of-text token and no stop id before this many tokens
    #[arg(long, value_name = "N", default_value_t = 0, env = "FORETOKEN_MIN_TOKENS")]
    pub(crate) min_tokens: u32,

    /// End before this text; may be given up to 16 times
    #[arg(long, value_name = "TEXT", value_parser = stop)]
    pub(crate) stop: Vec<String>,

    /// End at these tokens, too
    #[arg(long, value_name = "ID,…", value_delimiter = ',', env = "FORETOKEN_STOP_IDS")]
    pub(crate) stop_ids: Vec<u32>,

    /// Go on behind the model's end-of-text tokens
    #[arg(long, env = "FORETOKEN_IGNORE_EOS")]
    pub(crate) ignore_eos: bool,

    /// Independent answers to the prompt, up to 16
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=16),
        env = "FORETOKEN_SAMPLES",
    )]
    pub(crate) samples: u32,

    /// Tell each token's log-probabilities, and those of the N likeliest, up to 20; with --json
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=20))]
    pub(crate) logprobs: Option<u32>,
}

impl SamplingArgs {
    /// The parameters as a request has them.
    pub(crate) fn wire(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: Some(self.top_p),
            min_p: self.min_p,
            logit_bias: self.logit_bias.clone(),
            repetition_penalty: Some(self.repetition_penalty),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            min_tokens: self.min_tokens,
            allowed_ids: self.allowed_ids.clone(),
            forbidden_ids: self.forbidden_ids.clone(),
        }
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..=100.0).contains(&value), "between 0 and 100")
}

fn top_p(text: &str) -> Result<f64, String> {
    number(text, |value| value > 0.0 && value <= 1.0, "above 0 and at most 1")
}

fn min_p(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..=1.0).contains(&value), "between 0 and 1")
}

fn repetition_penalty(text: &str) -> Result<f64, String> {
    number(text, |value| (0.01..=100.0).contains(&value), "between 0.01 and 100")
}

fn penalty(text: &str) -> Result<f64, String> {
    number(text, |value| (-2.0..=2.0).contains(&value), "between -2 and 2")
}

fn logit_bias(text: &str) -> Result<LogitBias, String> {
    let (id, bias) = text.split_once('=').ok_or("it must be ID=BIAS")?;
    let id = id.parse().map_err(|_| format!("{id:?} is no token id"))?;
    let bias = number(bias, |value| (-100.0..=100.0).contains(&value), "between -100 and 100")?;
    Ok(LogitBias { id, bias: bias as f32 })
}

/// A number that `fits`, or what it must be.
pub(crate) fn number(text: &str, fits: impl Fn(f64) -> bool, range: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if fits(value) => Ok(value),
        _ => Err(format!("it must be a number {range}")),
    }
}

fn stop(text: &str) -> Result<String, String> {
    match text.len() {
        1..=256 => Ok(text.to_owned()),
        length => Err(format!("it has {length} bytes; it must have 1 to 256")),
    }
}
