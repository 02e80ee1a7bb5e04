//! What tracing costs the services' processors: the same answers with every trace recorded and with none.
//!
//! `cargo build --release --workspace && FORETOKEN_TEST_MODEL=… cargo bench --workspace --bench tracing` prints the CPU
//! seconds per token of two clusters of service processes, one exporting every trace to a collector in this process and
//! one exporting nothing, and by how much the first needs more, with an upper 95 % bound. Both are asked the same in
//! turns, so that a busy machine disturbs both alike; the collector's own time is not counted. A quiet machine gives a
//! narrow bound.

#![allow(clippy::print_stdout, reason = "a benchmark's output")]

use anyhow::{Context, Result};
use foretoken_proto::v1;
use foretoken_testkit::client::generate_at;
use foretoken_testkit::otlp::Sink;
use foretoken_tests::process::{Service, ready};
use tonic::transport::Channel;

/// Pairs of measurements.
const PAIRS: usize = 24;
/// Answers of one measurement, so that the clock's ticks of 10 ms matter little.
const ANSWERS: u64 = 2;
const TOKENS: u32 = 64;

struct Cluster {
    services: [Service; 3],
    channel: Channel,
}

impl Cluster {
    async fn start(args: &[&str]) -> Result<Self> {
        let verifier = Service::verifier_with(args);
        let draft_worker = Service::draft_worker_with("ngram", args);
        let orchestrator = Service::orchestrator(&verifier, &[&draft_worker], args);
        let channel = ready(&orchestrator, 1).await;
        Ok(Self { services: [orchestrator, draft_worker, verifier], channel })
    }

    /// CPU seconds per token of some answers, and what they were.
    async fn measure(&self, seed: u64) -> Result<(f64, Vec<String>)> {
        let before = self.cpu_seconds()?;
        let (mut texts, mut tokens) = (Vec::new(), 0);
        for answer in 0..ANSWERS {
            let request = v1::GenerateRequest {
                prompt: Some(v1::generate_request::Prompt::Text("one two three four one two three".into())),
                max_tokens: Some(TOKENS),
                draft_len: Some(4),
                seed: Some(seed * ANSWERS + answer),
                ..v1::GenerateRequest::default()
            };
            let answer = generate_at(self.channel.clone(), request).await?;
            tokens += answer.tokens.len();
            texts.push(answer.text());
        }
        Ok(((self.cpu_seconds()? - before) / tokens as f64, texts))
    }

    /// Time of all threads of the three processes, user and system.
    fn cpu_seconds(&self) -> Result<f64> {
        let mut ticks = 0.0;
        for service in &self.services {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", service.pid()))?;
            let (_, fields) = stat.rsplit_once(')').context("a process' stat names its command")?;
            let fields: Vec<&str> = fields.split_whitespace().collect();
            // utime and stime: fields 14 and 15, of which the first two are in front of the bracket.
            for field in fields.get(11..13).context("a process' stat has its times")? {
                ticks += field.parse::<f64>()?;
            }
        }
        // USER_HZ is 100 on every architecture that Linux's interface promises it for.
        Ok(ticks / 100.0)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let sink = Sink::start().await;
    let plain = Cluster::start(&[]).await?;
    let export = ["--otlp-endpoint", &sink.endpoint, "--trace-ratio", "1", "--metrics-exporter", "none"];
    let traced = Cluster::start(&export).await?;
    let (mut ratios, mut sums) = (Vec::with_capacity(PAIRS), [0.0; 2]);
    // The first pair warms caches and connections up.
    for pair in 0..=PAIRS as u64 {
        let ((without, expected), (with, texts)) = if pair % 2 == 0 {
            let first = plain.measure(pair).await?;
            (first, traced.measure(pair).await?)
        } else {
            let first = traced.measure(pair).await?;
            (plain.measure(pair).await?, first)
        };
        anyhow::ensure!(texts == expected, "the clusters answered differently");
        if pair > 0 {
            ratios.push((with / without).ln());
            sums = [sums[0] + without, sums[1] + with];
        }
    }
    let n = PAIRS as f64;
    let mean = ratios.iter().sum::<f64>() / n;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let upper = mean + t_95(n - 1.0) * (variance / n).sqrt();
    let percent = |log: f64| (log.exp() - 1.0) * 100.0;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("CPU ms per token, untraced {:>8.3}", sums[0] / n * 1e3);
    println!("CPU ms per token, traced   {:>8.3}", sums[1] / n * 1e3);
    println!("tracing costs {:+.2} %, at most {:+.2} % (95 %, {PAIRS} pairs)", percent(mean), percent(upper));
    println!("{} spans exported; load {}", sink.spans().len(), load.trim());
    Ok(())
}

/// The one-sided 95 % point of Student's t, by Cornish and Fisher's expansion about the normal's (Abramowitz and Stegun
/// 26.7.5): right to three digits from ten degrees of freedom on.
fn t_95(degrees: f64) -> f64 {
    let z: f64 = 1.644_853_627;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / degrees + second / degrees.powi(2)
}
