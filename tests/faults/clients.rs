//! Clients that go away, run out of time, or do not read.

use std::time::Duration;

use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_runtime::{Runtime, RuntimeConfig};
use foretoken_testkit::client::{generate, ids_request};
use foretoken_testkit::cluster::Cluster;
use foretoken_testkit::table::random_table;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;
use tonic::{Code, IntoRequest};

use crate::support::{Pace, Reading, VOCAB, assert_status, model, target, until, warm};

fn holds_nothing(runtime: &Runtime) -> bool {
    let stats = runtime.stats();
    (stats.sessions, stats.kv_used) == (0, 0)
}

/// ROCm/ATOM#1562, ai-dynamo/dynamo#7489: whenever a client goes, what it held at both workers is freed.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_drop_at_any_point_leave_nothing_behind() {
    let config = RuntimeConfig { grace: Duration::from_millis(100), ..RuntimeConfig::default() };
    let host = model("target", random_table(1, VOCAB, 0), &config);
    let draft_host = model("draft", random_table(2, VOCAB, 0), &config);
    let draft_runtime = draft_host.runtime.clone();
    let drafts = vec![foretoken_draft_worker::Source::Model(draft_host)];
    let cluster = Cluster::start(host, drafts, Config { max_requests: 100, ..Config::default() }).await;
    let mut clients = JoinSet::new();
    for number in 0..100_u64 {
        let channel = cluster.orchestrator.channel();
        clients.spawn(async move {
            let drafter = [v1::DrafterKind::Unspecified, v1::DrafterKind::None][number as usize % 2];
            let request = v1::GenerateRequest {
                drafter: drafter.into(),
                sampling: Some(warm()),
                ..ids_request(&vec![1; 1 + number as usize * 3], 400)
            };
            // Some do not even wait for the answer to begin.
            let point = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
            if point < 40 {
                let mut client = v1::orchestrator_client::OrchestratorClient::new(channel);
                let _dropped =
                    tokio::time::timeout(Duration::from_micros(point * 100), client.generate(request)).await;
                return;
            }
            match Reading::over(channel, request).await {
                Ok(mut reading) => {
                    reading.until(|tokens| tokens.len() as u64 > point - 40).await.unwrap();
                }
                // All sessions of a worker may be taken.
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}"),
            }
        });
    }
    clients.join_all().await;
    until("both workers hold nothing", || holds_nothing(&cluster.runtime) && holds_nothing(&draft_runtime))
        .await;
    assert_eq!(generate(&cluster.orchestrator, ids_request(&[0], 5)).await.unwrap().tokens.len(), 5);
}

/// A finished answer frees its sessions at once, not after the grace time.
#[tokio::test(flavor = "multi_thread")]
async fn a_finished_answer_holds_nothing() {
    let draft_host = model("draft", random_table(2, VOCAB, 0), &RuntimeConfig::default());
    let draft_runtime = draft_host.runtime.clone();
    let drafts = vec![foretoken_draft_worker::Source::Model(draft_host)];
    let cluster = Cluster::start(target(random_table(1, VOCAB, 0)), drafts, Config::default()).await;
    let began = std::time::Instant::now();
    generate(&cluster.orchestrator, ids_request(&[0], 50)).await.unwrap();
    until("both workers hold nothing", || holds_nothing(&cluster.runtime) && holds_nothing(&draft_runtime))
        .await;
    assert!(began.elapsed() < RuntimeConfig::default().grace / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_the_answer_and_frees_its_session() {
    let pace = Pace::of(Duration::from_millis(5));
    let host = target(pace.apply(random_table(1, VOCAB, 0)));
    let cluster = Cluster::start(host, vec![], Config::default()).await;
    let mut request = ids_request(&[0, 1], 4000).into_request();
    request.set_timeout(Duration::from_millis(300));
    let mut reading = Reading::over(cluster.orchestrator.channel(), request).await.unwrap();
    let status = reading.finish().await.unwrap_err();
    assert_status(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    assert!(!reading.tokens.is_empty(), "what was committed in time arrives");
    until("the session is gone", || holds_nothing(&cluster.runtime)).await;
    pace.set(Duration::ZERO);
    assert_eq!(generate(&cluster.orchestrator, ids_request(&[0], 5)).await.unwrap().tokens.len(), 5);
}

/// A client that does not read stops its own passes, by the grant, and nobody else's.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_holds_up_itself_only() {
    let cluster = Cluster::start(target(random_table(1, VOCAB, 0)), vec![], Config::default()).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", cluster.orchestrator.address)).unwrap();
    // A window that a few events fill.
    let channel = endpoint.initial_stream_window_size(Some(512)).connect_lazy();
    let mut slow = Reading::over(channel, ids_request(&[0, 1], 4000)).await.unwrap();
    assert!(slow.until(|tokens| !tokens.is_empty()).await.unwrap().is_none());

    // Its passes come to a halt: no more for as long as 20 answers of others take.
    let (last, still) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    until("the slow client's passes stop", || {
        let passes = cluster.runtime.stats().passes;
        still.set(if last.replace(passes) == passes { still.get() + 1 } else { 0 });
        still.get() > 50
    })
    .await;
    let before = cluster.runtime.stats().passes;
    let mut answers = 0;
    for _ in 0..20 {
        answers +=
            generate(&cluster.orchestrator, ids_request(&[0], 30)).await.unwrap().ledger().target_passes;
    }
    let passes = cluster.runtime.stats().passes - before;
    // Reading ahead adds a pass or two to an answer.
    assert!(passes <= u64::from(answers) + 3 * 20, "{passes} passes for {answers} of the others");
    assert!(before < 1000, "{before} passes for a client that took one event");

    // It loses nothing by having been slow.
    slow.finish().await.unwrap();
    let quick = generate(&cluster.orchestrator, ids_request(&[0, 1], 4000)).await.unwrap();
    assert_eq!(slow.ids(), quick.ids());
}
