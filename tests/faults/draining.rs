//! Services that are asked to end: running answers finish, new ones go elsewhere or are refused by name.

use std::time::Duration;

use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_proto::v1::Origin;
use foretoken_testkit::client::{generate, ids_request};
use foretoken_testkit::cluster::{Cluster, orchestrator, verifier};
use foretoken_testkit::table::random_table;
use tonic::Code;

use crate::protocol::stream::{Drafting, Verifying, draft_open, verify_open, warm};
use crate::support::{Pace, Reading, VOCAB, assert_status, draft, target, until_described};

fn slow_target(pace: &Pace) -> foretoken_worker::Host {
    target(pace.apply(random_table(1, VOCAB, 0)))
}

/// The service's own refusal, or what the client makes of a connection that takes no new streams.
#[track_caller]
fn assert_turned_away(status: &tonic::Status) {
    match foretoken_proto::error::reason_of(status) {
        Some(reason) => assert_eq!((status.code(), reason.as_str()), (Code::Unavailable, "DRAINING")),
        None => assert!(std::error::Error::source(status).is_some(), "not of the connection: {status:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_orchestrator_finishes_its_answers_and_takes_no_new_ones() {
    let pace = Pace::of(Duration::from_millis(1));
    let cluster = Cluster::start(slow_target(&pace), vec![], Config::default()).await;
    // One connection for both: a draining server closes its door to new ones.
    let channel = cluster.orchestrator.channel();
    let mut running = Reading::over(channel.clone(), ids_request(&[0, 1], 400)).await.unwrap();
    assert!(running.until(|tokens| tokens.len() > 10).await.unwrap().is_none());
    cluster.orchestrator.drain.begin();
    let status = Reading::over(channel, ids_request(&[0, 1], 5)).await.err().unwrap();
    assert_turned_away(&status);
    running.finish().await.unwrap();
    assert_eq!(running.tokens.len(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_time_to_drain_is_over_a_running_answer_is_told() {
    let pace = Pace::of(Duration::from_millis(5));
    let cluster = Cluster::start(slow_target(&pace), vec![], Config::default()).await;
    let mut running = Reading::start(&cluster.orchestrator, ids_request(&[0, 1], 4000)).await.unwrap();
    assert!(running.until(|tokens| tokens.len() > 10).await.unwrap().is_none());
    cluster.orchestrator.drain.expire();
    assert_status(&running.finish().await.unwrap_err(), Code::Unavailable, "DRAINING");
    pace.set(Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_verifier_finishes_its_answers_and_the_other_takes_the_new_ones() {
    let pace = Pace::of(Duration::from_millis(1));
    let hosts = [slow_target(&pace), slow_target(&pace)];
    let runtimes = [hosts[0].runtime.clone(), hosts[1].runtime.clone()];
    let [first, second] = hosts;
    let (first, second) = (verifier(first).await, verifier(second).await);
    let node = orchestrator(Config::default(), &[&first, &second], &[]).await;
    until_described(&node, "both are ready", |description| {
        description.verifiers.iter().all(|state| state.ready)
    })
    .await;
    let mut running = Reading::start(&node, ids_request(&[0, 1], 400)).await.unwrap();
    assert!(running.until(|tokens| tokens.len() > 10).await.unwrap().is_none());
    let at_first = runtimes[0].stats().sessions == 1;
    let (leaving, other) = if at_first { (&first, &runtimes[1]) } else { (&second, &runtimes[0]) };
    leaving.drain.begin();
    let before = other.stats().rows;
    for _ in 0..4 {
        assert_eq!(generate(&node, ids_request(&[0, 1], 20)).await.unwrap().tokens.len(), 20);
    }
    assert!(other.stats().rows >= before + 80, "{:?}", other.stats());
    running.finish().await.unwrap();
    assert_eq!(running.tokens.len(), 400);
    let description = until_described(&node, "one has left", |description| {
        description.verifiers.iter().filter(|state| state.ready).count() == 1
    })
    .await;
    let left = description.verifiers.iter().find(|state| !state.ready).unwrap();
    assert!(!left.reason.is_empty() && !left.message.is_empty(), "{left:?}");
    // It ends with its last answer: who only watches its health does not hold it up.
    let ended = std::time::Instant::now();
    until_described(&node, "it has ended", |description| {
        description.verifiers.iter().any(|state| state.reason == "UNREACHABLE")
    })
    .await;
    assert!(ended.elapsed() < Duration::from_secs(5), "{:?}", ended.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_worker_tells_its_sessions_and_refuses_new_ones() {
    let node = verifier(target(random_table(1, VOCAB, 0))).await;
    node.healthy().await;
    let channel = node.channel();
    let open = |id| verify_open(id, &[0, 1], 32, warm());
    let (mut stream, _) = Verifying::open(&channel, open("running")).await.unwrap();
    node.drain.begin();
    let is_notice = |kind| matches!(kind, v1::verify_response::Kind::Notice(notice) if notice.kind() == v1::notice::Kind::Draining);
    assert!(is_notice(stream.next().await.unwrap()));
    // It still answers.
    let frame = crate::protocol::stream::block(crate::protocol::stream::text(1, 0, &[0, 1], 2), &[4]);
    stream.verdict(frame).await;
    let status = Verifying::open(&channel, open("new")).await.err().unwrap();
    assert_turned_away(&status);
    node.drain.expire();
    assert_status(&stream.message().await.unwrap_err(), Code::Unavailable, "DRAINING");

    let node = foretoken_testkit::cluster::draft_worker(draft(random_table(2, VOCAB, 0))).await;
    node.healthy().await;
    let mut stream =
        Drafting::open(&node.channel(), draft_open("running", &[0, 1], 32, warm())).await.unwrap();
    node.drain.begin();
    assert!(matches!(stream.next().await.unwrap(), v1::draft_response::Kind::Notice(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_draft_worker_is_left_for_the_other() {
    let pace = Pace::of(Duration::from_millis(1));
    let source = || draft(random_table(2, VOCAB, 0));
    let cluster = Cluster::start(slow_target(&pace), vec![source(), source()], Config::default()).await;
    let request = ids_request(&[0, 1], 2000);
    let mut running = Reading::start(&cluster.orchestrator, request.clone()).await.unwrap();
    assert!(running.until(|tokens| tokens.len() > 40).await.unwrap().is_none());
    // Whichever it is at: they leave one after the other, and a plain answer is left.
    let drafted = |token: &v1::Token| token.origin() != Origin::Plain;
    cluster.draft_workers[0].drain.begin();
    let so_far = running.tokens.len();
    let goes_on = |tokens: &[v1::Token]| tokens[so_far..].iter().filter(|token| drafted(token)).count() > 100;
    assert!(running.until(goes_on).await.unwrap().is_none());
    cluster.draft_workers[1].drain.begin();
    let so_far = running.tokens.len();
    let plainly =
        |tokens: &[v1::Token]| tokens[so_far..].iter().rev().take_while(|token| !drafted(token)).count() > 40;
    assert!(running.until(plainly).await.unwrap().is_none());
    pace.set(Duration::ZERO);
    let finished = running.finish().await.unwrap();
    assert_eq!(running.tokens.len(), 2000);
    assert!(finished.speculation_off.iter().any(|off| off.reason == "DRAFTER_DRAINING"), "{finished:?}");
    assert_eq!(finished.drafter, "none");
    let plain = v1::GenerateRequest { draft_len: Some(0), ..request };
    assert_eq!(running.ids(), generate(&cluster.orchestrator, plain).await.unwrap().ids());
}
