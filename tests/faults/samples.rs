//! Several samples of one request: each an answer of its own, all of them one request.

use std::collections::BTreeSet;
use std::time::Duration;

use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{events_at, generate, ids_request, samples_at};
use foretoken_testkit::cluster::Cluster;
use foretoken_testkit::table::random_table;
use tonic::Code;

use crate::support::{VOCAB, assert_status, draft, model, target, until, warm, within};

fn request(n: u32, seed: u64) -> v1::GenerateRequest {
    v1::GenerateRequest {
        n: Some(n),
        seed: Some(seed),
        sampling: Some(warm()),
        draft_len: Some(3),
        ..ids_request(&[0, 1], 80)
    }
}

async fn cluster(config: Config) -> Cluster {
    let drafts = vec![draft(random_table(2, VOCAB, 0))];
    Cluster::start(target(random_table(1, VOCAB, 0)), drafts, config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_differ_replay_and_have_ledgers_of_their_own() {
    let cluster = cluster(Config::default()).await;
    let channel = cluster.orchestrator.channel();
    let samples = samples_at(channel.clone(), request(16, 5)).await.unwrap();
    assert_eq!(samples.len(), 16);
    let different: BTreeSet<_> = samples.iter().map(|sample| sample.ids()).collect();
    assert_eq!(different.len(), 16);
    for sample in &samples {
        assert_eq!(sample.tokens.len(), 80);
        assert_eq!(sample.ledger().output_tokens, 80);
        assert_eq!(sample.finished.speculation_off, []);
        assert!(sample.ledger().accepted > 0);
    }
    let ids = |samples: &[foretoken_testkit::client::Answer]| -> Vec<_> {
        samples.iter().map(|sample| sample.ids()).collect()
    };
    let again = samples_at(channel.clone(), request(16, 5)).await.unwrap();
    assert_eq!(ids(&again), ids(&samples));
    // A sample does not depend on how many there are, and the only one is the first.
    let fewer = samples_at(channel, request(2, 5)).await.unwrap();
    assert_eq!(ids(&fewer), ids(&samples[..2]));
    let one =
        generate(&cluster.orchestrator, v1::GenerateRequest { n: None, ..request(1, 5) }).await.unwrap();
    assert_eq!(one.ids(), samples[0].ids());
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_run_at_once_and_share_passes() {
    let cluster = cluster(Config::default()).await;
    samples_at(cluster.orchestrator.channel(), v1::GenerateRequest { draft_len: Some(0), ..request(8, 1) })
        .await
        .unwrap();
    let stats = cluster.runtime.stats();
    assert!(stats.shared_passes > 40, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_cancelled_together() {
    let config = RuntimeConfig { grace: Duration::from_millis(100), ..RuntimeConfig::default() };
    let host = model("target", random_table(1, VOCAB, 0), &config);
    let cluster = Cluster::start(host, vec![], Config::default()).await;
    let long = v1::GenerateRequest { max_tokens: Some(4000), ..request(8, 1) };
    let mut events = events_at(cluster.orchestrator.channel(), long).await.unwrap();
    within(events.message()).await.unwrap();
    assert_eq!(cluster.runtime.stats().sessions, 8);
    drop(events);
    until("all samples are gone", || cluster.runtime.stats().sessions == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_sample_counts_as_a_request_in_work() {
    let cluster = cluster(Config { max_requests: 4, ..Config::default() }).await;
    let channel = cluster.orchestrator.channel();
    let status = samples_at(channel.clone(), request(5, 1)).await.unwrap_err();
    assert_status(&status, Code::InvalidArgument, "INVALID_FIELD");
    assert!(status.message().contains("between 1 and 4"), "{status:?}");
    let long = v1::GenerateRequest { max_tokens: Some(4000), ..request(3, 1) };
    let events = events_at(channel.clone(), long).await.unwrap();
    let status = samples_at(channel.clone(), request(2, 1)).await.unwrap_err();
    assert_status(&status, Code::ResourceExhausted, "REQUESTS_FULL");
    assert_eq!(samples_at(channel.clone(), request(1, 1)).await.unwrap().len(), 1);
    drop(events);
    let description = foretoken_testkit::client::describe(&cluster.orchestrator).await;
    let limits = description.limits.unwrap();
    assert_eq!((limits.max_samples, limits.max_logprobs), (4, 20));
}
