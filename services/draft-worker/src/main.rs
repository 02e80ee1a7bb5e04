//! The draft-worker's process.

use clap::Parser;
use foretoken_draft_worker::{Args, DEFAULT_LISTEN, run};
use foretoken_proto::service_name;
use foretoken_transport::Invocation;

/// Foretoken draft-worker: guesses blocks of tokens for the orchestrator
#[derive(Parser, Debug)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    invocation: Invocation<Args>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().invocation {
        Invocation::Serve(args) => run(args).await,
        Invocation::Healthcheck(args) => Ok(args.run(service_name::DRAFT_WORKER, DEFAULT_LISTEN).await?),
    }
}
