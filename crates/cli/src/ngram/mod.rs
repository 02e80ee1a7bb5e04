//! `foretoken ngram build`: a table of n-grams from texts, or from the target's own answers.

mod args;
mod generate;
mod seeds;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use foretoken_engine::Sampling;
use foretoken_engine::ngram::{Corpus, CountConfig, Table};
use foretoken_runtime::decoder::Decoder;

use self::args::BuildArgs;
pub(crate) use self::args::{NgramArgs, NgramCommand};
use self::generate::Generated;
use crate::catalogue::Catalogue;
use crate::failure::UsageError;
use crate::target::{self, Target};
use crate::terminal::{note, print, progress, spinner};
use crate::{prompts, runtime};

/// Positions that a prompt may take beside its answer; longer ones lose their beginning.
const PROMPT_POSITIONS: usize = 512;

/// Runs the command.
pub(crate) fn run(args: &NgramArgs) -> Result<ExitCode> {
    match &args.command {
        NgramCommand::Build(args) => build(args),
    }
}

fn build(args: &BuildArgs) -> Result<ExitCode> {
    let sampling = Sampling::new(args.temperature, 0, 1.0, 0.0)?;
    let prompts = match &args.prompts {
        Some(file) => prompts::read(file)?.into_iter().map(|prompt| prompt.text).collect(),
        None => seeds::prompts(),
    };
    let progress = progress(true);
    let path = Catalogue::open(progress.clone())?.resolve(&args.target)?;
    let loaded = target::loaded(&path, args.threads, &progress)?;
    let positions = PROMPT_POSITIONS + args.max_tokens as usize;
    let limit = loaded.decoder.shape().max_context;
    if args.generate && positions > limit {
        let text =
            format!("--max-tokens {} leaves no room for a prompt in a context of {limit}", args.max_tokens);
        return Err(UsageError(text).into());
    }
    let target = Target::start(loaded, args.sessions as usize, positions)?;

    let mut corpus = Corpus::new(args.order)?;
    for file in &args.text {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the text {}", file.display()))?;
        let waiting = spinner(&progress, format!("tokenizing {}", file.display()));
        corpus.add(&[], &target.tokenizer().encode(&text, true)?)?;
        waiting.finish_and_clear();
    }
    if args.generate {
        let kept = beside(&args.out, ".answers");
        match runtime::block_on(generate::generate(args, &target, sampling, &prompts, &kept, &progress))? {
            Generated::Enough(log) => {
                log.answers().try_for_each(|(_, answer)| corpus.add(&answer.before, &answer.tokens))?;
            }
            Generated::Interrupted(log, signal) => {
                note(&format!(
                    "stopped at {} of {} tokens, which {} keeps: the same command goes on from there\n",
                    log.tokens(),
                    args.tokens,
                    kept.display()
                ));
                return Ok(signal.exit_code());
            }
        }
    }
    let waiting = spinner(&progress, format!("counting {} tokens", corpus.len()));
    let config = CountConfig {
        vocab_size: u32::try_from(target.tokenizer().vocab_size()).context("the vocabulary is too large")?,
        tokenizer_fingerprint: target.tokenizer().fingerprint().to_owned(),
        max_bytes: args.max_bytes,
    };
    let bytes = corpus.table(&config)?;
    waiting.finish_and_clear();
    write(&args.out, &bytes)?;
    let table = Table::read(bytes).context("the table just made is none: a bug")?;
    let (rows, counted, order) = (table.rows(), table.head().counted, table.head().order);
    note(&format!(
        "{rows} rows of up to {order} tokens from {counted} tokens, for the tokenizer {}\n",
        config.tokenizer_fingerprint
    ));
    print(&format!("{}\n", args.out.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Whole or not at all: written beside, then renamed.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let part = beside(path, ".part");
    std::fs::write(&part, bytes).with_context(cannot)?;
    std::fs::rename(&part, path).with_context(cannot)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
