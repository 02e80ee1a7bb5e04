//! The ledger in time: stages without remainder, distance seen as distance, worker time charged to the last microsecond.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::time::Duration;

use foretoken_draft_worker::Source;
use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_runtime::{Limits, RuntimeConfig};
use foretoken_testkit::client::{describe, generate, generate_at, ids_request};
use foretoken_testkit::cluster::{Cluster, Node, draft_worker, host, ngram, orchestrator_of, verifier};
use foretoken_testkit::link_proxy::LinkProxy;
use foretoken_testkit::table::{TableModel, random_table};
use foretoken_testkit::vocabulary::letters;
use foretoken_tests::ledger::{check, sum};
use foretoken_worker::Host;
use futures_util::future::join_all;

const VOCAB: usize = 8;

/// Passes of the target: long enough that the loop's own work is small beside them.
const PASS: Duration = Duration::from_millis(4);
const PER_ROW: Duration = Duration::from_micros(250);

fn model(seed: u64, pass: Duration, per_row: Duration) -> Host {
    let model = TableModel::new("paced", VOCAB, 4096, random_table(seed, VOCAB, 0)).paced(pass, per_row);
    let limits = Limits { max_sessions: 64, ..Limits::default() };
    host(model, &letters(VOCAB, false).unwrap(), &RuntimeConfig { limits, ..RuntimeConfig::default() })
}

fn target() -> Host {
    model(1, PASS, PER_ROW)
}

fn draft() -> Source {
    Source::Model(model(2, Duration::from_micros(500), Duration::ZERO))
}

fn request(seed: u64, max_tokens: u32) -> v1::GenerateRequest {
    v1::GenerateRequest { seed: Some(seed), rounds: true, ..ids_request(&[0, 1, 2], max_tokens) }
}

/// A verifier and a draft worker behind links of their own.
struct Far {
    links: [LinkProxy; 2],
    orchestrator: Node,
    _workers: [Node; 2],
}

impl Far {
    async fn start(source: Source) -> Self {
        let workers = [verifier(target()).await, draft_worker(source).await];
        let links = [LinkProxy::start(workers[0].address), LinkProxy::start(workers[1].address)];
        let [target, draft] = links.each_ref().map(|link| vec![link.address().to_string()]);
        let config = Config { verifiers: target, draft_workers: draft, ..Config::default() };
        let orchestrator = orchestrator_of(config).await;
        orchestrator.healthy().await;
        Self { links, orchestrator, _workers: workers }
    }

