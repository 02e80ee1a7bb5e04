//! Frames that contradict themselves, the session or a limit: refused by name, and the session goes on.

use foretoken_engine::Sampling;
use foretoken_proto::v1;
use foretoken_proto::v1::verify_frame::Ask;
use foretoken_testkit::cluster::verifier;
use foretoken_testkit::table::random_table;
use tonic::Code;

use super::stream::{
    VerifyKind, VerifyKindOut, Verifying, block, decode, text, verify_message, verify_open, warm,
};
use crate::support::{VOCAB, assert_status, target, until};

const PROMPT: [u32; 3] = [0, 1, 2];
const RESERVE: usize = 96;

async fn session(sampling: Sampling) -> (foretoken_testkit::cluster::Node, Verifying) {
    let node = verifier(target(random_table(1, VOCAB, 0))).await;
    node.healthy().await;
    let (stream, _) =
        Verifying::open(&node.channel(), verify_open("s", &PROMPT, RESERVE, sampling)).await.unwrap();
    (node, stream)
}

fn with_q(tokens: &[u32], q: Vec<v1::LatticeQ>) -> Ask {
    Ask::Block(v1::Block { tokens: tokens.to_vec(), q })
}

fn q(id_deltas: &[u32], counts: &[u32]) -> v1::LatticeQ {
    v1::LatticeQ { id_deltas: id_deltas.to_vec(), counts: counts.to_vec() }
}

