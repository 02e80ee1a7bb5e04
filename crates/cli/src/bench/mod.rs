//! `foretoken bench`: what the models cost on this machine.
//!
//! Here is what is put together for `bench pass`: models are resolved and loaded, measured, and told. The parts are
//! `passes` (times of passes), `memory` (the bound they are held against) and `report` (tables, bars and JSON). Nothing
//! of that serves or samples: a decoder is driven directly, without the runtime's thread and queue. `drafters` is
//! `bench drafters`, and `replay` what it measures by.

mod args;
mod drafters;
mod memory;
mod passes;
mod replay;
mod report;

use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use foretoken_model::{LoadOptions, load};
use foretoken_runtime::decoder::Decoder;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use self::args::PassArgs;
pub(crate) use self::args::{BenchArgs, BenchCommand};
use self::memory::Memory;
use self::passes::Passes;
use self::report::Measured;
use crate::catalogue::Catalogue;
use crate::failure::UsageError;
use crate::terminal::{ColorChoice, print, progress, spinner};

/// Passes that are not timed, after each memory read: large caches take more than one to fill again.
const WARM_PASSES: usize = 4;

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    match &args.command {
        BenchCommand::Pass(args) => pass(args),
        BenchCommand::Drafters(args) => drafters::run(args),
    }
}

fn pass(args: &PassArgs) -> Result<ExitCode> {
    let progress = progress(true);
    let path = Catalogue::open(progress.clone())?.resolve(&args.model)?;
    let threads = threads(args);
    let contexts = sorted(&args.context);
    let rows = sorted(&args.rows);

    let color = ColorChoice::Auto.enabled(io::stdout().is_terminal());
    let bar = bar(&progress, threads.len() * contexts.len() * args.repeats * rows.len());
    let mut results = Vec::with_capacity(threads.len() * contexts.len());
    for &threads in &threads {
        let mut passes = loaded(&path, threads, args, &progress)?;
        let mut memory = Memory::new(threads, passes.bytes(*contexts.last().unwrap_or(&0)))?;
        for &context in &contexts {
            bar.set_message(format!("threads {threads}, context {context}"));
            let measured = measure(&mut passes, &mut memory, context, &rows, args.repeats, &bar)?;
            if !args.json {
                bar.suspend(|| print(&report::text(&measured, color)))?;
            }
            results.push(measured);
        }
    }
    bar.finish_and_clear();
    if args.json {
        print(&report::json(&results)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The model on `threads` threads, its cache with room for the longest pass behind the longest context.
fn loaded(
    path: &Path,
    threads: usize,
    args: &PassArgs,
    progress: &MultiProgress,
) -> Result<Passes<impl Decoder>> {
    let waiting = spinner(progress, "");
    let options = LoadOptions { threads: Some(threads), kv_type: args.kv_type, ..LoadOptions::default() };
    let loaded = load(path, &options, &mut |stage| waiting.set_message(stage.step.to_string()))
        .with_context(|| format!("cannot load {}", path.display()))?;
    waiting.finish_and_clear();
    let most = |values: &[usize]| values.iter().copied().max().unwrap_or(0);
    let (context, rows) = (most(&args.context), most(&args.rows));
    let capacity = context + rows;
    let limit = loaded.decoder.shape().max_context;
    if capacity > limit {
        return Err(UsageError(format!(
            "--context {context} and --rows {rows} need {capacity} positions, but the model has {limit}; give less of either"
        ))
        .into());
    }
    Ok(Passes::new(loaded.decoder, capacity, args.logits)?)
}

/// Passes and memory reads, taking turns within each repetition: a slow moment of the machine falls on all alike.
fn measure(
    passes: &mut Passes<impl Decoder>,
    memory: &mut Memory,
    context: usize,
    rows: &[usize],
    repeats: usize,
    bar: &ProgressBar,
) -> Result<Measured> {
    passes.fill(context)?;
    let bytes = passes.bytes(context);
    memory.set_bytes(bytes);
    let mut samples = vec![Vec::with_capacity(repeats); rows.len()];
    // One repetition more than is counted: the first warms up code, caches and branch predictors.
    for repeat in 0..=repeats {
        memory.read();
        // The memory read has evicted what passes leave in the caches; these passes put it back.
        for _ in 0..WARM_PASSES {
            passes.time(1)?;
        }
        for turn in 0..rows.len() {
            // Each repetition starts with another row count, so that none always follows the same one.
            let index = (turn + repeat) % rows.len();
            let ms = passes.time(rows[index])?;
            if repeat > 0 {
                samples[index].push(ms);
                bar.inc(1);
            }
        }
    }
    let times = rows.iter().zip(samples).map(|(&rows, samples)| report::PassTime::new(rows, samples));
    Ok(Measured {
        model: passes.model().to_owned(),
        device: passes.device().to_owned(),
        threads: memory.threads(),
        context,
        passes: times.collect(),
        bytes_per_pass: bytes,
        stream_gb_per_s: memory.best_gb_per_s(),
    })
}

/// One and all, unless told.
fn threads(args: &PassArgs) -> Vec<usize> {
    if args.threads.is_empty() {
        return sorted(&[1, available_parallelism().map_or(1, NonZero::get)]);
    }
    sorted(&args.threads)
}

fn sorted(values: &[usize]) -> Vec<usize> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values
}

/// It only moves between timed passes, never by itself: a thread that draws would take time from them.
fn bar(progress: &MultiProgress, passes: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} passes {msg} {elapsed:.dim}")
        // The template is a constant; were it wrong, the plain bar would do.
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    progress.add(ProgressBar::new(passes as u64).with_style(style))
}
