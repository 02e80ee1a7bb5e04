//! `foretoken up`: the services in the foreground, until they are asked to end or one of them dies.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cli::UpArgs;
use crate::cluster::{Cluster, Member, Plan};
use crate::interrupt::Interrupts;
use crate::terminal::{note, print, progress, spinner};
use crate::{local, runtime};

/// How long requests in work may go on after the end was asked for.
const DRAIN: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(args: &UpArgs) -> Result<ExitCode> {
    for variable in ["FORETOKEN_TLS_CERT", "FORETOKEN_TLS_CLIENT_CA", "FORETOKEN_API_KEYS"] {
        if std::env::var_os(variable).is_some_and(|value| !value.is_empty()) {
            tracing::warn!(
                variable,
                "this command serves without encryption and keys, and does not heed it: run the services by themselves"
            );
        }
    }
    let progress = progress(!args.models.verbose);
    let drafter = local::drafter(&args.models)?;
    // Before signals are taken in hand: Ctrl-C ends a download at once, and its pip with it.
    let (target, drafting) = local::models(&args.models, drafter, &progress)?;
    let plan = Plan {
        target,
        drafting,
        verifiers: args.verifiers,
        draft_workers: args.draft_workers,
        listen: args.listen,
        rounds: args.rounds,
        show_logs: args.models.verbose,
        start_timeout: args.models.start_timeout,
        drain: DRAIN,
    };
    runtime::block_on(async {
        let mut interrupts = Interrupts::listen().context("cannot wait for signals")?;
        let waiting = spinner(&progress, "");
        let cluster = tokio::select! {
            started = Cluster::start(&plan, |stage| waiting.set_message(stage.to_owned())) => started?,
            signal = interrupts.next() => return Ok(signal.exit_code()),
        };
        waiting.finish_and_clear();
        print(&greeting(&cluster.members(), &cluster.address().to_string()))?;
        serve(cluster, interrupts).await
    })
}

/// Watches the services. Ending on request is what the command is for, hence a success.
async fn serve(mut cluster: Cluster, mut interrupts: Interrupts) -> Result<ExitCode> {
    let death = tokio::select! {
        death = cluster.first_death() => Some(death),
        _ = interrupts.next() => None,
    };
    if death.is_none() {
        note("ending; once more to end at once\n");
    }
    tokio::select! {
        stopped = cluster.stop() => stopped?,
        // What is left is killed.
        signal = interrupts.next() => return Ok(signal.exit_code()),
    }
    match death {
        Some(death) => bail!(death),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// What runs where, and how to use it.
fn greeting(members: &[Member], address: &str) -> String {
    let rows = members
        .iter()
        .map(|member| {
            let model = member.model.as_deref().unwrap_or("-").to_owned();
            vec![member.label.clone(), member.address.to_string(), model]
        })
        .collect::<Vec<_>>();
    let mut text = table(&["SERVICE", "ADDRESS", "MODEL"], &rows);
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "\nforetoken generate --server {address} \"The capital of France is\"\n\
         grpcurl -plaintext -d '{{\"text\": \"The capital of France is\", \"max_tokens\": 16}}' {address} \
         foretoken.v1.Orchestrator/Generate\n\nCtrl-C ends.\n"
    );
    text
}

/// Columns as wide as their widest cell, two spaces apart.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    let lines = || std::iter::once(&header).chain(rows);
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines() {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_can_be_pasted() {
        let member = |label: &str, port, model: Option<&str>| Member {
            label: label.to_owned(),
            address: ([127, 0, 0, 1], port).into(),
            model: model.map(str::to_owned),
        };
        let members =
            [member("orchestrator", 7450, None), member("target-verifier", 40001, Some("m on cpu"))];
        assert_eq!(
            greeting(&members, "127.0.0.1:7450"),
            "SERVICE          ADDRESS          MODEL
orchestrator     127.0.0.1:7450   -
target-verifier  127.0.0.1:40001  m on cpu

foretoken generate --server 127.0.0.1:7450 \"The capital of France is\"
grpcurl -plaintext -d '{\"text\": \"The capital of France is\", \"max_tokens\": 16}' 127.0.0.1:7450 foretoken.v1.Orchestrator/Generate

Ctrl-C ends.
"
        );
    }
}
