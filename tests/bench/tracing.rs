//! What telemetry costs the services' processors: the same answers with every trace recorded and with none, or with
//! metrics kept and scraped and with none.
//!
//! `cargo build --release --workspace && FORETOKEN_TEST_MODEL=… cargo bench --workspace --bench tracing` prints CPU
//! seconds per token of three arms, and by how much each takes more than another, with an upper 95 % bound:
//!
//! * `off`: services that export nothing;
//! * `unsampled`: services that export, asked by clients whose trace is not sampled;
//! * `sampled`: the same processes, asked by clients whose trace is.
//!
//! The second and third arms share their processes, so the bound between them is narrow. Where a process's memory happens
//! to lie, and which was started first, makes it a little faster or slower for as long as it lives: a comparison with the
//! first arm has that in it, and a wide bound. Its services are started anew for each epoch, first in every other.
//! `-- metrics` compares services whose metrics are scraped with such as keep none; a number is how many epochs there are.
//!
//! * Arms take turns of two answers, in an order that turns too, so that a busy machine disturbs all alike: how fast the
//!   memory is changes within seconds. Only the second answer is measured: after another process's turn the first takes
//!   longer, and no order is fair to arms of which two share a process.
//! * What is exported is so behind its answers. So the exporter's threads count for the sampled arm whenever they run, and
//!   so does all that happens while a round waits for their end; only what the threads of the connections do for an export
//!   during a round falls to whose turn it is. The collector's own time is not counted.
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
use tonic::Request;
use tonic::transport::Channel;

/// Times that services are started, unless told otherwise.
const EPOCHS: usize = 8;
/// Rounds of an epoch.
const ROUNDS: usize = 6;
/// Turns of each arm in a round, a multiple of the orders that arms come in.
const TURNS: usize = 12;
/// Answers of a turn: only the last one is measured, those before it bring the caches back from whoever had them.
const ANSWERS: usize = 2;
const TOKENS: u32 = 48;
/// Longer than spans wait for their export.
const EXPORTED: Duration = Duration::from_millis(2_500);
const RESAMPLES: usize = 20_000;

/// Services that are asked in one way.
struct Arm {
    name: &'static str,
    /// Which of an epoch's clusters.
    cluster: usize,
    /// Whether the client's trace is sampled; none has no trace.
    sampled: Option<bool>,
}

/// Of the traces: the first cluster exports nothing.
const TRACES: [Arm; 3] = [
    Arm { name: "off", cluster: 0, sampled: None },
    Arm { name: "unsampled", cluster: 1, sampled: Some(false) },
    Arm { name: "sampled", cluster: 1, sampled: Some(true) },
];
/// Of the metrics: those of the second cluster are scraped.
const METRICS: [Arm; 2] =
    [Arm { name: "off", cluster: 0, sampled: None }, Arm { name: "scraped", cluster: 1, sampled: None }];

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
    async fn answer(&self, seed: u64, sampled: Option<bool>) -> Result<Vec<u32>> {
        let mut request = Request::new(v1::GenerateRequest {
            prompt: Some(v1::generate_request::Prompt::Text("one two three four one two three".into())),
            max_tokens: Some(TOKENS),
            draft_len: Some(4),
            seed: Some(seed),
            ignore_eos: true,
            ..v1::GenerateRequest::default()
        });
        if let Some(sampled) = sampled {
            let context = format!("00-{:032x}-{:016x}-{:02x}", seed + 1, seed + 1, u8::from(sampled));
            request.metadata_mut().insert("traceparent", context.parse()?);
        }
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
                let (Ok(name), Ok(stat)) =
                    (fs::read_to_string(task.join("comm")), fs::read_to_string(task.join("schedstat")))
                else {
                    continue;
                };
                let on_cpu =
                    stat.split_whitespace().next().context("schedstat begins with the time on a CPU")?;
                spent.insert(task.to_string_lossy().into_owned(), (name, on_cpu.parse()?));
            }
        }
        ensure!(!spent.is_empty(), "this kernel tells no /proc/PID/task/TID/schedstat");
        Ok(Spent(spent))
    }
}

/// Name and CPU time by thread.
struct Spent(HashMap<String, (String, u64)>);

impl Spent {
    /// Seconds that the threads of such names spent since `before`. What a thread spent that ended in between is not in it.
    fn since(&self, before: &Self, named: impl Fn(&str) -> bool) -> f64 {
        let threads = self.0.iter().filter(|(_, (name, _))| named(name)).map(|(thread, (_, now))| {
            let before = before.0.get(thread).map_or(0, |(_, before)| *before);
            now - before.min(*now)
        });
        threads.sum::<u64>() as f64 / 1e9
    }
}

