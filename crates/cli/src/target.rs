//! A target model in this process, answering many prompts at once: for work that wants tokens and no services.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use foretoken_engine::conversation::{
    Ask, CommittedText, SessionOpen, VerifyFrame, VerifyOpen, VerifyReply, WorkerView,
};
use foretoken_engine::{Adjustments, RequestKeys, Rule, Sampling};
use foretoken_model::{LoadOptions, Loaded, load};
use foretoken_runtime::{Event, Limits, Runtime, RuntimeConfig};
use foretoken_text::{ChatMessage, Tokenizer};
use futures_util::stream::{self, Stream, StreamExt};
use indicatif::MultiProgress;

use crate::terminal::spinner;

/// Rows of one prompt in a pass that others share. Nobody waits for a single answer here, so it is long.
const PREFILL_CHUNK: usize = 256;

/// The model at work, and its tokenizer.
#[derive(Debug)]
pub(crate) struct Target {
    runtime: Runtime,
    tokenizer: Tokenizer,
}

/// One answer that is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    /// By which the answer is known.
    pub(crate) number: usize,
    /// The prompt.
    pub(crate) prompt: Vec<u32>,
    /// How it is sampled.
    pub(crate) sampling: Sampling,
    /// Makes it repeatable.
    pub(crate) seed: u64,
    /// Longest answer.
    pub(crate) max_tokens: usize,
}

/// A finished answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// What was asked.
    pub(crate) question: Question,
    /// The answer, with the token that ended it if one did.
    pub(crate) tokens: Vec<u32>,
}

/// Reads a model's files. A pass will use so many threads, or all processors.
pub(crate) fn loaded(path: &Path, threads: Option<usize>, progress: &MultiProgress) -> Result<Loaded> {
    let waiting = spinner(progress, "");
    let options = LoadOptions { threads, ..LoadOptions::default() };
    let loaded = load(path, &options, &mut |stage| waiting.set_message(stage.step.to_string()))
        .with_context(|| format!("cannot load {}", path.display()))?;
    waiting.finish_and_clear();
    Ok(loaded)
}

/// A prompt's tokens: as the user's message in the model's chat template if `chat` and there is one.
pub(crate) fn prompt(tokenizer: &Tokenizer, text: &str, chat: bool) -> Result<Vec<u32>> {
    let ids = match tokenizer.chat().filter(|_| chat) {
        Some(template) => {
            let rendered = template.render(&[ChatMessage::new("user", text)], true)?;
            tokenizer.encode(&rendered, false)?
        }
        None => tokenizer.encode(text, true)?,
    };
    if ids.is_empty() { bail!("the prompt {text:?} has no tokens") } else { Ok(ids) }
}

impl Target {
    /// Starts the model's thread, with room for so many answers at once and so many positions in each, prompt included.
    pub(crate) fn start(loaded: Loaded, sessions: usize, positions: usize) -> Result<Self> {
        let config = RuntimeConfig {
            limits: Limits { max_sessions: sessions, max_grant: positions, ..Limits::default() },
            kv_tokens: Some(sessions * positions),
            prefill_chunk: PREFILL_CHUNK,
            ..RuntimeConfig::default()
        };
        Ok(Self { runtime: Runtime::start(loaded.decoder, &config)?, tokenizer: loaded.tokenizer })
    }

    /// The model's name.
    pub(crate) fn name(&self) -> &str {
        &self.runtime.shape().name
    }

    /// SHA-256 of its weights.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.runtime.shape().fingerprint
    }

    /// Its tokenizer.
    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Answers as they are finished, `at_once` in work at a time.
    pub(crate) fn answers(
        &self,
        questions: impl IntoIterator<Item = Question>,
        at_once: usize,
    ) -> impl Stream<Item = Result<Reply>> {
        stream::iter(questions).map(|question| self.answer(question)).buffer_unordered(at_once)
    }

    async fn answer(&self, question: Question) -> Result<Reply> {
        let text = CommittedText::new(question.prompt.clone());
        let end = text.len() + question.max_tokens;
        let open = VerifyOpen {
            session: SessionOpen {
                session_id: question.number.to_string(),
                prompt: question.prompt.clone(),
                reserve_len: end,
                sampling: question.sampling,
                adjustments: Adjustments::default(),
                rule: Rule::default(),
                model_fingerprint: String::new(),
                tokenizer_fingerprint: String::new(),
            },
            keys: RequestKeys::new(question.seed, 0).verifier(),
            stop_ids: self.tokenizer.eos_ids().to_vec(),
            logprobs: None,
        };
        let mut session = self.runtime.open_verify(open).await?;
        let text = text.frame(&mut WorkerView::default(), 0, None);
        session.send(VerifyFrame { text, ask: Ask::Decode { grant: end } })?;
        let mut tokens = Vec::with_capacity(question.max_tokens);
        loop {
            match session.next().await {
                Event::Reply(VerifyReply::Token(token)) => tokens.push(token.token),
                Event::Reply(VerifyReply::Finished(_)) => break,
                Event::Reply(VerifyReply::Refused(refusal)) => bail!("the model refused: {:?}", refusal.kind),
                Event::Reply(_) | Event::Passes { .. } => {}
                Event::Ended(ended) => return Err(anyhow!("the model ended the answer: {ended:?}")),
            }
        }
        session.close();
        Ok(Reply { question, tokens })
    }
}
