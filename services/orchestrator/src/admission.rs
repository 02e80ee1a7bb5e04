//! From a request to a plan: every field validated, the prompt in tokens.
//!
//! Nothing behind this module checks a request again.

mod ends;
mod samples;

use foretoken_engine::generate::Plan;
use foretoken_engine::{RequestKeys, Rule};
use foretoken_proto::convert::{confidence_from_wire, narrow, rule_from_wire};
use foretoken_proto::error::{Problem, Reason};
use foretoken_proto::v1;
use foretoken_text::{ChatMessage, StopMatcher, Tokenizer};

use crate::args::Config;
use crate::pool::Target;
pub use samples::MAX_SAMPLES;

/// Seeds are below this, so that every JSON reader keeps them exactly.
const SEED_LIMIT: u64 = 1 << 53;
const MAX_REQUEST_ID_BYTES: usize = 64;

/// A request that may run.
#[derive(Debug)]
pub struct Admitted {
    /// What the round loop needs, but for what [`plans`](Self::plans) tells apart.
    pub plan: Plan,
    /// How many answers are wanted.
    pub samples: usize,
    /// What ends the answer besides tokens.
    pub stops: StopMatcher,
    /// The wanted drafter.
    pub drafter: v1::DrafterKind,
    /// Whether the client wants to see the rounds.
    pub tells_rounds: bool,
    /// What the client is told first.
    pub started: v1::Started,
}

/// Admits a request to `target`.
///
/// # Errors
/// INVALID_FIELD, PROMPT_TOO_LONG, CONTEXT_EXCEEDED, NO_CHAT_TEMPLATE or CHAT_TEMPLATE_FAILED, naming field,
/// value and limit.
pub fn admit(request: v1::GenerateRequest, target: &Target, config: &Config) -> Result<Admitted, Problem> {
    let tells_rounds = request.rounds;
    let request_id = request_id(request.request_id)?;
    let stop_ids = ends::stop_ids(&request.stop_ids, request.ignore_eos, target)?;
    let (sampling, adjustments) = ends::sampling(request.sampling, &stop_ids, target)?;
    let samples = samples::samples(request.n, config)?;
    let logprobs = samples::logprobs(request.logprobs)?;
    let rule = rule(request.rule, request.seed, config)?;
    let seed = seed(request.seed)?;
    let stops = StopMatcher::new(request.stop).map_err(|error| Problem::field("stop", error.to_string()))?;
    let drafter = v1::DrafterKind::try_from(request.drafter).map_err(|_| {
        Problem::field("drafter", format!("drafter is {}; this version knows 0 to 3", request.drafter))
    })?;
    let draft_len = draft_len(request.draft_len, drafter, config)?;
    let min_confidence = match request.min_confidence {
        Some(given) => confidence_from_wire(given, "min_confidence")?,
        None => config.default_min_confidence,
    };
    let vocab_size = target.description.vocab_size as usize;
    let prompt = prompt_tokens(request.prompt, &target.tokenizer, vocab_size)?;
    let max_tokens = max_tokens(request.max_tokens, prompt.len(), target, config)?;
    ends::check_min_tokens(&adjustments, max_tokens)?;
    let plan = Plan {
        session_id: session_id(&request_id)?,
        prompt,
        sampling,
        adjustments,
        logprobs,
        rule,
        keys: RequestKeys::new(seed, 0),
        stop_ids,
        max_tokens,
        draft_len,
        min_confidence,
        vocab_size,
        model_fingerprint: target.description.model_fingerprint.clone(),
        tokenizer_fingerprint: target.description.tokenizer_fingerprint.clone(),
        timeouts: config.timeouts,
    };
    let started = v1::Started {
        request_id,
        seed,
        prompt_tokens: narrow(plan.prompt.len()),
        max_tokens: narrow(max_tokens),
        draft_len: narrow(draft_len),
        target: target.description.model.clone(),
        rule: v1::Rule::from(rule).into(),
        reproducible: plan.is_reproducible(),
        min_confidence,
        trace_id: String::new(),
    };
    Ok(Admitted { plan, samples, stops, drafter, tells_rounds, started })
}

