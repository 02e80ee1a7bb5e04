//! What a round costs beyond the models' own time: three services on loopback, models that take next to none.
//!
//! `cargo bench -p foretoken-tests --bench round` prints percentiles of the time between a round's tokens and the next
//! round's, as a client of the orchestrator sees them: a draft over one connection, its verdict over another, the
//! decision, and the tokens over a third. The models are tables over eight tokens, so that nearly all of it is transport,
//! queues and threads. Not here: what a link between machines adds, and rounds of several sessions at once.

#![allow(clippy::print_stdout, reason = "a benchmark's output")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foretoken_draft_worker::Source;
use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_proto::v1::generate_response::Event;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{events_at, ids_request};
use foretoken_testkit::cluster::{Cluster, host};
use foretoken_testkit::table::{TableModel, clocked_table};
use foretoken_testkit::vocabulary::letters;
use foretoken_worker::Host;

const VOCAB: usize = 8;
/// Tokens of the text that a token depends on, at most: the table's cost must not grow with the text.
const PERIOD: usize = 8;
/// Rounds that are timed.
const ROUNDS: usize = 2_000;
/// Rounds before them: connections, allocations and branch predictors warm up.
const WARM_UP: usize = 200;
/// Room for every round's tokens, whatever their number.
const CONTEXT: usize = (ROUNDS + WARM_UP) * 10;

#[tokio::main]
async fn main() -> Result<()> {
    // The target as its own drafter: every block passes whole, so all rounds of a run are alike.
    let drafts = vec![Source::Model(table("draft")?)];
    let cluster = Cluster::start(table("target")?, drafts, Config::default()).await;
    println!("{:<24} {:>8} {:>8} {:>8} {:>8}   ms", "a round on loopback", "p50", "p90", "p99", "mean");
    for draft_len in [1, 4, 8] {
        let mut request = ids_request(&[0, 1, 2], (ROUNDS + WARM_UP) as u32 * (draft_len + 1));
        request.drafter = v1::DrafterKind::Model.into();
        request.draft_len = Some(draft_len);
        tell(&format!("{draft_len} drafted"), &rounds(&cluster, request, draft_len as usize + 1).await?);
    }
    Ok(())
}

fn table(name: &str) -> Result<Host> {
    let tokenizer = letters(VOCAB, false)?;
    let model = TableModel::new(name, VOCAB, CONTEXT, clocked_table(1, VOCAB, PERIOD, 0));
    Ok(host(model, &tokenizer, &RuntimeConfig::default()))
}

/// Times between the arrivals of rounds, in rising order.
async fn rounds(cluster: &Cluster, request: v1::GenerateRequest, tokens: usize) -> Result<Vec<Duration>> {
    let mut events = events_at(cluster.orchestrator.channel(), request).await?;
    let mut arrivals = Vec::with_capacity(ROUNDS + WARM_UP);
    while let Some(response) = events.message().await? {
        match response.event {
            Some(Event::Tokens(event)) => {
                // The first token comes from the prompt's pass, and the last round may be cut.
                if event.tokens.len() == tokens {
                    arrivals.push(Instant::now());
                }
            }
            Some(Event::Finished(event)) => {
                let ledger = event.ledger.context("a finished answer has no ledger")?;
                ensure!(ledger.accepted == ledger.drafted, "blocks were cut short: {ledger:?}");
            }
            Some(Event::Started(_)) | None => {}
        }
    }
    ensure!(
        arrivals.len() > WARM_UP + ROUNDS / 2,
        "only {} events held the {tokens} tokens of a round",
        arrivals.len()
    );
    let mut times: Vec<_> = arrivals[WARM_UP..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    times.sort_unstable();
    Ok(times)
}

fn tell(name: &str, times: &[Duration]) {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    // Were rounds to arrive in bursts, the mean would be above most of the times.
    let mean = times.iter().sum::<Duration>().as_secs_f64() / times.len() as f64 * 1e3;
    println!("{name:<24} {:>8.3} {:>8.3} {:>8.3} {mean:>8.3}", at(0.5), at(0.9), at(0.99));
}