    fn delay(&self, each_way: Duration) {
        self.links.iter().for_each(|link| link.set_delay(each_way));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_leave_no_remainder_alone_and_together() {
    let cluster = Cluster::start(target(), vec![draft(), ngram()], Config::default()).await;
    let client = cluster.orchestrator.channel();
    for (at_once, rule) in
        [(1, v1::Rule::Token), (6, v1::Rule::Block), (12, v1::Rule::Gumbel), (1, v1::Rule::Gumbel)]
    {
        for drafter in [v1::DrafterKind::Model, v1::DrafterKind::Ngram, v1::DrafterKind::None] {
            let ask = |i: u64| v1::GenerateRequest {
                rule: rule.into(),
                drafter: drafter.into(),
                ..request(i, 8 + 4 * i as u32)
            };
            let answers = join_all((0..at_once).map(|i| generate_at(client.clone(), ask(i)))).await;
            answers.into_iter().for_each(|answer| check(&answer.unwrap()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_step_is_known_where_there_were_only_blocks() {
    let cluster = Cluster::start(target(), vec![draft()], Config::default()).await;
    let states = describe(&cluster.orchestrator).await.verifiers;
    let measured = &states[0].description.as_ref().unwrap().pass_times;
    assert_eq!(measured.iter().map(|time| time.rows).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
    // Where a last block leaves room for one token, that one is a plain run: a single one among dozens of blocks.
    let answer = generate(&cluster.orchestrator, request(5, 40)).await.unwrap();
    check(&answer);
    let runs = answer.finished.rounds.iter().filter(|round| round.kind() == v1::round::Kind::Run).count();
    assert!(runs <= 1 && answer.ledger().blocks > 8, "{answer:?}");
    let told = answer.ledger().plain_step_ns.unwrap() as f64;

    let plain = v1::GenerateRequest { draft_len: Some(0), ..request(5, 60) };
    let answer = generate(&cluster.orchestrator, plain).await.unwrap();
    let truth = answer.ledger().plain_step_ns.unwrap() as f64;
    // A pass over a block's five rows takes a quarter longer.
    assert!((told / truth - 1.0).abs() < 0.06, "T(1) was told as {told} ns and is {truth} ns");
}

#[tokio::test(flavor = "multi_thread")]
async fn distance_is_seen_as_distance() {
    let far = Far::start(draft()).await;
    let net = async |each_way: Duration| {
        far.delay(each_way);
        let answer = generate(&far.orchestrator, request(5, 40)).await.unwrap();
        check(&answer);
        let ledger = answer.ledger().clone();
        let stages = ledger.stages.unwrap();
        let drafting_net = stages.draft_ns - ledger.drafting_ns;
        // A block is a round trip to either worker. Where there is room for one token only, it is decoded plainly: a trip
        // to the verifier.
        let runs = answer.finished.rounds.iter().filter(|round| round.kind() == v1::round::Kind::Run).count();
        let per_trip = |ns: u64, trips: u32| ns as f64 / 1e9 / f64::from(trips);
        let verifier_trips = ledger.blocks + runs as u32;
        (per_trip(stages.net_ns, verifier_trips), per_trip(drafting_net, ledger.blocks), ledger.blocks)
    };
    for each_way in [5, 20, 40].map(Duration::from_millis) {
        let trip = 2.0 * each_way.as_secs_f64();
        // Relative to what the wires add; a busy machine adds its own, which the smallest distance shows most.
        let tolerance = (0.05 * trip).max(2e-3);
        let mut seen = Vec::new();
        // What else the machine does meanwhile may come in between once or twice.
        let is_distance = loop {
            let (here, drafting_here, _) = net(Duration::ZERO).await;
            let (there, drafting_there, blocks) = net(each_way).await;
            let (verifier, drafter) = (there - here, drafting_there - drafting_here);
            // The opening is in the draft stage too, once: one trip more for the whole answer.
            let opening = 3.0 * trip / f64::from(blocks);
            seen.push((verifier, drafter));
            let is_distance = (verifier - trip).abs() < tolerance
                && drafter > trip - tolerance
                && drafter < trip + opening + tolerance;
            if is_distance || seen.len() == 3 {
                break is_distance;
            }
        };
        assert!(is_distance, "verifier and drafter at {trip} s: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_link_holds_back_is_net() {
    let far = Far::start(ngram()).await;
    let plain = v1::GenerateRequest { draft_len: Some(0), ..request(5, 30) };
    let answer = generate(&far.orchestrator, plain.clone()).await.unwrap();
    check(&answer);
    let net = answer.ledger().stages.unwrap().net_ns;
    // A run pays for the way once, whatever the distance: its tokens follow each other.
    far.delay(Duration::from_millis(40));
    let answer = generate(&far.orchestrator, plain).await.unwrap();
    check(&answer);
    let ledger = answer.ledger();
    let more = Duration::from_nanos(ledger.stages.unwrap().net_ns.saturating_sub(net));
    assert!(more < Duration::from_millis(40 * 2 * 4), "{more:?} of net for a run: {ledger:?}");
    let first = Duration::from_nanos(ledger.first.unwrap().net_ns);
    assert!(first >= Duration::from_millis(79), "the first token came over the link: {first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_is_told_from_slow_services() {
    let cluster = Cluster::start(target(), vec![draft()], Config::default()).await;
    let request = v1::GenerateRequest { draft_len: Some(0), ..request(3, 200) };
    let client = cluster.orchestrator.channel();
    let mut client = v1::orchestrator_client::OrchestratorClient::new(client);
    let mut events = client.generate(request).await.unwrap().into_inner();
    // Nobody reads for a while; what fits between the two is taken, then the request waits.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let mut ledger = None;
    while let Some(event) = events.message().await.unwrap() {
        if let Some(v1::generate_response::Event::Finished(finished)) = event.event {
            ledger = finished.ledger;
        }
    }
    let ledger = ledger.unwrap();
    let stages = ledger.stages.as_ref().unwrap();
    assert_eq!(sum(stages) / 1000, ledger.wall_us);
    // The transport buffers what it likes, so that a short answer may never wait at all: it must not be blamed on others.
    let others = Duration::from_nanos(stages.recovery_ns + stages.own_ns);
    assert!(others < Duration::from_millis(400), "{stages:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_capacity_of_all_answers_is_the_verifiers_busy_time() {
    let cluster = Cluster::start(target(), vec![draft()], Config::default()).await;
    let client = cluster.orchestrator.channel();
    let busy = || cluster.runtime.stats().busy_us;
    let (before, mut charged) = (busy(), 0);
    for at_once in [1, 8] {
        let answers = join_all((0..at_once).map(|i| generate_at(client.clone(), request(i, 40)))).await;
        charged +=
            answers.iter().map(|answer| answer.as_ref().unwrap().ledger().verify_charged_us).sum::<u64>();
        // A pass is counted once it is over, which the last reply does not wait for; what it took beyond that reply is
        // charged with the next answer, so that only all answers since the start add up.
        let missing = || 1.0 - charged as f64 / (busy() - before) as f64;
        let counted = async {
            while missing() < -0.001 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let all = tokio::time::timeout(Duration::from_secs(5), counted).await;
        assert!(
            all.is_ok() && missing() < 0.01,
            "{at_once} at once: {charged} µs charged of {}",
            busy() - before
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_drafter_costs_recovery() {
    let workers = verifier(target()).await;
    let drafter = draft_worker(draft()).await;
    let link = LinkProxy::start(drafter.address);
    let config = Config {
        verifiers: vec![workers.address.to_string()],
        draft_workers: vec![link.address().to_string()],
        ..Config::default()
    };
    let orchestrator = orchestrator_of(config).await;
    orchestrator.healthy().await;
    generate(&orchestrator, request(1, 10)).await.unwrap();
    let answer = tokio::spawn(generate_at(orchestrator.channel(), request(1, 60)));
    tokio::time::sleep(Duration::from_millis(60)).await;
    link.pause();
    tokio::time::sleep(Duration::from_millis(100)).await;
    link.cut();
    link.resume();
    let answer = answer.await.unwrap().unwrap();
    check(&answer);
    let recovery = Duration::from_nanos(answer.ledger().stages.unwrap().recovery_ns);
    assert!(recovery >= Duration::from_millis(50), "{recovery:?} of recovery: {answer:?}");
}