fn request_id(given: String) -> Result<String, Problem> {
    if given.is_empty() {
        return Ok(format!("{:016x}", random()?));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if given.len() > MAX_REQUEST_ID_BYTES || !given.bytes().all(allowed) {
        let message = format!(
            "request_id is {given:?}; it may have {MAX_REQUEST_ID_BYTES} characters of A-Z a-z 0-9 . _ -"
        );
        return Err(Problem::field("request_id", message));
    }
    Ok(given)
}

/// Two requests with one id must not take each other's sessions over.
fn session_id(request_id: &str) -> Result<String, Problem> {
    Ok(format!("{request_id}.{:016x}", random()?))
}

fn seed(given: Option<u64>) -> Result<u64, Problem> {
    match given {
        None => Ok(random()? % SEED_LIMIT),
        Some(seed) if seed < SEED_LIMIT => Ok(seed),
        Some(seed) => {
            Err(Problem::field("seed", format!("seed is {seed}; it must be below 2^53, {SEED_LIMIT}")))
        }
    }
}

/// Who gives a seed wants the text again, so drafts must not be able to change it.
fn rule(given: i32, seed: Option<u64>, config: &Config) -> Result<Rule, Problem> {
    let default = if seed.is_some() { Rule::Gumbel } else { config.default_rule };
    Ok(rule_from_wire(given, "rule")?.unwrap_or(default))
}

fn random() -> Result<u64, Problem> {
    getrandom::u64().map_err(|error| {
        Problem::new(Reason::Internal, format!("the system gave no random numbers: {error}"))
    })
}

fn draft_len(given: Option<u32>, drafter: v1::DrafterKind, config: &Config) -> Result<usize, Problem> {
    let draft_len = given.map_or(config.default_draft_len, |given| given as usize);
    if draft_len > config.max_draft_len {
        let message = format!("draft_len is {draft_len}; it must be at most {}", config.max_draft_len);
        return Err(Problem::field("draft_len", message));
    }
    Ok(if drafter == v1::DrafterKind::None { 0 } else { draft_len })
}

fn max_tokens(
    given: Option<u32>,
    prompt_len: usize,
    target: &Target,
    config: &Config,
) -> Result<usize, Problem> {
    let context = target.description.max_context as usize;
    let room = context.saturating_sub(prompt_len);
    if room == 0 {
        let message = format!(
            "the prompt has {prompt_len} tokens; the context of {} holds {context}, so a prompt may have {}",
            target.description.model,
            context.saturating_sub(1)
        );
        return Err(Problem::new(Reason::PromptTooLong, message).at("prompt"));
    }
    match given {
        None => Ok(config.default_max_tokens.min(room)),
        Some(0) => Err(Problem::field("max_tokens", "max_tokens is 0; it must be at least 1")),
        Some(given) if given as usize > room => {
            let message = format!(
                "max_tokens is {given}; behind a prompt of {prompt_len} tokens the context of {context} holds {room}"
            );
            Err(Problem::new(Reason::ContextExceeded, message).at("max_tokens"))
        }
        Some(given) => Ok(given as usize),
    }
}

fn prompt_tokens(
    prompt: Option<v1::generate_request::Prompt>,
    tokenizer: &Tokenizer,
    vocab_size: usize,
) -> Result<Vec<u32>, Problem> {
    use v1::generate_request::Prompt;
    let encode = |text: &str, add_special, field: &str| {
        tokenizer.encode(text, add_special).map_err(|error| Problem::field(field, error.to_string()))
    };
    let (tokens, field) = match prompt {
        None => return Err(Problem::field("prompt", "prompt is missing; give text, chat or token_ids")),
        Some(Prompt::Text(text)) => (encode(&text, true, "text")?, "text"),
        Some(Prompt::Chat(chat)) => (encode(&render(chat, tokenizer)?, false, "chat")?, "chat"),
        Some(Prompt::TokenIds(ids)) => {
            if let Some(id) = ids.ids.iter().find(|&&id| id as usize >= vocab_size) {
                let message = format!("token id {id} is outside the vocabulary of {vocab_size}");
                return Err(Problem::field("token_ids", message));
            }
            (ids.ids, "token_ids")
        }
    };
    if tokens.is_empty() {
        return Err(Problem::field(field, "the prompt has no tokens; it needs at least one"));
    }
    Ok(tokens)
}

fn render(chat: v1::ChatPrompt, tokenizer: &Tokenizer) -> Result<String, Problem> {
    let Some(template) = tokenizer.chat() else {
        return Err(Problem::new(Reason::NoChatTemplate, "the target model has no chat template; send text")
            .at("chat"));
    };
    if chat.messages.is_empty() {
        return Err(Problem::field("chat.messages", "messages is empty; a chat needs at least one message"));
    }
    let messages: Vec<_> =
        chat.messages.into_iter().map(|message| ChatMessage::new(message.role, message.content)).collect();
    template
        .render(&messages, true)
        .map_err(|error| Problem::new(Reason::ChatTemplateFailed, error.to_string()).at("chat.messages"))
}
