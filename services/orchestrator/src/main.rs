//! The orchestrator's process.

use clap::Parser;
use foretoken_orchestrator::{Args, run};

/// Foretoken orchestrator: takes requests, has blocks drafted and verified, applies the exact rule
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
