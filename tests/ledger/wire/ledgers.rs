//! What the ledgers say of connections to workers.

use std::sync::Arc;
use std::time::Duration;

use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_testkit::client::{Answer, generate, generate_at, ids_request};
use foretoken_testkit::cluster::{Cluster, draft_worker, orchestrator, verifier};
use foretoken_testkit::link_proxy::LinkProxy;
use foretoken_testkit::pki::{Pki, Security};
use foretoken_testkit::table::{Table, random_table};
use foretoken_transport::{WireBytes, WireConnection};
use futures_util::future::join_all;

use crate::recorder::Recorder;
use crate::{VOCAB, draft, model, only_one_to, settled, target};

/// One link's bytes in a ledger, up and down.
type OfLedger = fn(&v1::Ledger) -> (u64, u64);

fn sum(ledgers: &[Answer], of: impl Fn(&v1::Ledger) -> (u64, u64)) -> WireBytes {
    ledgers
        .iter()
        .map(|answer| of(answer.ledger()))
        .fold(WireBytes::default(), |sum, (up, down)| WireBytes { up: sum.up + up, down: sum.down + down })
}

fn verify(ledger: &v1::Ledger) -> (u64, u64) {
    (ledger.verify_wire_up, ledger.verify_wire_down)
}

fn drafts(ledger: &v1::Ledger) -> (u64, u64) {
    (ledger.draft_wire_up, ledger.draft_wire_down)
}

fn since(before: WireBytes, now: WireBytes) -> WireBytes {
    WireBytes { up: now.up - before.up, down: now.down - before.down }
}

