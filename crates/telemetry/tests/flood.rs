//! A collector that accepts connections and never answers, under more spans than any request makes.
//!
//! A process of its own: telemetry is set up once per process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops where its premises fail")]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use foretoken_telemetry::timed::TimedSpan;
use foretoken_telemetry::{Context, TelemetryConfig, init, names};

/// Text on every span, so that a queue without a bound would show.
const BYTES: usize = 1 << 10;

/// Twice what the exporter's queue and a batch on its way hold.
const FILL: usize = 20_000;

/// These would be 200 MB more.
const FLOOD: usize = 200_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_collector_costs_spans_and_neither_memory_nor_time() {
    // The kernel accepts into the backlog; nobody ever reads.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = TelemetryConfig {
        otlp_endpoint: Some(format!("http://{}", silent.local_addr().unwrap())),
        log_filter: "off".into(),
        ..TelemetryConfig::new("foretoken-flood")
    };
    let telemetry = init(&config).unwrap();

    make_spans(FILL);
    let (before, began) = (resident_bytes(), Instant::now());
    make_spans(FLOOD);
    let (grown, took) = (resident_bytes().saturating_sub(before), began.elapsed());
    assert!(grown < 32 << 20, "{grown} bytes were kept of {FLOOD} spans that nobody took");
    // Had each batch been waited for, these were hundreds of exports of five seconds.
    assert!(took < Duration::from_secs(60), "{FLOOD} spans took {took:?}");

    let began = Instant::now();
    telemetry.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(10), "the shutdown took {:?}", began.elapsed());
    drop(silent);
}

/// Spans of both kinds: lived, and told.
fn make_spans(count: usize) {
    let text = "x".repeat(BYTES);
    for _ in 0..count / 2 {
        drop(tracing::info_span!(target: "foretoken_flood", "lived", { names::OUTCOME } = text.as_str()));
        let now = std::time::SystemTime::now();
        let mut told = TimedSpan::serving(names::SPAN_FRAME, &Context::new(), now);
        told.set(names::OUTCOME, text.clone());
        told.end(now);
    }
}

/// Memory of this process that is in use.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    // Pages are 4 KiB or more; a machine with larger ones only sees less growth than there is.
    pages * 4096
}
