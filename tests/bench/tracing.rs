//! What telemetry costs the services' processors: the same answers with every trace recorded and with none, or with
//! metrics kept and scraped and with none.
//!
//! `cargo build --release --workspace && FORETOKEN_TEST_MODEL=… cargo bench --workspace --bench tracing` prints the CPU
//! seconds per token of two clusters of service processes, one exporting every trace to a collector in this process and
//! one exporting nothing, and by how much the first needs more, with an upper 95 % bound. `-- metrics` compares metrics
//! instead; a number behind it is how many epochs there are.
//!
//! * Both clusters are asked the same in turns, so that a busy machine disturbs both alike. A pair's window lasts until
//!   the next pair's, so that what is exported later is counted too. The collector's own time is not.
//! * Where a process's memory happens to lie makes it a little faster or slower for as long as it lives. So both clusters
//!   are started anew for each epoch, and the bound is one over epochs.
//! * The verifier has one thread: several wait for each other by spinning, which costs more or less by chance.
//!
//! A quiet machine gives a narrow bound.

#![allow(clippy::print_stdout, reason = "a benchmark's output")]

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use foretoken_proto::v1;
use foretoken_testkit::client::generate_at;
use foretoken_testkit::otlp::Sink;
use foretoken_tests::process::{Service, ready};
use tonic::transport::Channel;

/// Pairs of clusters, unless told otherwise.
const EPOCHS: usize = 12;
/// Pairs of answers of an epoch.
const PAIRS: usize = 12;
/// Of these, left out at either end before the mean is taken.
const TRIMMED: usize = PAIRS / 4;
const TOKENS: u32 = 48;
/// Longer than spans wait for their export.
const EXPORTED: Duration = Duration::from_millis(2_500);
const RESAMPLES: usize = 20_000;

struct Cluster {
    services: [Service; 3],
    channel: Channel,
    /// Where metrics are scraped.
    metrics: Vec<String>,
}

impl Cluster {
    /// All services with `args`, and each with a port for its metrics where these are wanted.
    async fn start(args: &[&str], with_metrics: bool) -> Result<Self> {
        let mut metrics = Vec::new();
        for _ in 0..if with_metrics { 3 } else { 0 } {
            // Nobody else takes a port that was just free before the service does.
            metrics.push(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string());
        }
        let args_of = |service: usize| {
            let listen = metrics.get(service).map(|address| ["--metrics-listen", address.as_str()]);
            [args, listen.as_ref().map_or(&[][..], |listen| &listen[..])].concat()
        };
        let verifier = Service::verifier_with(&[&args_of(0)[..], &["--threads", "1"]].concat());
        let draft_worker = Service::draft_worker_with("ngram", &args_of(1));
        let orchestrator = Service::orchestrator(&verifier, &[&draft_worker], &args_of(2));
        let channel = ready(&orchestrator, 1).await;
        Ok(Self { services: [orchestrator, draft_worker, verifier], channel, metrics })
    }

    /// One answer, and a scrape where there is anything to scrape: more often than any Prometheus does. Gives the
    /// answer's ids.
    async fn answer(&self, seed: u64) -> Result<Vec<u32>> {
        let request = v1::GenerateRequest {
            prompt: Some(v1::generate_request::Prompt::Text("one two three four one two three".into())),
            max_tokens: Some(TOKENS),
            draft_len: Some(4),
            seed: Some(seed),
            ignore_eos: true,
            ..v1::GenerateRequest::default()
        };
        let answer = generate_at(self.channel.clone(), request).await?;
        for address in &self.metrics {
            let mut stream = TcpStream::connect(address)?;
            write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
            let mut page = String::new();
            stream.read_to_string(&mut page)?;
            ensure!(page.contains("foretoken_"), "no metrics at {address}: {page}");
        }
        Ok(answer.ids())
    }

    /// CPU time of each thread of the three processes until now, nanoseconds.
    fn spent(&self) -> Result<Spent> {
        let mut spent = HashMap::new();
        for service in &self.services {
            for task in fs::read_dir(format!("/proc/{}/task", service.pid()))? {
                let task = task?.path();
                // A thread may end while it is looked at.
                let Ok(stat) = fs::read_to_string(task.join("schedstat")) else { continue };
                let on_cpu =
                    stat.split_whitespace().next().context("schedstat begins with the time on a CPU")?;
                spent.insert(task.to_string_lossy().into_owned(), on_cpu.parse()?);
            }
        }
        ensure!(!spent.is_empty(), "this kernel tells no /proc/PID/task/TID/schedstat");
        Ok(Spent(spent))
    }
}

