//! The target-verifier's process.

use clap::Parser;
use foretoken_proto::service_name;
use foretoken_target_verifier::{Args, DEFAULT_LISTEN, run};
use foretoken_transport::Invocation;

/// Foretoken target-verifier: judges draft blocks with the target model, and decodes plainly
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
        Invocation::Healthcheck(args) => Ok(args.run(service_name::TARGET_VERIFIER, DEFAULT_LISTEN).await?),
    }
}
