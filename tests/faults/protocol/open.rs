//! How a session is opened, and how it is not.

use foretoken_engine::Sampling;
use foretoken_proto::v1;
use foretoken_testkit::cluster::{Node, draft_worker, verifier};
use foretoken_testkit::table::random_table;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::stream::{
    Drafting, VerifyKind, VerifyKindOut, Verifying, block, decode, draft_open, text, verify_message,
    verify_open, warm,
};
use crate::support::{CONTEXT, VOCAB, assert_status, draft, target};

const PROMPT: [u32; 3] = [0, 1, 2];

async fn node() -> Node {
    let node = verifier(target(random_table(1, VOCAB, 0))).await;
    node.healthy().await;
    node
}

fn good(id: &str) -> v1::VerifyOpen {
    verify_open(id, &PROMPT, 32, Sampling::GREEDY)
}

/// A session works: Opened, and a verdict.
async fn works(channel: &tonic::transport::Channel, id: &str) {
    let (mut stream, _) = Verifying::open(channel, good(id)).await.unwrap();
    assert_eq!(stream.verdict(block(text(1, 0, &PROMPT, 3), &[4])).await.seq, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_must_be_an_open() {
    let node = node().await;
    let channel = node.channel();
    for first in [
        verify_message(VerifyKindOut::Frame(block(text(1, 0, &PROMPT, 3), &[4]))),
        verify_message(VerifyKindOut::Frame(decode(text(1, 0, &PROMPT, 3), 5))),
        verify_message(VerifyKindOut::Close(v1::SessionClose {})),
    ] {
        let status = Verifying::begin(&channel, first).await.err().unwrap();
        assert_status(&status, Code::FailedPrecondition, "OPEN_FIRST");
    }
    let status = Verifying::begin(&channel, v1::VerifyRequest { kind: None }).await.err().unwrap();
    assert_status(&status, Code::InvalidArgument, "MALFORMED_MESSAGE");
    works(&channel, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_one_open() {
    let node = node().await;
    let (mut stream, _) = Verifying::open(&node.channel(), good("s")).await.unwrap();
    stream.send(verify_message(VerifyKindOut::Open(good("t")))).await;
    assert_status(&stream.message().await.unwrap_err(), Code::FailedPrecondition, "OPEN_TWICE");
    works(&node.channel(), "s").await;
}

type Spoil = fn(&mut v1::VerifyOpen);

fn session(open: &mut v1::VerifyOpen) -> &mut v1::SessionOpen {
    open.session.as_mut().unwrap()
}

fn sampling(open: &mut v1::VerifyOpen) -> &mut v1::Sampling {
    session(open).sampling.as_mut().unwrap()
}

/// How an Open is spoilt, the field named, and what else the text must hold.
const SPOILT: &[(Spoil, &str, &[&str])] = &[
    (|open| open.session = None, "session", &["missing"]),
    (|open| open.verifier_key.clear(), "verifier_key", &["0 bytes", "32"]),
    (|open| open.verifier_key.truncate(31), "verifier_key", &["31 bytes", "32"]),
    (|open| open.stop_ids = vec![1; 65], "stop_ids", &["65", "64"]),
    (|open| session(open).prompt.clear(), "session.prompt", &["empty"]),
    (|open| session(open).prompt.push(99), "session.prompt", &["99", "8"]),
    (|open| session(open).reserve_len = 3, "session.reserve_len", &["reserve_len is 3", "4096"]),
    (|open| session(open).reserve_len = 4097, "session.reserve_len", &["4097", "4096"]),
    (|open| session(open).reserve_len = 0, "session.reserve_len", &["reserve_len is 0"]),
    (|open| session(open).rule = 0, "session.rule", &["rule is 0", "1"]),
    (|open| session(open).rule = 77, "session.rule", &["rule is 77", "1"]),
    (|open| session(open).session_id.clear(), "session.session_id", &["0 bytes", "128"]),
    (|open| session(open).session_id = "s".repeat(129), "session.session_id", &["129 bytes", "128"]),
    (|open| sampling(open).temperature = -1.0, "sampling.temperature", &["-1", "100"]),
    (|open| sampling(open).temperature = 100.5, "sampling.temperature", &["100.5", "100"]),
    (|open| sampling(open).temperature = f64::NAN, "sampling.temperature", &["NaN"]),
    (|open| sampling(open).temperature = f64::INFINITY, "sampling.temperature", &["inf"]),
    (|open| sampling(open).top_p = Some(0.0), "sampling.top_p", &["0", "1"]),
    (|open| sampling(open).top_p = Some(1.5), "sampling.top_p", &["1.5", "1"]),
    (|open| sampling(open).top_p = Some(f64::NAN), "sampling.top_p", &["NaN"]),
    (|open| sampling(open).min_p = -0.5, "sampling.min_p", &["-0.5", "0 and 1"]),
    (|open| sampling(open).min_p = 2.0, "sampling.min_p", &["2", "0 and 1"]),
    (
        |open| sampling(open).logit_bias = vec![v1::LogitBias { id: 8, bias: 1.0 }],
        "sampling.logit_bias",
        &["8"],
    ),
    (|open| sampling(open).repetition_penalty = Some(-1.0), "sampling.repetition_penalty", &["-1", "0.01"]),
    (|open| sampling(open).presence_penalty = f64::NAN, "sampling.presence_penalty", &["NaN"]),
    (|open| sampling(open).frequency_penalty = -3.0, "sampling.frequency_penalty", &["-3", "-2"]),
    (|open| sampling(open).allowed_ids = vec![8], "sampling.allowed_ids", &["id 8"]),
    (|open| sampling(open).forbidden_ids = (0..8).collect(), "sampling.forbidden_ids", &["no token"]),
    (|open| (sampling(open).min_tokens, session(open).end_ids) = (1, vec![8]), "session.end_ids", &["id 8"]),
    (
        |open| (sampling(open).min_tokens, session(open).end_ids) = (1, vec![1; 129]),
        "session.end_ids",
        &["129", "128"],
    ),
    (|open| open.stop_ids = vec![8], "stop_ids", &["8"]),
    (|open| open.logprobs = Some(21), "logprobs", &["21", "20"]),
];

fn violations(status: &Status) -> Vec<String> {
    let details = status.get_details_bad_request();
    details
        .map(|bad| bad.field_violations.into_iter().map(|violation| violation.field).collect())
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_out_of_range_is_refused_by_field_value_and_limit() {
    let node = node().await;
    let channel = node.channel();
    for (index, (spoil, field, parts)) in SPOILT.iter().enumerate() {
        let mut open = good("spoilt");
        spoil(&mut open);
        let status = Verifying::open(&channel, open).await.err().unwrap();
        assert_status(&status, Code::InvalidArgument, "INVALID_FIELD");
        assert_eq!(violations(&status), [*field], "{status:?}");
        for part in *parts {
            assert!(status.message().contains(part), "{part:?} is not in {:?}", status.message());
        }
        works(&channel, &format!("after-{index}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_open_is_taken() {
    let node = node().await;
    let mut open = verify_open(&"s".repeat(128), &vec![1; CONTEXT - 1], CONTEXT, Sampling::GREEDY);
    open.stop_ids = vec![1; 64];
    assert!(Verifying::open(&node.channel(), open).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_model_or_tokenizer_is_refused_naming_both() {
    let node = node().await;
    let channel = node.channel();
    let mut open = good("s");
    session(&mut open).model_fingerprint = "feedface".into();
    let status = Verifying::open(&channel, open).await.err().unwrap();
    assert_status(&status, Code::FailedPrecondition, "MODEL_MISMATCH");
    assert!(status.message().contains("feedface") && status.message().contains("table:target"), "{status:?}");

    let ours = crate::support::plain_letters().fingerprint().to_owned();
    let mut open = good("s");
    session(&mut open).tokenizer_fingerprint = "feedface".into();
    let status = Verifying::open(&channel, open).await.err().unwrap();
    assert_status(&status, Code::FailedPrecondition, "TOKENIZER_MISMATCH");
    assert!(status.message().contains("feedface") && status.message().contains(&ours), "{status:?}");
    works(&channel, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_worker_is_as_strict() {
    let node = draft_worker(draft(random_table(2, VOCAB, 0))).await;
    node.healthy().await;
    let channel = node.channel();
    let good = || draft_open("s", &PROMPT, 32, warm());
    let refused = async |open| Drafting::open(&channel, open).await.err().unwrap();

    let frame = v1::draft_request::Kind::Frame(super::stream::drafts(text(1, 0, &PROMPT, 3), 2));
    let status = Drafting::begin(&channel, v1::DraftRequest { kind: Some(frame) }).await.err().unwrap();
    assert_status(&status, Code::FailedPrecondition, "OPEN_FIRST");

    let mut open = good();
    open.draft_key.truncate(5);
    assert_eq!(violations(&refused(open).await), ["draft_key"]);
    let mut open = good();
    open.session.as_mut().unwrap().prompt = vec![8];
    assert_eq!(violations(&refused(open).await), ["session.prompt"]);
    let mut open = good();
    open.session.as_mut().unwrap().tokenizer_fingerprint = "feedface".into();
    assert_status(&refused(open).await, Code::FailedPrecondition, "TOKENIZER_MISMATCH");
    assert!(Drafting::open(&channel, good()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_open_owns_the_session() {
    let node = node().await;
    let channel = node.channel();
    let (mut older, cached) = Verifying::open(&channel, good("s")).await.unwrap();
    assert_eq!(cached, 0);
    older.verdict(block(text(1, 0, &PROMPT, 3), &[4])).await;
    let (mut newer, cached) = Verifying::open(&channel, good("s")).await.unwrap();
    assert!(cached >= 2, "{cached} positions are still cached");
    assert_status(&older.message().await.unwrap_err(), Code::Aborted, "TAKEN_OVER");
    assert_eq!(newer.verdict(block(text(2, 0, &PROMPT, 3), &[4])).await.seq, 2);

    // Another request under the same name takes nothing of it along.
    let (mut other, cached) = Verifying::open(&channel, verify_open("s", &[5], 32, warm())).await.unwrap();
    assert_eq!(cached, 0);
    assert_status(&newer.message().await.unwrap_err(), Code::Aborted, "TAKEN_OVER");
    other.frame(decode(text(1, 0, &[5], 1), 2)).await;
    assert!(matches!(other.next().await.unwrap(), VerifyKind::Token(token) if token.position == 1));
}
