//! The draft-worker's process.

use clap::Parser;
use foretoken_draft_worker::{Args, run};

/// Foretoken draft-worker: guesses blocks of tokens for the orchestrator
#[derive(Parser, Debug)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run(Cli::parse().args).await
}
