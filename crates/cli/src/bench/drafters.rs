//! `foretoken bench drafters`: drafters without weights, replayed against the target's greedy answers.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use foretoken_draft_worker::tables;
use foretoken_engine::Sampling;
use foretoken_engine::ngram::{Guesser, NgramConfig, Table};
use foretoken_runtime::decoder::Decoder;
use futures_util::StreamExt;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Serialize;

use super::args::DraftersArgs;
use super::replay::Rounds;
use crate::answer_log::{Answer, AnswerLog, Asked};
use crate::catalogue::Catalogue;
use crate::failure::UsageError;
use crate::prompts::{self, Prompt};
use crate::target::{self, Question, Target};
use crate::terminal::{ColorChoice, Style, print, progress};
use crate::{local, runtime, up};

/// The line of all categories together.
const ALL: &str = "all";

/// Drafters by name: whether they look up, and whether they have the table.
const DRAFTERS: [(&str, bool, bool); 3] =
    [("look-up", true, false), ("table", false, true), ("both", true, true)];

/// One drafter on one category.
#[derive(Debug, Serialize)]
struct Line<'a> {
    category: &'a str,
    drafter: &'static str,
    answers: u64,
    tokens: u64,
    rounds: u64,
    tokens_per_round: f64,
    drafted: &'a [u64],
    accepted: &'a [u64],
}

/// Runs the command.
pub(super) fn run(args: &DraftersArgs) -> Result<ExitCode> {
    let prompts = prompts::read(&args.prompts)?;
    let progress = progress(true);
    let catalogue = Catalogue::open(progress.clone())?;
    let name =
        args.ngram_table.as_deref().or_else(|| local::shipped_table(&args.model)).ok_or_else(|| {
            UsageError(format!(
                "no n-gram table comes with this program for {}: give one with --ngram-table",
                args.model
            ))
        })?;
    let table = tables::load(name)?;
    let path = catalogue.resolve(&args.model)?;
    let loaded = target::loaded(&path, args.threads, &progress)?;
    let tokens = |prompt: &Prompt| target::prompt(&loaded.tokenizer, &prompt.text, !args.raw);
    let tokenized = prompts.iter().map(tokens).collect::<Result<Vec<_>>>()?;
    // Every session has room for the longest answer that the context has room for.
    let longest = tokenized.iter().map(Vec::len).max().unwrap_or(0) + args.max_tokens;
    let positions = longest.min(loaded.decoder.shape().max_context);
    let target = Target::start(loaded, args.sessions, positions)?;
    check(&table, name, &target)?;
    let answers = runtime::block_on(answers(args, &target, &prompts, &tokenized, positions, &progress))?;

    let mut sums: [BTreeMap<&str, Rounds>; DRAFTERS.len()] = Default::default();
    for (number, prompt) in prompts.iter().enumerate() {
        let Some(answer) = answers.get(&number) else { continue };
        for (sums, guesser) in sums.iter_mut().zip(guessers(&table)) {
            let mut rounds = Rounds::new(args.draft_len);
            rounds.replay(guesser, &tokenized[number], answer, args.max_tokens);
            for category in [prompt.category.as_str(), ALL] {
                sums.entry(category).or_insert_with(|| Rounds::new(args.draft_len)).add(&rounds);
            }
        }
    }
    let skipped = prompts.len() - answers.len();
    print(&if args.json { json(&sums)? } else { text(&sums, &target, name, args, skipped) })?;
    Ok(ExitCode::SUCCESS)
}

/// A drafter of each kind that has seen nothing.
fn guessers(table: &Arc<Table>) -> impl Iterator<Item = Guesser> + '_ {
    DRAFTERS.iter().map(|&(_, looks_up, has_table)| {
        let config = NgramConfig::default();
        let config = if looks_up { config } else { NgramConfig { max_places: 0, ..config } };
        Guesser::new(config, has_table.then(|| Arc::clone(table)))
    })
}

fn check(table: &Table, name: &str, target: &Target) -> Result<()> {
    let (theirs, ours) = (&table.head().tokenizer_fingerprint, target.tokenizer().fingerprint());
    if theirs == ours {
        return Ok(());
    }
    let text = format!(
        "the n-gram table {name} was counted with the tokenizer {theirs}, {} has {ours}; build one for it with `foretoken \
         ngram build`",
        target.name()
    );
    Err(UsageError(text).into())
}

