//! The flags of an orchestrator, and the settings they become.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::builder::{OsStringValueParser, TypedValueParser};
use foretoken_engine::Rule;
use foretoken_engine::generate::Timeouts;
use foretoken_telemetry::TelemetryArgs;
use foretoken_transport::{ClientTls, ClientTlsArgs, ListenArgs, parse_duration};

use crate::keys::ApiKeys;

/// Everything an orchestrator is told.
#[derive(clap::Args, Debug, Clone)]
pub struct Args {
    /// Addresses of target-verifiers, comma separated: host:port is one, dns:///host:port are all that the name lists, looked up again every 5 s; all must run the same model
    #[arg(
        long,
        env = "FORETOKEN_VERIFIERS",
        value_name = "ADDR,…",
        value_delimiter = ',',
        default_value = "127.0.0.1:7451"
    )]
    pub verifiers: Vec<String>,

    /// Addresses of draft-workers, host:port or dns:///host:port, comma separated; none is plain decoding
    #[arg(long, env = "FORETOKEN_DRAFT_WORKERS", value_name = "ADDR,…", value_delimiter = ',')]
    pub draft_workers: Vec<String>,

    /// Addresses of draft-workers that are not under your control, host:port or dns:///host:port, comma separated: they draft greedily, or by the Gumbel rule, so that nothing they claim need be believed
    #[arg(long, env = "FORETOKEN_UNTRUSTED_DRAFT", value_name = "ADDR,…", value_delimiter = ',')]
    pub untrusted_draft: Vec<String>,

    /// How drafted tokens are judged where a request gives neither rule nor seed: token, block or gumbel
    #[arg(long, env = "FORETOKEN_RULE", value_name = "RULE", default_value_t = Rule::Token)]
    pub rule: Rule,

    /// Drafts stop in front of a token that the draft is less sure of than this, where a request does not say; 0 never stops them
    #[arg(long, env = "FORETOKEN_MIN_CONFIDENCE", value_name = "P", default_value_t = 0.0)]
    pub min_confidence: f64,

    /// Tokens drafted per round where a request does not say
    #[arg(long, env = "FORETOKEN_DRAFT_LEN", value_name = "TOKENS", default_value_t = 4)]
    pub draft_len: usize,

    /// Tokens drafted per round that a request may ask for
    #[arg(long, env = "FORETOKEN_MAX_DRAFT_LEN", value_name = "TOKENS", default_value_t = 64)]
    pub max_draft_len: usize,

    /// Output tokens at most where a request does not say
    #[arg(long, env = "FORETOKEN_DEFAULT_MAX_TOKENS", value_name = "TOKENS", default_value_t = 256)]
    pub default_max_tokens: usize,

    /// Requests in work at once; more are refused with a retry hint
    #[arg(long, env = "FORETOKEN_MAX_REQUESTS", value_name = "N", default_value_t = 64)]
    pub max_requests: usize,

    /// How long a draft worker may take over a block before the request goes on without it (200ms, 2s)
    #[arg(long, env = "FORETOKEN_DRAFT_TIMEOUT", value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub draft_timeout: Duration,

    /// How long a verifier may take over one pass, prefill included, before the request fails (10s, 1m)
    #[arg(long, env = "FORETOKEN_VERIFY_TIMEOUT", value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub verify_timeout: Duration,

    /// File of API keys, `NAME KEY` on a line: every call then needs the metadata `authorization: Bearer KEY`, health and reflection excepted; keys have at least 16 characters
    /// [default: none, whoever reaches the address may call]
    #[arg(long, env = "FORETOKEN_API_KEYS", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub api_keys: Option<PathBuf>,

    /// Where and how it serves.
    #[command(flatten)]
    pub listen: ListenArgs,

    /// How workers are verified, and what they are shown.
    #[command(flatten)]
    pub worker_tls: ClientTlsArgs,

    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// An orchestrator's settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses of target-verifiers; at least one.
    pub verifiers: Vec<String>,
    /// Addresses of draft-workers.
    pub draft_workers: Vec<String>,
    /// Addresses of draft-workers whose proposals are not believed.
    pub untrusted_draft_workers: Vec<String>,
    /// What decides about drafted tokens where a request gives neither rule nor seed.
    pub default_rule: Rule,
    /// The confidence below which drafts stop where a request does not say.
    pub default_min_confidence: f64,
    /// γ where a request does not say.
    pub default_draft_len: usize,
    /// γ at most.
    pub max_draft_len: usize,
    /// Output tokens at most where a request does not say.
    pub default_max_tokens: usize,
    /// Requests in work at once.
    pub max_requests: usize,
    /// How long to wait for whom.
    pub timeouts: Timeouts,
    /// How workers are verified, and what they are shown; without it only plaintext reaches them.
    pub worker_tls: Option<ClientTls>,
    /// The keys one of which every call must bring; without any nobody is asked for one.
    pub api_keys: Option<ApiKeys>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            verifiers: Vec::new(),
            draft_workers: Vec::new(),
            untrusted_draft_workers: Vec::new(),
            default_rule: Rule::Token,
            default_min_confidence: 0.0,
            default_draft_len: 4,
            max_draft_len: 64,
            default_max_tokens: 256,
            max_requests: 64,
            timeouts: Timeouts { draft: Duration::from_secs(2), verify: Duration::from_secs(60) },
            worker_tls: None,
            api_keys: None,
        }
    }
}

impl Args {
    /// Checks the flags once, and reads the files that they name. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// Names the flag, its value and what it must be.
    pub fn config(&self) -> anyhow::Result<Config> {
        let given =
            |list: &[String]| list.iter().filter(|address| !address.is_empty()).cloned().collect::<Vec<_>>();
        let period = self.listen.reload_period;
        let keys = self.api_keys.as_deref().filter(|path| !path.as_os_str().is_empty());
        let config = Config {
            verifiers: given(&self.verifiers),
            draft_workers: given(&self.draft_workers),
            untrusted_draft_workers: given(&self.untrusted_draft),
            default_rule: self.rule,
            default_min_confidence: self.min_confidence,
            default_draft_len: self.draft_len,
            max_draft_len: self.max_draft_len,
            default_max_tokens: self.default_max_tokens,
            max_requests: self.max_requests,
            timeouts: Timeouts { draft: self.draft_timeout, verify: self.verify_timeout },
            worker_tls: self.worker_tls.load(Some(period))?,
            api_keys: keys.map(|path| ApiKeys::load(path, period)).transpose()?,
        };
        if config.verifiers.is_empty() {
            bail!("--verifiers is empty; give the address of at least one target-verifier");
        }
        let trusted = |address: &&String| config.draft_workers.contains(address);
        if let Some(address) = config.untrusted_draft_workers.iter().find(trusted) {
            bail!("{address} is given by both --draft-workers and --untrusted-draft; trust it or not");
        }
        if !(0.0..=1.0).contains(&config.default_min_confidence) {
            bail!("--min-confidence is {}; it must be between 0 and 1", config.default_min_confidence);
        }
        if config.default_draft_len > config.max_draft_len {
            bail!(
                "--draft-len is {}; it must be at most --max-draft-len, {}",
                config.default_draft_len,
                config.max_draft_len
            );
        }
        if config.default_max_tokens == 0 || config.max_requests == 0 {
            bail!("--default-max-tokens and --max-requests must be at least 1");
        }
        Ok(config)
    }
}
