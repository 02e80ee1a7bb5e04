//! The target-verifier's process.

use clap::Parser;
use foretoken_target_verifier::{Args, run};

/// Foretoken target-verifier: judges draft blocks with the target model, and decodes plainly
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
