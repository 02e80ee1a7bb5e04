//! Has the target answer prompts, many at a time, until there are tokens enough; every answer is kept at once.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::pin;

use anyhow::{Context, Result};
use foretoken_engine::Sampling;
use futures_util::StreamExt;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::PROMPT_POSITIONS;
use super::args::BuildArgs;
use crate::answer_log::{Answer, AnswerLog, Asked};
use crate::interrupt::{Interrupts, Signal};
use crate::target::{self, Question, Target};

/// Tokens of a prompt that are kept: as many as the longest context has.
const KEPT_BEFORE: usize = 7;

/// How generating ended.
pub(super) enum Generated {
    /// With as many tokens as were wanted.
    Enough(AnswerLog),
    /// By a signal.
    Interrupted(AnswerLog, Signal),
}

/// Answers `prompts` again and again, each time with another seed, until the answers in `kept` have `args.tokens` tokens.
pub(super) async fn generate(
    args: &BuildArgs,
    target: &Target,
    sampling: Sampling,
    prompts: &[String],
    kept: &Path,
    progress: &MultiProgress,
) -> Result<Generated> {
    let asked = Asked {
        model: target.fingerprint().to_owned(),
        prompts: Asked::digest(prompts.iter().map(String::as_str)),
        chat: !args.raw,
        temperature: args.temperature,
        max_tokens: args.max_tokens,
        seed: args.seed,
    };
    let mut log = AnswerLog::open(kept, &asked)?;
    let mut interrupts = Interrupts::listen().context("cannot wait for signals")?;
    let bar = bar(progress, args.tokens, target.name());
    bar.set_position(log.tokens());
    // What was answered before does not count for the speed shown.
    bar.reset_eta();

    let mut tokenized = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let mut ids = target::prompt(target.tokenizer(), prompt, !args.raw)?;
        ids.drain(..ids.len().saturating_sub(PROMPT_POSITIONS));
        tokenized.push(ids);
    }
    let had: BTreeSet<usize> = log.numbers().collect();
    let questions = (0..).filter(|number| !had.contains(number)).map(|number| Question {
        number,
        prompt: tokenized[number % tokenized.len()].clone(),
        sampling,
        seed: args.seed.wrapping_add(number as u64),
        max_tokens: args.max_tokens as usize,
    });
    let mut answers = pin!(target.answers(questions, args.sessions as usize));
    while log.tokens() < args.tokens {
        let reply = tokio::select! {
            reply = answers.next() => reply.context("there are no more prompts")??,
            signal = interrupts.next() => return Ok(Generated::Interrupted(log, signal)),
        };
        let prompt = &reply.question.prompt;
        let before = prompt[prompt.len().saturating_sub(KEPT_BEFORE)..].to_vec();
        log.add(reply.question.number, Answer { before, tokens: reply.tokens })?;
        bar.set_position(log.tokens());
    }
    bar.finish_and_clear();
    Ok(Generated::Enough(log))
}

fn bar(progress: &MultiProgress, tokens: u64, model: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {human_pos}/{human_len} tokens {per_sec} {eta}")
        // The template is a constant; were it wrong, the plain bar would do.
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    progress.add(ProgressBar::new(tokens).with_style(style).with_message(format!("{model} answers")))
}