/// CPU time by thread.
struct Spent(HashMap<String, u64>);

impl Spent {
    /// Seconds spent since `before`. What a thread spent that ended in between is not in it.
    fn since(&self, before: &Self) -> f64 {
        let threads = self.0.iter().map(|(thread, now)| now - before.0.get(thread).unwrap_or(&0).min(now));
        threads.sum::<u64>() as f64 / 1e9
    }
}

/// How many times as much CPU the second cluster takes per token, in each pair of one epoch: logarithms, and both
/// clusters' seconds per token over all of it.
async fn epoch(number: usize, clusters: &[Cluster; 2]) -> Result<(Vec<f64>, [f64; 2])> {
    let (mut ratios, mut sums, mut tokens) = (Vec::with_capacity(PAIRS), [0.0; 2], 0);
    let spent = || -> Result<[Spent; 2]> { Ok([clusters[0].spent()?, clusters[1].spent()?]) };
    let mut before = spent()?;
    // The first pair warms up.
    for pair in 0..=PAIRS {
        let seed = (number * (PAIRS + 1) + pair) as u64;
        let (first, second) = (pair % 2, 1 - pair % 2);
        let ids = [clusters[first].answer(seed).await?, clusters[second].answer(seed).await?];
        ensure!(ids[0] == ids[1], "the clusters answered differently");
        if pair == PAIRS {
            tokio::time::sleep(EXPORTED).await;
        }
        let now = spent()?;
        if pair > 0 {
            let [without, with] = [now[0].since(&before[0]), now[1].since(&before[1])];
            ratios.push((with / without).ln());
            sums = [sums[0] + without, sums[1] + with];
            tokens += ids[0].len();
        }
        before = now;
    }
    Ok((ratios, sums.map(|seconds| seconds / tokens as f64)))
}

/// The mean of what is left when [`TRIMMED`] values are left out at either end.
fn trimmed_mean(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let kept = &values[TRIMMED..values.len() - TRIMMED];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// The mean over epochs, and its one-sided upper 95 % bound: epochs are drawn again with replacement, and pairs within
/// each of them.
fn estimate(epochs: &[Vec<f64>]) -> (f64, f64) {
    let mean = |epochs: Vec<Vec<f64>>| {
        let count = epochs.len() as f64;
        epochs.into_iter().map(trimmed_mean).sum::<f64>() / count
    };
    let mut state = 1_u64;
    let mut below = |limit: usize| {
        // SplitMix64: resampling need not be better.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    };
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = (0..epochs.len()).map(|_| {
                let epoch = &epochs[below(epochs.len())];
                (0..epoch.len()).map(|_| epoch[below(epoch.len())]).collect()
            });
            mean(drawn.collect())
        })
        .collect();
    means.sort_by(f64::total_cmp);
    (mean(epochs.to_vec()), means[RESAMPLES * 95 / 100])
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().collect();
    let by_metrics = args.iter().any(|arg| arg == "metrics");
    let count = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(EPOCHS);
    let sink = Sink::start().await;
    let export = ["--otlp-endpoint", &sink.endpoint, "--trace-ratio", "1", "--metrics-exporter", "none"];
    let (mut ratios, mut sums) = (Vec::with_capacity(count), [0.0; 2]);
    let percent = |log: f64| (log.exp() - 1.0) * 100.0;
    for number in 0..count {
        let with: &[&str] = if by_metrics { &[] } else { &export };
        let clusters = [Cluster::start(&[], false).await?, Cluster::start(with, by_metrics).await?];
        let (epoch, [without, with]) = epoch(number, &clusters).await?;
        println!(
            "epoch {number:>2}: {:>7.3} and {:>7.3} CPU ms per token, {:+.2} %",
            without * 1e3,
            with * 1e3,
            percent(trimmed_mean(epoch.clone()))
        );
        sums = [sums[0] + without, sums[1] + with];
        ratios.push(epoch);
    }
    let (mean, upper) = estimate(&ratios);
    let what = if by_metrics { "metrics cost" } else { "tracing costs" };
    let [without, with] = sums.map(|sum| sum / count as f64 * 1e3);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("CPU ms per token: {without:.3} without, {with:.3} with");
    println!(
        "{what} {:+.2} %, at most {:+.2} % (95 %, {count} epochs of {PAIRS} pairs)",
        percent(mean),
        percent(upper)
    );
    println!("{} spans exported; load {}", sink.spans().len(), load.trim());
    Ok(())
}
