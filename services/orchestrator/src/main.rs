//! The orchestrator's process.

use clap::Parser;
use foretoken_orchestrator::{Args, DEFAULT_LISTEN, run};
use foretoken_proto::service_name;
use foretoken_transport::Invocation;

/// Foretoken orchestrator: takes requests, has blocks drafted and verified, applies the exact rule
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
        Invocation::Healthcheck(args) => Ok(args.run(service_name::ORCHESTRATOR, DEFAULT_LISTEN).await?),
    }
}
