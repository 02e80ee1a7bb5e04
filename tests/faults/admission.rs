//! Too much at once: refused at start with numbers, or at admission with a hint when to ask again.

use std::time::Duration;

use foretoken_orchestrator::Config;
use foretoken_proto::error::retry_after_of;
use foretoken_runtime::{Limits, Runtime, RuntimeConfig, StartError};
use foretoken_testkit::client::{generate, ids_request};
use foretoken_testkit::cluster::Cluster;
use foretoken_testkit::table::{TableModel, random_table};
use tonic::Code;

use crate::support::{CONTEXT, Pace, Reading, VOCAB, assert_status, model, target};

#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_allowed_are_refused_with_a_hint() {
    let pace = Pace::of(Duration::from_millis(5));
    let host = target(pace.apply(random_table(1, VOCAB, 0)));
    let cluster = Cluster::start(host, vec![], Config { max_requests: 2, ..Config::default() }).await;
    let request = || ids_request(&[0, 1], 300);
    let first = Reading::start(&cluster.orchestrator, request()).await.unwrap();
    let mut second = Reading::start(&cluster.orchestrator, request()).await.unwrap();
    let status = generate(&cluster.orchestrator, request()).await.unwrap_err();
    assert_status(&status, Code::ResourceExhausted, "REQUESTS_FULL");
    assert!(retry_after_of(&status).is_some_and(|hint| hint > Duration::ZERO), "{status:?}");
    assert!(status.message().contains('2') && status.message().contains("--max-requests"), "{status:?}");

    // A client that goes makes room; so does an answer that ends.
    drop(first);
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    let mut third = loop {
        match Reading::start(&cluster.orchestrator, request()).await {
            Ok(reading) => break reading,
            Err(status) => assert_eq!(crate::support::reason(&status), "REQUESTS_FULL"),
        }
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    pace.set(Duration::ZERO);
    second.finish().await.unwrap();
    third.finish().await.unwrap();
}

/// vllm-project/vllm#9995, mlc-ai/mlc-llm#1827, ggml-org/llama.cpp#17017: what does not fit is refused at the start, with
/// the numbers, and not later by the system.
#[test]
fn a_cache_beyond_the_memory_is_refused_at_start_with_numbers() {
    let start = |config| {
        let model = TableModel::new("target", VOCAB, CONTEXT, random_table(1, VOCAB, 0));
        Runtime::start(model, &config)
    };
    // A table model needs four bytes a position.
    let config =
        RuntimeConfig { kv_tokens: Some(1 << 20), memory_limit: Some(1 << 20), ..RuntimeConfig::default() };
    let error = start(config.clone()).unwrap_err();
    assert!(matches!(error, StartError::Memory { kv_bytes: 4_194_304, limit: 1_048_576, .. }), "{error:?}");
    for part in ["1048576 positions", "4 MiB", "1 MiB", "--kv-tokens", "--memory-limit"] {
        assert!(error.to_string().contains(part), "{part:?} is not in {error}");
    }
    let fits = RuntimeConfig { kv_tokens: Some(1 << 18), ..config };
    assert_eq!(start(fits).unwrap().kv_tokens(), 1 << 18);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_could_never_fit_is_told_apart_from_one_that_does_not_fit_now() {
    let pace = Pace::of(Duration::from_millis(5));
    let config = RuntimeConfig { kv_tokens: Some(500), ..RuntimeConfig::default() };
    let host = model("target", pace.apply(random_table(1, VOCAB, 0)), &config);
    let cluster = Cluster::start(host, vec![], Config::default()).await;

    let status = generate(&cluster.orchestrator, ids_request(&[0, 1], 499)).await.unwrap_err();
    assert_status(&status, Code::FailedPrecondition, "KV_TOO_SMALL");
    assert!(status.message().contains("501") && status.message().contains("500"), "{status:?}");
    assert!(retry_after_of(&status).is_none(), "asking again would not help");

    let first = Reading::start(&cluster.orchestrator, ids_request(&[0, 1], 298)).await.unwrap();
    let status = generate(&cluster.orchestrator, ids_request(&[0, 1], 199)).await.unwrap_err();
    assert_status(&status, Code::ResourceExhausted, "KV_FULL");
    for part in ["201", "200", "500"] {
        assert!(status.message().contains(part), "{part} is not in {status:?}");
    }
    assert!(retry_after_of(&status).is_some());
    // What fits beside it is taken.
    pace.set(Duration::ZERO);
    assert_eq!(generate(&cluster.orchestrator, ids_request(&[0, 1], 198)).await.unwrap().tokens.len(), 198);
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_sessions_than_a_verifier_takes_are_refused_with_a_hint() {
    let pace = Pace::of(Duration::from_millis(5));
    let limits = Limits { max_sessions: 1, ..Limits::default() };
    let config = RuntimeConfig { limits, ..RuntimeConfig::default() };
    let host = model("target", pace.apply(random_table(1, VOCAB, 0)), &config);
    let cluster = Cluster::start(host, vec![], Config::default()).await;
    let mut first = Reading::start(&cluster.orchestrator, ids_request(&[0, 1], 200)).await.unwrap();
    let status = generate(&cluster.orchestrator, ids_request(&[0, 1], 5)).await.unwrap_err();
    assert_status(&status, Code::ResourceExhausted, "SESSIONS_FULL");
    assert!(retry_after_of(&status).is_some());
    pace.set(Duration::ZERO);
    first.finish().await.unwrap();
}