/// Each arm's CPU seconds per token in each round of one epoch.
async fn epoch(number: usize, clusters: &[Cluster; 2], arms: &[Arm]) -> Result<Vec<Vec<f64>>> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    // The first round warms up.
    for round in 0..=ROUNDS {
        let (mut seconds, mut tokens) = (vec![0.0; arms.len()], 0);
        let before = [clusters[0].spent()?, clusters[1].spent()?];
        for turn in 0..TURNS {
            let seed = (((number * (ROUNDS + 1) + round) * TURNS + turn) * ANSWERS) as u64;
            let mut said = None;
            for place in 0..arms.len() {
                // Each order of the arms' circle, forwards and backwards.
                let place = if turn % 2 == 0 { place } else { arms.len() - 1 - place };
                let index = (place + turn / 2) % arms.len();
                let Arm { cluster, sampled, .. } = arms[index];
                let cluster = &clusters[cluster];
                for warm_up in 1..ANSWERS {
                    cluster.answer(seed + warm_up as u64, sampled).await?;
                }
                let begun = cluster.spent()?;
                let ids = cluster.answer(seed, sampled).await?;
                seconds[index] += cluster.spent()?.since(&begun, |thread| !exports(thread));
                tokens += ids.len();
                ensure!(
                    said.get_or_insert_with(|| ids.clone()) == &ids,
                    "the arms were answered differently"
                );
            }
        }
        let waiting = [clusters[0].spent()?, clusters[1].spent()?];
        tokio::time::sleep(EXPORTED).await;
        for (index, cluster) in clusters.iter().enumerate() {
            // The last arm of a cluster is the one whose answers are followed by work.
            let last = arms.iter().rposition(|arm| arm.cluster == index).context("a cluster without arms")?;
            let now = cluster.spent()?;
            let later =
                now.since(&before[index], exports) + now.since(&waiting[index], |thread| !exports(thread));
            // Of all answers, measured or not.
            seconds[last] += later / ANSWERS as f64;
        }
        if round > 0 {
            let each = tokens as f64 / arms.len() as f64;
            rounds.push(seconds.into_iter().map(|seconds| seconds / each).collect());
        }
    }
    Ok(rounds)
}

/// Whether a thread of this name belongs to the exporter.
fn exports(thread: &str) -> bool {
    thread.starts_with("OpenTelemetry")
}

/// The logarithm of how many times as much arm `b` takes as arm `a`: the median of an epoch's rounds, the mean over
/// epochs, and its one-sided upper 95 % bound. Epochs are drawn again with replacement, and rounds within each of them.
fn compare(epochs: &[Vec<Vec<f64>>], a: usize, b: usize) -> (f64, f64) {
    let median = |mut ratios: Vec<f64>| {
        ratios.sort_by(f64::total_cmp);
        f64::midpoint(ratios[(ratios.len() - 1) / 2], ratios[ratios.len() / 2])
    };
    let ratio = |round: &Vec<f64>| (round[b] / round[a]).ln();
    let mean = |medians: Vec<f64>| medians.iter().sum::<f64>() / medians.len() as f64;
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
                median((0..epoch.len()).map(|_| ratio(&epoch[below(epoch.len())])).collect())
            });
            mean(drawn.collect())
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let medians = epochs.iter().map(|epoch| median(epoch.iter().map(ratio).collect()));
    (mean(medians.collect()), means[RESAMPLES * 95 / 100])
}

fn percent(log: f64) -> f64 {
    (log.exp() - 1.0) * 100.0
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().collect();
    let by_metrics = args.iter().any(|arg| arg == "metrics");
    let arms: &[Arm] = if by_metrics { &METRICS } else { &TRACES };
    let count = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(EPOCHS);
    let sink = Sink::start().await;
    let export = ["--otlp-endpoint", &sink.endpoint, "--trace-ratio", "1", "--metrics-exporter", "none"];
    let with: &[&str] = if by_metrics { &[] } else { &export };
    let mut epochs = Vec::with_capacity(count);
    for number in 0..count {
        let clusters = if number % 2 == 0 {
            [Cluster::start(&[], false).await?, Cluster::start(with, by_metrics).await?]
        } else {
            let with = Cluster::start(with, by_metrics).await?;
            [Cluster::start(&[], false).await?, with]
        };
        let rounds = epoch(number, &clusters, arms).await?;
        let means = (0..arms.len()).map(|arm| rounds.iter().map(|round| round[arm]).sum::<f64>());
        let means: Vec<_> = arms
            .iter()
            .zip(means)
            .map(|(arm, sum)| format!("{} {:.4}", arm.name, sum / ROUNDS as f64 * 1e3))
            .collect();
        println!("epoch {number:>2}, CPU ms per token: {}", means.join(", "));
        epochs.push(rounds);
    }
    for (a, b) in (0..arms.len()).flat_map(|a| (a + 1..arms.len()).map(move |b| (a, b))) {
        let (mean, upper) = compare(&epochs, a, b);
        println!(
            "{} against {}: {:+.2} %, at most {:+.2} % (95 %, {count} epochs of {ROUNDS} rounds)",
            arms[b].name,
            arms[a].name,
            percent(mean),
            percent(upper)
        );
    }
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{} spans exported; load {}", sink.spans().len(), load.trim());
    Ok(())
}
