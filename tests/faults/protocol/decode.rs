//! Decode runs: one token a pass, as far as granted and no further.

use std::time::Duration;

use foretoken_acceptance::Distribution;
use foretoken_engine::Sampling;
use foretoken_proto::v1;
use foretoken_proto::v1::run_finished::Reason;
use foretoken_runtime::Runtime;
use foretoken_testkit::cluster::{Node, verifier};
use foretoken_testkit::table::{Table, TableModel, random_table};

use super::stream::{VerifyKind, Verifying, block, decode, keys, text, verify_open, warm};
use crate::support::{Pace, VOCAB, says, target, until};

const PROMPT: [u32; 3] = [0, 1, 2];

struct Session {
    stream: Verifying,
    runtime: Runtime,
    _node: Node,
}

/// A session whose prompt is read already but for its last token.
async fn session(table: Table, open: v1::VerifyOpen) -> Session {
    let host = target(table);
    let runtime = host.runtime.clone();
    let node = verifier(host).await;
    node.healthy().await;
    let (stream, _) = Verifying::open(&node.channel(), open).await.unwrap();
    until("the prompt is read ahead", || runtime.stats().passes == 1).await;
    Session { stream, runtime, _node: node }
}

/// The run's tokens as (position, token), and how it ended.
async fn run(stream: &mut Verifying, seq: u64) -> (Vec<(u32, u32)>, v1::RunFinished) {
    let mut tokens = Vec::new();
    loop {
        match stream.next().await.unwrap() {
            VerifyKind::Token(token) => {
                let times = token.times.unwrap();
                assert_eq!((times.passes, times.batch_sessions), (1, 1), "one token comes of one pass");
                tokens.push((token.position, token.token));
            }
            VerifyKind::Finished(finished) => {
                assert_eq!(finished.seq, seq);
                return (tokens, finished);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What plain decoding must say, from the table and the plain coins.
fn expected(table: &Table, sampling: &Sampling, epoch: u64, len: usize) -> Vec<(u32, u32)> {
    let mut tokens = PROMPT.to_vec();
    let mut expected = Vec::new();
    while tokens.len() < len {
        let p = Distribution::from_logits(&TableModel::logits_of(&table(&tokens)), sampling).unwrap();
        let token = p.draw(keys().verifier().plain().coin(tokens.len() as u64, epoch));
        expected.push((tokens.len() as u32, token));
        tokens.push(token);
    }
    expected
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_makes_a_pass_a_token_and_none_beyond_its_grant() {
    let table = random_table(1, VOCAB, 0);
    let Session { mut stream, runtime, _node } =
        session(table.clone(), verify_open("s", &PROMPT, 96, warm())).await;
    stream.frame(decode(text(1, 6, &PROMPT, 3), 8)).await;
    let (tokens, finished) = run(&mut stream, 1).await;
    assert_eq!(tokens, expected(&table, &warm(), 6, 8));
    assert_eq!((finished.reason(), finished.end), (Reason::Grant, 8));
    // The way to the model and back: had it gone on without a grant, it would have by now.
    stream.frame(decode(text(2, 5, &PROMPT, 3), 8)).await;
    assert!(matches!(stream.next().await.unwrap(), VerifyKind::Stale(_)));
    // Five tokens, and the last of them read ahead at most.
    assert!((6..=7).contains(&runtime.stats().passes), "{:?}", runtime.stats());
    assert!(runtime.stats().rows <= 2 + 5 + 1, "{:?}", runtime.stats());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_grant_goes_on_where_the_run_stands() {
    let table = random_table(1, VOCAB, 0);
    let Session { mut stream, _node, .. } =
        session(table.clone(), verify_open("s", &PROMPT, 96, warm())).await;
    stream.frame(decode(text(1, 0, &PROMPT, 3), 8)).await;
    let (mut tokens, _) = run(&mut stream, 1).await;
    // The sender has heard of one token only, and says so.
    let known = [0, 1, 2, tokens[0].1];
    stream.frame(decode(text(2, 0, &known, 3), 12)).await;
    let (more, finished) = run(&mut stream, 2).await;
    tokens.extend(more);
    assert_eq!(tokens, expected(&table, &warm(), 0, 12));
    assert_eq!((finished.reason(), finished.end), (Reason::Grant, 12));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_raised_in_the_middle_supersedes_the_older_frame_and_loses_nothing() {
    let table = random_table(1, VOCAB, 0);
    let pace = Pace::of(Duration::from_millis(5));
    let open = verify_open("s", &PROMPT, 96, warm());
    let Session { mut stream, _node, .. } = session(pace.apply(table.clone()), open).await;
    stream.frame(decode(text(1, 0, &PROMPT, 3), 40)).await;
    let VerifyKind::Token(first) = stream.next().await.unwrap() else { panic!("no token") };
    stream.frame(decode(text(2, 0, &PROMPT, 3), 50)).await;
    let (mut tokens, finished) = run(&mut stream, 1).await;
    assert_eq!(finished.reason(), Reason::Superseded);
    pace.set(Duration::ZERO);
    let (more, finished) = run(&mut stream, 2).await;
    assert_eq!((finished.reason(), finished.end), (Reason::Grant, 50));
    tokens.insert(0, (first.position, first.token));
    tokens.extend(more);
    assert_eq!(tokens, expected(&table, &warm(), 0, 50));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_id_ends_the_run_and_is_its_last_token() {
    let counts = says(VOCAB, |text| text.len() as u32 % VOCAB as u32);
    let open = v1::VerifyOpen { stop_ids: vec![7, 5], ..verify_open("s", &PROMPT, 96, Sampling::GREEDY) };
    let Session { mut stream, runtime, _node } = session(counts, open).await;
    stream.frame(decode(text(1, 0, &PROMPT, 3), 30)).await;
    let (tokens, finished) = run(&mut stream, 1).await;
    assert_eq!(tokens, [(3, 3), (4, 4), (5, 5)]);
    assert_eq!((finished.reason(), finished.end), (Reason::Stop, 6));
    let passes = runtime.stats().passes;
    // Asked to go on all the same, it says again where it stopped.
    stream.frame(decode(text(2, 0, &[0, 1, 2, 3, 4, 5], 3), 30)).await;
    let (tokens, finished) = run(&mut stream, 2).await;
    assert_eq!((tokens.len(), finished.reason()), (0, Reason::Stop));
    assert!(runtime.stats().passes <= passes + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_reserve_ends_the_run() {
    let table = random_table(1, VOCAB, 0);
    let Session { mut stream, _node, .. } =
        session(table.clone(), verify_open("s", &PROMPT, 10, warm())).await;
    stream.frame(decode(text(1, 0, &PROMPT, 3), 30)).await;
    let (tokens, finished) = run(&mut stream, 1).await;
    assert_eq!(tokens, expected(&table, &warm(), 0, 10));
    assert_eq!((finished.reason(), finished.end), (Reason::Context, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_epoch_ends_the_run() {
    let pace = Pace::of(Duration::from_millis(5));
    let table = pace.apply(random_table(1, VOCAB, 0));
    let Session { mut stream, _node, .. } = session(table, verify_open("s", &PROMPT, 96, warm())).await;
    stream.frame(decode(text(1, 0, &PROMPT, 3), 60)).await;
    assert!(matches!(stream.next().await.unwrap(), VerifyKind::Token(_)));
    stream.frame(block(text(2, 1, &PROMPT, 3), &[4])).await;
    let (tokens, finished) = run(&mut stream, 1).await;
    assert_eq!(finished.reason(), Reason::Superseded);
    assert!(tokens.len() < 56, "it went on to the grant: {}", tokens.len());
    match stream.next().await.unwrap() {
        VerifyKind::Verdict(verdict) => assert_eq!((verdict.seq, verdict.epoch), (2, 1)),
        other => panic!("{other:?}"),
    }
}
