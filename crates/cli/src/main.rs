//! The `foretoken` command: text from two models across three services, and the three services themselves.
//!
//! The services are subcommands that the help does not show: `generate` and `up` start this binary once for each.
//! Nothing is decided here; see [`cli`] for what can be said and the module of each command for what it does.

mod access;
mod answer_log;
mod bench;
mod catalogue;
mod chat;
mod cli;
mod cluster;
mod failure;
mod generate;
mod interrupt;
mod local;
mod models;
mod ngram;
mod prompts;
mod rounds;
mod runtime;
mod sampling;
mod target;
mod terminal;
mod up;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use foretoken_telemetry::TelemetryConfig;

use crate::cli::{Cli, Command};
use crate::failure::UsageError;
use crate::terminal::note;

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(cli.command, &matches) {
        Ok(code) => code,
        Err(error) => {
            note(&format!("error: {error:#}\n"));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

fn run(command: Command, matches: &ArgMatches) -> Result<ExitCode> {
    let served = |()| ExitCode::SUCCESS;
    match command {
        Command::Generate(args) => with_logs(args.models.verbose, || generate::run(&args)),
        Command::Chat(args) => with_logs(args.models.verbose, || chat::run(&args, matches)),
        Command::Up(args) => with_logs(args.models.verbose, || up::run(&args)),
        Command::Pull(args) => with_logs(false, || models::pull(&args)),
        Command::Models(args) => with_logs(false, || models::list(&args)),
        Command::Ngram(args) => with_logs(false, || ngram::run(&args)),
        Command::Bench(args) => with_logs(false, || bench::run(&args)),
        Command::Orchestrator(args) => runtime::block_on(foretoken_orchestrator::run(*args)).map(served),
        Command::TargetVerifier(args) => runtime::block_on(foretoken_target_verifier::run(*args)).map(served),
        Command::DraftWorker(args) => runtime::block_on(foretoken_draft_worker::run(*args)).map(served),
    }
}

/// Runs a command with this process's own log lines on standard error. The services set up theirs themselves.
fn with_logs(verbose: bool, command: impl FnOnce() -> Result<ExitCode>) -> Result<ExitCode> {
    let log_filter = if verbose { "warn,foretoken=info" } else { "warn" }.to_owned();
    // Nothing is exported, so there is nothing to flush at the end.
    let _logs =
        foretoken_telemetry::init(&TelemetryConfig { log_filter, ..TelemetryConfig::new("foretoken") })?;
    command()
}