/// The greedy answers by the number of their prompt. Prompts without room in the context are left out.
async fn answers(
    args: &DraftersArgs,
    target: &Target,
    prompts: &[Prompt],
    tokenized: &[Vec<u32>],
    positions: usize,
    progress: &MultiProgress,
) -> Result<BTreeMap<usize, Vec<u32>>> {
    let mut log = match &args.answers {
        Some(file) => Some(AnswerLog::open(file, &asked(args, target, prompts))?),
        None => None,
    };
    let mut answers: BTreeMap<usize, Vec<u32>> = log
        .iter()
        .flat_map(AnswerLog::answers)
        .map(|(number, answer)| (number, answer.tokens.clone()))
        .collect();
    let bar = bar(progress, prompts.len());
    bar.set_position(answers.len() as u64);
    let fits = |number: &usize| tokenized[*number].len() + args.max_tokens <= positions;
    let missing: Vec<_> =
        (0..prompts.len()).filter(|number| !answers.contains_key(number)).filter(fits).collect();
    let questions = missing.into_iter().map(|number| Question {
        number,
        prompt: tokenized[number].clone(),
        sampling: Sampling::GREEDY,
        seed: 0,
        max_tokens: args.max_tokens,
    });
    let mut replies = pin!(target.answers(questions, args.sessions));
    while let Some(reply) = replies.next().await {
        let reply = reply?;
        if let Some(log) = &mut log {
            log.add(reply.question.number, Answer { before: Vec::new(), tokens: reply.tokens.clone() })?;
        }
        answers.insert(reply.question.number, reply.tokens);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(answers)
}

fn asked(args: &DraftersArgs, target: &Target, prompts: &[Prompt]) -> Asked {
    Asked {
        model: target.fingerprint().to_owned(),
        prompts: Asked::digest(prompts.iter().map(|prompt| prompt.text.as_str())),
        chat: !args.raw,
        temperature: 0.0,
        max_tokens: u32::try_from(args.max_tokens).unwrap_or(u32::MAX),
        seed: 0,
    }
}

fn json(sums: &[BTreeMap<&str, Rounds>]) -> Result<String> {
    let lines: Vec<_> = DRAFTERS
        .iter()
        .zip(sums)
        .flat_map(|((drafter, ..), sums)| {
            sums.iter().map(|(category, rounds)| Line {
                category,
                drafter,
                answers: rounds.answers,
                tokens: rounds.tokens,
                rounds: rounds.rounds,
                tokens_per_round: rounds.tokens_per_round(),
                drafted: &rounds.drafted,
                accepted: &rounds.accepted,
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&lines).context("cannot write the lines")? + "\n")
}

/// A line for each category, the one of all last; columns for each drafter.
fn text(
    sums: &[BTreeMap<&str, Rounds>],
    target: &Target,
    table: &str,
    args: &DraftersArgs,
    skipped: usize,
) -> String {
    let color = ColorChoice::Auto.enabled(io::stdout().is_terminal());
    let mut header = vec!["category", "answers"];
    header.extend(DRAFTERS.iter().flat_map(|&(drafter, ..)| [drafter, "by position"]));
    let mut categories: Vec<&str> = sums[0].keys().copied().filter(|&category| category != ALL).collect();
    categories.push(ALL);
    let mut rows = Vec::new();
    for category in categories {
        let of_category: Vec<_> = sums.iter().filter_map(|sums| sums.get(category)).collect();
        let answers = of_category.first().map_or(0, |rounds| rounds.answers);
        let mut row =
            vec![if category.is_empty() { "-".to_owned() } else { category.to_owned() }, answers.to_string()];
        row.extend(
            of_category
                .into_iter()
                .flat_map(|rounds| [format!("{:.2}", rounds.tokens_per_round()), by_position(rounds)]),
        );
        rows.push(row);
    }
    let title = format!(
        "{}, greedy answers of up to {} tokens, {} drafted a round, table {table}",
        target.name(),
        args.max_tokens,
        args.draft_len
    );
    let left_out = if skipped == 0 { String::new() } else { format!("{skipped} prompts were too long\n") };
    format!(
        "{title}\n\n{}\n{}{left_out}",
        up::table(&header, &rows),
        Style::Dim.paint(
            "tokens a round for each drafter, and the share of its guesses at each position of a block that stood\n",
            color
        )
    )
}

fn by_position(rounds: &Rounds) -> String {
    let share = |(&accepted, &drafted): (&u64, &u64)| match drafted {
        0 => "-".to_owned(),
        _ => format!("{:.2}", accepted as f64 / drafted as f64),
    };
    rounds.accepted.iter().zip(&rounds.drafted).map(share).collect::<Vec<_>>().join(" ")
}

fn bar(progress: &MultiProgress, prompts: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("answering {bar:30} {pos}/{len} prompts {eta}")
        // The template is a constant; were it wrong, the plain bar would do.
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    progress.add(ProgressBar::new(prompts as u64).with_style(style))
}
