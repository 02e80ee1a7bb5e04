//! Collectors that are dead, silent or slow: no request fails, and none waits for them.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use foretoken_proto::v1;
use foretoken_testkit::client::{Answer, generate_at};
use foretoken_testkit::otlp::Sink;
use foretoken_tests::process::{Service, ready};

/// Answers of one cluster. With one span per round and call they are more than the exporter's queue of a slow collector
/// would bear if anything waited for it.
const REQUESTS: u32 = 4;

/// Three services as processes that export to `endpoint`; their answers, and how long these took.
async fn answers(endpoint: Option<&str>) -> (Vec<Answer>, Duration) {
    let export = endpoint.map(|endpoint| vec!["--otlp-endpoint", endpoint]).unwrap_or_default();
    let verifier = Service::verifier_with(&export);
    let draft_worker = Service::draft_worker_with("ngram", &export);
    let orchestrator = Service::orchestrator(&verifier, &[&draft_worker], &export);
    let channel = ready(&orchestrator, 1).await;
    let began = Instant::now();
    let mut answers = Vec::new();
    for seed in 0..REQUESTS {
        let request = v1::GenerateRequest {
            prompt: Some(v1::generate_request::Prompt::Text("one two three one two three one".into())),
            max_tokens: Some(24),
            draft_len: Some(4),
            seed: Some(seed.into()),
            ..v1::GenerateRequest::default()
        };
        answers.push(generate_at(channel.clone(), request).await.expect("no request fails for a collector"));
    }
    let took = began.elapsed();
    // They end in order, and soon: the last spans are given up.
    for mut service in [orchestrator, draft_worker, verifier] {
        service.signal("TERM");
        assert!(service.wait(Duration::from_secs(20)).success());
    }
    (answers, took)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn no_request_fails_for_a_collector() {
    let (expected, without) = answers(None).await;
    let texts = |answers: &[Answer]| answers.iter().map(Answer::text).collect::<Vec<_>>();

    let refused = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("http://{}", refused.local_addr().unwrap());
    drop(refused);
    // Connections wait in its backlog for ever: the kernel accepts them, nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let black_hole = format!("http://{}", silent.local_addr().unwrap());
    let slow = Sink::start_slow(Duration::from_secs(3)).await;
    for (kind, endpoint) in [("dead", &dead), ("silent", &black_hole), ("slow", &slow.endpoint)] {
        let (answers, took) = answers(Some(endpoint)).await;
        assert_eq!(texts(&answers), texts(&expected), "with a {kind} collector");
        // A single wait for one of these collectors is three seconds or more. What tracing costs of the processor's
        // time is measured elsewhere, where nothing else runs.
        let limit = without * 2 + Duration::from_secs(2);
        assert!(took < limit, "with a {kind} collector {took:?}, without {without:?}");
    }
    drop(silent);
}