/// What nobody has been charged with yet.
fn uncharged(connection: &WireConnection) -> WireBytes {
    let charged = connection.charged();
    WireBytes {
        up: connection.bytes().sent() - charged.up,
        down: connection.bytes().received() - charged.down,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ledgers_add_up_to_what_their_connections_carried() {
    add_up(&Security::default(), 0).await;
}

/// What is left in either way is in a record or two of its own.
#[tokio::test(flavor = "multi_thread")]
async fn encrypted_ledgers_add_up_too() {
    add_up(&Pki::new("a CA").mutual(), RECORD_BYTES).await;
}

/// Header, type and tag of a record of TLS 1.3.
const RECORD_BYTES: u64 = 5 + 1 + 16;

/// What is written at once carries `around` bytes more.
async fn add_up(security: &Security, around: u64) {
    let cluster = Cluster::start_secured(security, target(), vec![draft()], Config::default()).await;
    let client = cluster.orchestrator.channel();
    let links: [(Arc<WireConnection>, OfLedger); 2] = [
        (only_one_to(cluster.verifier.address.port()).await, verify),
        (only_one_to(cluster.draft_workers[0].address.port()).await, drafts),
    ];
    for (round, requests) in [(0, 1), (1, 8), (2, 30), (3, 1)] {
        let before = [settled(|| links[0].0.charged()).await, settled(|| links[1].0.charged()).await];
        let request = |i| v1::GenerateRequest { seed: Some(i), ..ids_request(&[0, 1, 2], 40 + i as u32) };
        let answers = join_all((0..requests).map(|i| generate_at(client.clone(), request(i)))).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        for ((link, of), before) in links.iter().zip(before) {
            let charged = since(before, settled(|| link.charged()).await);
            assert_eq!(sum(&answers, of), charged, "round {round}");
            // What is left is on the health stream, and the ends of the answers: never more with time.
            let left = settled(|| uncharged(link)).await;
            let each = 40 + 2 * around;
            assert!(
                left.up < 100 + each * (requests + 1) && left.down < 200 + each * (requests + 1),
                "round {round}: {left:?}"
            );
        }
        for ledger in answers.iter().map(Answer::ledger) {
            // At least one frame and one gRPC prefix for each block, beside the messages. Frames that leave together share
            // a record: of a single answer none do.
            let record = if requests == 1 { around } else { 0 };
            let framing = (14 + record) * u64::from(ledger.blocks);
            assert!(ledger.verify_wire_up >= ledger.verify_bytes_up + framing, "{ledger:?}");
            assert!(ledger.verify_wire_down >= ledger.verify_bytes_down + framing, "{ledger:?}");
            assert!(ledger.draft_wire_up >= ledger.draft_bytes_up + framing, "{ledger:?}");
            assert!(ledger.draft_wire_down >= ledger.draft_bytes_down + framing, "{ledger:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_holds_its_own_frames_as_recorded_and_its_part_of_the_rest() {
    let mut node = verifier(target()).await;
    let recorder = Recorder::before(node.address).await;
    let direct = std::mem::replace(&mut node.address, recorder.address);
    let front = orchestrator(Config::default(), &[&node], &[]).await;
    front.healthy().await;
    let link = only_one_to(recorder.address.port()).await;
    assert_ne!(direct, recorder.address);
    let mut last_rest = None;
    for round in 0..4 {
        let id = format!("recorded-{round}");
        let request = v1::GenerateRequest { request_id: id.clone(), ..ids_request(&[0, 1, 2], 50) };
        let answer = generate(&front, request).await.unwrap();
        settled(|| recorder.len()).await;
        let ledger = answer.ledger();
        let streams = recorder.streams();
        let is_its =
            |payload: &[u8]| payload[..60.min(payload.len())].windows(id.len()).any(|at| at == id.as_bytes());
        let (up, down) = streams.values().find(|(up, _)| is_its(&up.payload)).unwrap();
        // The Close, and the end of the stream, leave when the ledger is closed.
        let late = match up.frames.as_slice() {
            [.., 7, 0] => 16 + 9,
            [.., 7] => 16,
            _ => 0,
        };
        let own = (up.wire() - late, down.wire());
        let rest = [(ledger.verify_wire_up, own.0), (ledger.verify_wire_down, own.1)]
            .map(|(whole, own)| i64::try_from(whole).unwrap() - i64::try_from(own).unwrap());
        // HEADERS and the like: some, but not much. The end of the decode run may come behind the last token.
        assert!(rest[0] > 0 && rest[0] < 2_000, "round {round}: {rest:?}");
        assert!(rest[1] > -40 && rest[1] < 2_000, "round {round}: {rest:?}");
        last_rest = Some(rest);
        assert_eq!((link.bytes().sent(), link.bytes().received()), recorder.len());
    }
    // The later ones pay for their own HEADERS only, and for the Close before them.
    assert!(last_rest.unwrap()[0] < 200, "{last_rest:?}");
}

/// A table that takes its time.
fn slow(table: Table) -> Table {
    Arc::new(move |text| {
        std::thread::sleep(Duration::from_micros(300));
        table(text)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drafter_that_was_lost_keeps_its_bytes_in_the_ledger() {
    let node = verifier(model("target", slow(random_table(1, VOCAB, 0)))).await;
    let mut worker = draft_worker(draft()).await;
    let proxy = LinkProxy::start(worker.address);
    worker.address = proxy.address();
    let front = orchestrator(Config::default(), &[&node], &[&worker]).await;
    front.healthy().await;
    let ready = async || !foretoken_testkit::client::describe(&front).await.draft_workers[0].ready;
    while ready().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let first = only_one_to(proxy.address().port()).await;
    let before = settled(|| first.charged()).await;
    let cutting = async {
        tokio::time::sleep(Duration::from_millis(60)).await;
        proxy.cut();
    };
    let (answer, ()) = tokio::join!(generate(&front, ids_request(&[0, 1, 2], 800)), cutting);
    let answer = answer.unwrap();
    assert!(!answer.finished.speculation_off.is_empty(), "the cut was not felt: {:?}", answer.finished);
    let second = only_one_to(proxy.address().port()).await;
    assert!(!Arc::ptr_eq(&first, &second), "nobody connected again");
    let ledger = answer.ledger();
    let on_first = since(before, first.charged());
    assert!(on_first.up > 0 && on_first.down > 0);
    assert!(ledger.draft_wire_up > on_first.up && ledger.draft_wire_down > on_first.down, "{ledger:?}");
    assert!(ledger.draft_wire_up <= on_first.up + second.charged().up, "{ledger:?}");
    assert!(ledger.draft_wire_down <= on_first.down + second.charged().down, "{ledger:?}");
}
