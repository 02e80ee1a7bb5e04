//! Repeated, late and too many frames: one terminal reply each, and the same one for the same frame.

use std::collections::BTreeMap;
use std::time::Duration;

use foretoken_engine::Sampling;
use foretoken_proto::v1;
use foretoken_runtime::{Limits, RuntimeConfig};
use foretoken_testkit::cluster::{Node, verifier};
use foretoken_testkit::table::random_table;

use super::stream::{VerifyKind, Verifying, block, decode, text, verify_open, warm};
use crate::support::{Pace, VOCAB, model, target, until};

const PROMPT: [u32; 3] = [0, 1, 2];

fn open() -> v1::VerifyOpen {
    verify_open("s", &PROMPT, 96, warm())
}

async fn node() -> Node {
    let node = verifier(target(random_table(1, VOCAB, 0))).await;
    node.healthy().await;
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_frame_gets_the_same_reply_also_after_reconnecting() {
    let host = target(random_table(1, VOCAB, 0));
    let runtime = host.runtime.clone();
    let node = verifier(host).await;
    node.healthy().await;
    let (mut stream, _) = Verifying::open(&node.channel(), open()).await.unwrap();
    let frame = || block(text(1, 0, &PROMPT, 3), &[4, 5, 6]);
    let verdict = stream.verdict(frame()).await;
    let passes = runtime.stats().passes;
    // Times included: it is the reply that was given, not a new one.
    assert_eq!(stream.verdict(frame()).await, verdict);
    drop(stream);

    let (mut again, cached) = Verifying::open(&node.channel(), open()).await.unwrap();
    assert!(cached >= PROMPT.len() as u32, "{cached}");
    assert_eq!(again.verdict(frame()).await, verdict);
    assert_eq!(runtime.stats().passes, passes);
    until("both are counted", || runtime.stats().repeated_frames == 2).await;

    // The next frame finds everything where it was.
    let accepted = [0, 1, 2, 4];
    assert_eq!(again.verdict(block(text(2, 1, &accepted, 4), &[5])).await.seq, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_used_for_another_frame_is_invalid() {
    let node = node().await;
    let (mut stream, _) = Verifying::open(&node.channel(), open()).await.unwrap();
    let verdict = stream.verdict(block(text(1, 0, &PROMPT, 3), &[4])).await;
    for other in [
        block(text(1, 0, &PROMPT, 3), &[5]),
        block(text(1, 1, &PROMPT, 3), &[4]),
        decode(text(1, 0, &PROMPT, 3), 5),
    ] {
        let (reason, field, _) = stream.invalid(other).await;
        assert_eq!((reason.as_str(), field.as_str()), ("SEQ_REUSED", "text.seq"));
    }
    // The first meaning of the number stands.
    assert_eq!(stream.verdict(block(text(1, 0, &PROMPT, 3), &[4])).await, verdict);
}

/// vllm-project/vllm#31955, #49620: a late frame is dropped and counted, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_later_than_anything_remembered_is_stale() {
    let host = target(random_table(1, VOCAB, 0));
    let runtime = host.runtime.clone();
    let node = verifier(host).await;
    node.healthy().await;
    let (mut stream, _) = Verifying::open(&node.channel(), open()).await.unwrap();
    let mut committed = PROMPT.to_vec();
    for seq in 1..=9 {
        stream.verdict(block(text(seq, seq, &committed, 3), &[4])).await;
        committed.push(4);
    }
    let passes = runtime.stats().passes;
    stream.frame(block(text(1, 1, &PROMPT, 3), &[4])).await;
    match stream.next().await.unwrap() {
        VerifyKind::Stale(stale) => assert_eq!((stale.seq, stale.epoch), (1, 9)),
        other => panic!("{other:?}"),
    }
    until("it is counted", || runtime.stats().stale_frames == 1).await;
    assert_eq!(runtime.stats().passes, passes);
    stream.verdict(block(text(10, 10, &committed, 3), &[4])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_frames_than_the_window_are_overloaded_and_each_gets_one_reply() {
    let pace = Pace::of(Duration::from_millis(10));
    let node = verifier(target(pace.apply(random_table(1, VOCAB, 0)))).await;
    node.healthy().await;
    let (mut stream, _) = Verifying::open(&node.channel(), open()).await.unwrap();
    // A long run holds the model while blocks queue up behind it.
    stream.frame(decode(text(1, 0, &PROMPT, 3), 3 + 64)).await;
    assert!(matches!(stream.next().await.unwrap(), VerifyKind::Token(_)));
    let window = Limits::default().max_window as u64;
    let last = 1 + window + 3;
    for seq in 2..=last {
        stream.frame(block(text(seq, 0, &PROMPT, 3), &[4])).await;
    }
    let mut terminal = BTreeMap::new();
    while terminal.len() < last as usize {
        let (seq, what) = match stream.next().await.unwrap() {
            VerifyKind::Token(_) => continue,
            VerifyKind::Finished(finished) => (finished.seq, "run"),
            VerifyKind::Verdict(verdict) => (verdict.seq, "verdict"),
            VerifyKind::Overloaded(overloaded) => {
                assert!(overloaded.retry_after_ms > 0);
                pace.set(Duration::ZERO);
                (overloaded.seq, "overloaded")
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(terminal.insert(seq, what), None, "{seq} was answered twice");
    }
    let of = |kind| terminal.values().filter(|&&what| what == kind).count() as u64;
    assert_eq!((of("run"), of("verdict"), of("overloaded")), (1, window, 3), "{terminal:?}");
    // Refused for lack of room, it may be asked again.
    stream.verdict(block(text(last, 0, &PROMPT, 3), &[4])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_while_the_model_works() {
    let pace = Pace::of(Duration::from_millis(500));
    let config = RuntimeConfig { queue: 2, ..RuntimeConfig::default() };
    let host = model("target", pace.apply(random_table(1, VOCAB, 0)), &config);
    let runtime = host.runtime.clone();
    let node = verifier(host).await;
    node.healthy().await;
    let (mut stream, _) = Verifying::open(&node.channel(), open()).await.unwrap();
    until("the prompt is read ahead", || runtime.stats().passes == 1).await;
    for seq in 1..=8 {
        stream.frame(block(text(seq, 0, &PROMPT, 3), &[4])).await;
    }
    let mut replies = BTreeMap::new();
    while replies.len() < 8 {
        let (seq, overloaded) = match stream.next().await.unwrap() {
            VerifyKind::Verdict(verdict) => (verdict.seq, false),
            VerifyKind::Overloaded(overloaded) => (overloaded.seq, true),
            other => panic!("{other:?}"),
        };
        pace.set(Duration::ZERO);
        assert_eq!(replies.insert(seq, overloaded), None);
    }
    assert!(replies.values().any(|&overloaded| overloaded), "{replies:?}");
    assert!(replies.values().any(|&overloaded| !overloaded), "{replies:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_keeps_its_session_for_the_grace_time_only() {
    let config = RuntimeConfig { grace: Duration::from_millis(50), ..RuntimeConfig::default() };
    let host = model("target", random_table(1, VOCAB, 0), &config);
    let runtime = host.runtime.clone();
    let node = verifier(host).await;
    node.healthy().await;
    let greedy = || verify_open("s", &PROMPT, 96, Sampling::GREEDY);
    let (stream, _) = Verifying::open(&node.channel(), greedy()).await.unwrap();
    assert_eq!((runtime.stats().sessions, runtime.stats().kv_used), (1, 96));
    drop(stream);
    until("the session is gone", || runtime.stats().sessions == 0 && runtime.stats().kv_used == 0).await;
    let (_stream, cached) = Verifying::open(&node.channel(), greedy()).await.unwrap();
    assert_eq!(cached, 0);
}