/// Each frame with the reason, the field, and what its text must hold.
fn bad_frames() -> Vec<(Ask, v1::FrameText, &'static str, &'static str, &'static [&'static str])> {
    let t = || text(0, 0, &PROMPT, 3);
    let one = || Ask::Block(v1::Block { tokens: vec![4], q: vec![] });
    let run = |grant| Ask::Decode(v1::DecodeRun { grant });
    let malformed = "MALFORMED_BLOCK";
    let contradiction = "FRAME_CONTRADICTS_ITSELF";
    vec![
        // Limits of the worker and of the session.
        (with_q(&[1; 65], vec![]), t(), "OUT_OF_RANGE", "block.tokens", &["65", "64"]),
        (one(), text(0, 0, &vec![0; RESERVE], RESERVE), "OUT_OF_RANGE", "block.tokens", &["96"]),
        (one(), text(0, 0, &vec![0; RESERVE + 1], RESERVE), "OUT_OF_RANGE", "text.start", &["97", "96"]),
        (run(2), t(), "OUT_OF_RANGE", "decode.grant", &["grant is 2", "3"]),
        (run(3 + 65), t(), "OUT_OF_RANGE", "decode.grant", &["grant is 68", "64"]),
        (run(u32::MAX), t(), "OUT_OF_RANGE", "decode.grant", &["4294967295"]),
        // Tokens that do not exist.
        (with_q(&[8], vec![]), t(), malformed, "block", &["8", "vocabulary"]),
        (with_q(&[4, u32::MAX], vec![]), t(), malformed, "block", &["4294967295", "8"]),
        (one(), text(0, 0, &[0, 1, 2, 9], 3), "OUT_OF_RANGE", "text.tail", &["9", "8"]),
        // Proposals that are none.
        (with_q(&[4], vec![q(&[2, 0], &[1, 1])]), t(), "INVALID_FIELD", "q[0]", &["ascending"]),
        (with_q(&[4], vec![q(&[4], &[0])]), t(), "INVALID_FIELD", "q[0]", &["count 0"]),
        (with_q(&[4], vec![q(&[4], &[1, 1])]), t(), "INVALID_FIELD", "q[0]", &["1 ids and 2 counts"]),
        (with_q(&[4], vec![q(&[], &[])]), t(), "INVALID_FIELD", "q[0]", &["no tokens"]),
        (with_q(&[4], vec![q(&[4, u32::MAX], &[1, 1])]), t(), "INVALID_FIELD", "q[0]", &["32 bits"]),
        (with_q(&[4], vec![q(&[4], &[u32::MAX])]), t(), "INVALID_FIELD", "q[0]", &["1048576"]),
        (with_q(&[4, 5], vec![q(&[4], &[1]), q(&[5], &[0])]), t(), "INVALID_FIELD", "q[1]", &["count 0"]),
        (with_q(&[4], vec![q(&[3], &[7])]), t(), malformed, "block", &["no mass"]),
        (with_q(&[4], vec![q(&[4, 9], &[1, 1])]), t(), malformed, "block", &["vocabulary of 8"]),
        (with_q(&[4, 5], vec![q(&[4], &[1])]), t(), malformed, "block", &["2 tokens", "1 proposals"]),
        (with_q(&[], vec![q(&[4], &[1])]), t(), malformed, "block", &["0 tokens", "1 proposals"]),
        // Text that cannot be.
        (one(), v1::FrameText { committed_len: 2, ..t() }, contradiction, "committed_len", &["2", "3"]),
        (one(), v1::FrameText { tail: vec![1], ..t() }, contradiction, "tail", &["1", "0"]),
        (one(), v1::FrameText { start: 2, ..t() }, contradiction, "start", &["2", "3"]),
        (
            one(),
            v1::FrameText { span_id: vec![1; 7].into(), ..t() },
            "INVALID_FIELD",
            "text.span_id",
            &["7", "8"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_frame_is_invalid_and_the_session_goes_on() {
    let (_node, mut stream) = session(warm()).await;
    let mut seq = 0;
    let expected = stream.verdict(block(text(0, 0, &PROMPT, 3), &[4])).await;
    for (ask, text_of, reason, field, parts) in bad_frames() {
        seq += 1;
        let what = format!("{ask:?} {text_of:?}");
        let frame = v1::VerifyFrame { text: Some(v1::FrameText { seq, ..text_of }), ask: Some(ask) };
        let (got, at, message) = stream.invalid(frame).await;
        assert_eq!((got.as_str(), at.as_str()), (reason, field), "{what}: {message}");
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
        // A refused frame may be asked again, right, under its number: nothing of it was kept.
        let verdict = stream.verdict(block(text(seq, 0, &PROMPT, 3), &[4])).await;
        assert_eq!(
            (&verdict.thresholds, &verdict.repairs),
            (&expected.thresholds, &expected.repairs),
            "{what}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_without_its_ask_is_invalid() {
    let (_node, mut stream) = session(Sampling::GREEDY).await;
    let frame = v1::VerifyFrame { text: Some(text(1, 0, &PROMPT, 3)), ask: None };
    let (reason, field, _) = stream.invalid(frame).await;
    assert_eq!((reason.as_str(), field.as_str()), ("INVALID_FIELD", "ask"));
    stream.verdict(block(text(2, 0, &PROMPT, 3), &[4])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_cannot_be_answered_end_the_stream() {
    let (node, _) = session(Sampling::GREEDY).await;
    let without_text = v1::VerifyFrame { text: None, ask: None };
    for (message, reason) in [
        (verify_message(VerifyKindOut::Frame(without_text)), "INVALID_FIELD"),
        (v1::VerifyRequest { kind: None }, "MALFORMED_MESSAGE"),
    ] {
        let open = verify_open("t", &PROMPT, RESERVE, Sampling::GREEDY);
        let (mut stream, _) = Verifying::open(&node.channel(), open).await.unwrap();
        stream.send(message).await;
        assert_status(&stream.message().await.unwrap_err(), Code::InvalidArgument, reason);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_block_gets_its_bonus() {
    let (_node, mut stream) = session(Sampling::GREEDY).await;
    let verdict = stream.verdict(block(text(1, 0, &PROMPT, 3), &[])).await;
    assert!(verdict.thresholds.is_empty() && verdict.bonus.is_some(), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_the_worker_lacks_is_asked_for_and_taken() {
    let (_node, mut stream) = session(Sampling::GREEDY).await;
    let committed = [0, 1, 2, 5, 5, 6];
    stream.frame(block(text(1, 0, &committed, 5), &[4])).await;
    match stream.next().await.unwrap() {
        VerifyKind::NeedPrefix(need) => assert_eq!((need.seq, need.have_len), (1, 3)),
        other => panic!("{other:?}"),
    }
    stream.verdict(block(text(2, 0, &committed, 3), &[4])).await;

    // A hash that fits no text it could rebuild.
    let wrong = v1::FrameText { start_hash: 1, ..text(3, 0, &committed, 6) };
    stream.frame(block(wrong, &[4])).await;
    assert!(matches!(stream.next().await.unwrap(), VerifyKind::NeedPrefix(need) if need.have_len == 3));
    // The frame after it knows only what was told, and that is enough.
    stream.verdict(block(text(4, 0, &[0, 1, 2, 7], 3), &[4])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_epoch_is_stale_and_counted() {
    let host = target(random_table(1, VOCAB, 0));
    let runtime = host.runtime.clone();
    let node = verifier(host).await;
    node.healthy().await;
    let open = verify_open("s", &PROMPT, RESERVE, Sampling::GREEDY);
    let (mut stream, _) = Verifying::open(&node.channel(), open).await.unwrap();
    stream.verdict(block(text(1, 4, &PROMPT, 3), &[4])).await;
    for (seq, epoch) in [(2, 3), (3, 0)] {
        stream.frame(block(text(seq, epoch, &PROMPT, 3), &[4])).await;
        match stream.next().await.unwrap() {
            VerifyKind::Stale(stale) => assert_eq!((stale.seq, stale.epoch), (seq, 4)),
            other => panic!("{other:?}"),
        }
    }
    until("both are counted", || runtime.stats().stale_frames == 2).await;
    stream.verdict(block(text(4, 4, &PROMPT, 3), &[4])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_asked_for_up_to_the_very_grant() {
    let (_node, mut stream) = session(Sampling::GREEDY).await;
    stream.frame(decode(text(1, 0, &PROMPT, 3), 3)).await;
    match stream.next().await.unwrap() {
        VerifyKind::Finished(finished) => {
            assert_eq!((finished.reason(), finished.end), (v1::run_finished::Reason::Grant, 3));
        }
        other => panic!("{other:?}"),
    }
}
