//! Verifiers that are lost, share the load, or run another model than their pool.

use std::time::{Duration, Instant};

use foretoken_orchestrator::Config;
use foretoken_proto::error::retry_after_of;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{generate, ids_request};
use foretoken_testkit::cluster::{Cluster, ngram, orchestrator, orchestrator_of, verifier};
use foretoken_testkit::table::random_table;
use tokio::task::JoinSet;
use tonic::Code;

use crate::support::{Pace, Reading, VOCAB, assert_status, model, target, until_described};

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_verifier_ends_the_answer_with_a_status_in_time() {
    for drafts in [vec![], vec![ngram()]] {
        let pace = Pace::of(Duration::from_millis(2));
        let host = target(pace.apply(random_table(1, VOCAB, 0)));
        let cluster = Cluster::start(host, drafts, Config::default()).await;
        let mut reading = Reading::start(&cluster.orchestrator, ids_request(&[0, 1], 4000)).await.unwrap();
        assert!(reading.until(|tokens| tokens.len() > 30).await.unwrap().is_none());
        let Cluster { orchestrator, verifier, .. } = cluster;
        let began = Instant::now();
        verifier.stop().await;
        let status = reading.finish().await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_status(&status, Code::Unavailable, "VERIFIER_LOST");
        assert!(retry_after_of(&status).is_some());

        // The next request is refused at once, with the state of each verifier.
        until_described(&orchestrator, "the verifier is missed", |description| {
            !description.verifiers[0].ready
        })
        .await;
        let status = generate(&orchestrator, ids_request(&[0], 5)).await.unwrap_err();
        assert_status(&status, Code::Unavailable, "NO_VERIFIER");
        assert!(status.message().contains(&description_address(&orchestrator).await), "{status:?}");
    }
}

async fn description_address(node: &foretoken_testkit::cluster::Node) -> String {
    foretoken_testkit::client::describe(node).await.verifiers[0].address.clone()
}

/// A verifier that keeps silent is not waited for longer than allowed.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_verifier_is_given_up_in_time() {
    let pace = Pace::default();
    let host = target(pace.apply(random_table(1, VOCAB, 0)));
    let mut config = Config::default();
    config.timeouts.verify = Duration::from_millis(200);
    let cluster = Cluster::start(host, vec![], config).await;
    pace.set(Duration::from_millis(2500));
    let status = generate(&cluster.orchestrator, ids_request(&[0], 5)).await.unwrap_err();
    assert_status(&status, Code::Unavailable, "VERIFIER_TIMEOUT");
    assert!(status.message().contains("200 ms"), "{status:?}");
    // Nor is one that does not even open a session.
    let began = Instant::now();
    let status = generate(&cluster.orchestrator, ids_request(&[0], 5)).await.unwrap_err();
    assert_status(&status, Code::Unavailable, "VERIFIER_TIMEOUT");
    assert!(
        status.message().contains("200 ms") && began.elapsed() < Duration::from_millis(900),
        "{status:?}"
    );
    pace.set(Duration::ZERO);
    // The pass in progress cannot be taken back; it is over in time for a patient caller.
    crate::support::until("the session is gone", || cluster.runtime.stats().sessions == 0).await;
    assert_eq!(generate(&cluster.orchestrator, ids_request(&[0], 5)).await.unwrap().tokens.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_verifiers_share_the_load() {
    let pace = Pace::of(Duration::from_micros(500));
    let hosts = [(); 2].map(|()| target(pace.apply(random_table(1, VOCAB, 0))));
    let runtimes = [hosts[0].runtime.clone(), hosts[1].runtime.clone()];
    let [first, second] = hosts;
    let (first, second) = (verifier(first).await, verifier(second).await);
    let node = orchestrator(Config::default(), &[&first, &second], &[]).await;
    until_described(&node, "both are ready", |description| {
        description.verifiers.iter().all(|state| state.ready)
    })
    .await;
    let mut answers = JoinSet::new();
    for _ in 0..8 {
        let channel = node.channel();
        answers.spawn(async move {
            let mut reading = Reading::over(channel, ids_request(&[0, 1], 100)).await.unwrap();
            reading.finish().await.unwrap();
            reading.ids()
        });
    }
    let answers = answers.join_all().await;
    assert!(answers.iter().all(|ids| *ids == answers[0]));
    for runtime in &runtimes {
        assert!(runtime.stats().rows >= 300, "{:?}", runtimes.each_ref().map(|runtime| runtime.stats()));
    }

    // With one of them gone the other serves all.
    first.stop().await;
    for _ in 0..3 {
        assert_eq!(generate(&node, ids_request(&[0, 1], 100)).await.unwrap().ids(), answers[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verifier_of_another_model_is_left_out() {
    let ours = target(random_table(1, VOCAB, 0));
    let theirs = model("stranger", random_table(2, VOCAB, 0), &RuntimeConfig::default());
    let stranger_runtime = theirs.runtime.clone();
    let first = verifier(ours).await;
    let node_of_one = orchestrator(Config::default(), &[&first], &[]).await;
    node_of_one.healthy().await;
    let expected = generate(&node_of_one, ids_request(&[0, 1], 60)).await.unwrap().ids();

    let second = verifier(theirs).await;
    for _ in 0..5 {
        let node = orchestrator(Config::default(), &[&first, &second], &[]).await;
        let description = until_described(&node, "both are known", |description| {
            description
                .verifiers
                .iter()
                .all(|state| !matches!(state.reason.as_str(), "NOT_CONNECTED" | "NOT_SERVING"))
                && description.verifiers.iter().any(|state| state.ready)
        })
        .await;
        let ready: Vec<_> = description.verifiers.iter().filter(|state| state.ready).collect();
        assert_eq!(ready.len(), 1, "{description:?}");
        let left_out = description.verifiers.iter().find(|state| !state.ready).unwrap();
        assert_eq!(left_out.reason, "MODEL_MISMATCH");
        for part in ["table:stranger", "table:target"] {
            assert!(left_out.message.contains(part), "{part} is not in {left_out:?}");
        }
        // Whichever was first, it is the pool's model, and all requests are its.
        let answer = generate(&node, ids_request(&[0, 1], 60)).await.unwrap();
        assert_eq!(answer.started.target, description.target);
        if description.target == "target" {
            assert_eq!(answer.ids(), expected);
        }
    }
    crate::support::until("nothing is held", || stranger_runtime.stats().sessions == 0).await;
}

/// As a headless Service lists its pods: whoever stands under the name is found, whoever comes later too.
#[tokio::test(flavor = "multi_thread")]
async fn verifiers_are_found_under_a_name() {
    let node = verifier(target(random_table(1, VOCAB, 0))).await;
    let name = format!("dns:///localhost:{}", node.address.port());
    let nowhere = "dns:///no-such-host.invalid:7451".to_owned();
    let config = Config { verifiers: vec![name, nowhere.clone()], ..Config::default() };
    let orchestrator = orchestrator_of(config).await;
    let description =
        until_described(&orchestrator, "it is found and the other name is not", |description| {
            description.verifiers.iter().any(|state| state.ready)
                && description.verifiers.iter().any(|state| state.message.contains("looked up"))
        })
        .await;
    let ready = description.verifiers.iter().find(|state| state.ready).unwrap();
    assert_eq!(ready.address, node.address.to_string());
    let unresolved = description.verifiers.iter().find(|state| state.address == nowhere).unwrap();
    assert_eq!(unresolved.reason, "UNRESOLVED", "{unresolved:?}");
    assert_eq!(generate(&orchestrator, ids_request(&[0], 5)).await.unwrap().tokens.len(), 5);
}
