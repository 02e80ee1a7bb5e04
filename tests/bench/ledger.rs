//! What the ledger says of the default model over links of all lengths: is it whole, is it right, and is it worth it?
//!
//! `FORETOKEN_TEST_MODEL=$(tests/model_path) cargo bench --workspace --bench ledger` answers prompts over services in
//! processes of their own, whose links a proxy delays and limits, alone and several at once. Every ledger is checked to be
//! without remainder; the table shows what cannot be held by a test on a machine that others use, too: the
//! orchestrator's own share, and the delay that the ledger sees beside the one that was set.

#![allow(clippy::print_stdout, reason = "a benchmark's output")]

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_testkit::client::{Answer, generate_at};
use foretoken_testkit::cluster::orchestrator_of;
use foretoken_testkit::link_proxy::LinkProxy;
use foretoken_tests::ledger::{check, sum};
use foretoken_tests::process::Service;
use futures_util::future::join_all;

const PROMPTS: &str = include_str!("../e2e/prompts.txt");
/// Answers of each setting.
const ANSWERS: usize = 20;
const TOKENS: u32 = 48;

/// A link: delay each way, and bytes a second.
const LINKS: [(u64, Option<u64>); 5] = [(0, None), (1, None), (10, None), (40, None), (5, Some(1 << 20))];

#[tokio::main]
async fn main() -> Result<()> {
    let workers = [Service::verifier(), Service::draft_worker("ngram")];
    let links = workers.each_ref().map(|worker| worker.address.parse::<SocketAddr>().map(LinkProxy::start));
    let [verifier, draft] = links;
    let (verifier, draft) = (verifier?, draft?);
    let config = Config {
        verifiers: vec![verifier.address().to_string()],
        draft_workers: vec![draft.address().to_string()],
        ..Config::default()
    };
    let orchestrator = orchestrator_of(config).await;
    orchestrator.healthy().await;

    println!(
        "{:>9} {:>8} {:>7} {:>7} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "delay", "rate", "at once", "answers", "wall ms", "own p95", "own ms/r", "net ms/r", "seen", "gain"
    );
    let mut nearest = None;
    for (millis, rate) in LINKS {
        for link in [&verifier, &draft] {
            link.set_delay(Duration::from_millis(millis));
            link.set_rate(rate);
        }
        for at_once in [1, 4] {
            let mut answers = Vec::new();
            let mut prompts = PROMPTS.lines().cycle();
            while answers.len() < ANSWERS {
                let ask = |prompt| generate_at(orchestrator.channel(), request(prompt));
                let some: Vec<_> = prompts.by_ref().take(at_once).map(ask).collect();
                for answer in join_all(some).await {
                    answers.push(answer.context("a request failed")?);
                }
            }
            answers.iter().for_each(check);
            let line = Line::of(&answers)?;
            let near = *nearest.get_or_insert(line.net);
            println!(
                "{:>6} ms {:>8} {:>7} {:>7} {:>8.0} {:>8.1}% {:>9.3} {:>9.3} {:>9.3} {:>7.0}%",
                millis,
                rate.map_or("-".to_owned(), |rate| format!("{} kB/s", rate >> 10)),
                at_once,
                answers.len(),
                line.wall,
                line.own_share,
                line.own,
                line.net,
                line.net - near,
                line.gain
            );
        }
    }
    Ok(())
}

fn request(prompt: &str) -> v1::GenerateRequest {
    v1::GenerateRequest {
        prompt: Some(v1::generate_request::Prompt::Text(prompt.into())),
        max_tokens: Some(TOKENS),
        rounds: true,
        seed: Some(1),
        ..v1::GenerateRequest::default()
    }
}

/// A line of the table: milliseconds and per cent.
struct Line {
    wall: f64,
    /// 95th percentile of the share of the wall time.
    own_share: f64,
    /// 95th percentile of the own time a round.
    own: f64,
    /// The verifier's net time of each block or run, on average.
    net: f64,
    /// Of what plain decoding would have taken.
    gain: f64,
}

impl Line {
    fn of(answers: &[Answer]) -> Result<Self> {
        let millis = |nanos: u64| nanos as f64 / 1e6;
        let (mut shares, mut owns) = (Vec::new(), Vec::new());
        let (mut wall, mut net, mut gain, mut rounds) = (0.0, 0.0, 0.0, 0.0);
        for answer in answers {
            let ledger = answer.ledger();
            let stages = ledger.stages.as_ref().context("a ledger has stages")?;
            let of_answer = answer.finished.rounds.len() as f64 - 1.0;
            shares.push(100.0 * stages.own_ns as f64 / sum(stages).max(1) as f64);
            owns.push(millis(stages.own_ns) / of_answer.max(1.0));
            wall += millis(sum(stages));
            net += millis(stages.net_ns);
            gain += ledger.gain_seconds.unwrap_or(0.0) * 1e3;
            rounds += of_answer;
        }
        Ok(Self {
            wall: wall / answers.len() as f64,
            own_share: percentile(shares),
            own: percentile(owns),
            net: net / rounds,
            gain: 100.0 * gain / (wall + gain),
        })
    }
}

/// The 95th.
fn percentile(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() * 95 / 100).or(values.last()).copied().unwrap_or(f64::NAN)
}
