//! Tables of n-grams: damaged ones, those of another tokenizer, and what is left of rejected guesses.

use std::sync::Arc;

use foretoken_draft_worker::ngram::Ngram;
use foretoken_draft_worker::{Source, tables};
use foretoken_engine::conversation::DraftOpen;
use foretoken_engine::{AdjustmentParams, Adjustments};
use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_testkit::client::{describe, generate, ids_request};
use foretoken_testkit::cluster::{Cluster, draft_worker};
use foretoken_testkit::ngrams;
use foretoken_testkit::table::random_table;
use foretoken_testkit::vocabulary::letters;
use tonic::Code;

use crate::protocol::stream::{Drafting, draft_open, drafts, keys, session, text, warm};
use crate::support::{VOCAB, assert_status, plain_letters, target};

const TEXT: [u32; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 2, 4, 6];

fn with_table(vocab: usize) -> Source {
    let table = ngrams::table(3, &letters(vocab, false).unwrap(), &[&TEXT]);
    Source::Ngram(Ngram { table: Some(Arc::new(table)), ..Ngram::default() })
}

/// A table of another tokenizer is refused with both fingerprints and sizes; the answer goes on without.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_tokenizer_is_refused_by_both_names() {
    let cluster =
        Cluster::start(target(random_table(7, VOCAB, 0)), vec![with_table(VOCAB + 1)], Config::default())
            .await;
    let description = describe(&cluster.orchestrator).await;
    let state = &description.draft_workers[0];
    assert_eq!((state.ready, state.reason.as_str()), (false, "TOKENIZER_MISMATCH"));
    let answer = generate(&cluster.orchestrator, ids_request(&[0], 40)).await.unwrap();
    assert_eq!((answer.tokens.len(), answer.ledger().drafted), (40, 0));
    let off = &answer.finished.speculation_off[0];
    let (theirs, ours) = (letters(VOCAB + 1, false).unwrap(), plain_letters());
    for message in [&state.message, &off.message] {
        for part in
            ["ngram+table", "target", "9 tokens", "8 tokens", theirs.fingerprint(), ours.fingerprint()]
        {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
        assert!(message.contains("foretoken ngram build"), "{message:?}");
    }
}

/// The worker itself refuses too: an orchestrator need not have looked.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_another_tokenizer_is_not_opened() {
    let node = draft_worker(with_table(VOCAB)).await;
    node.healthy().await;
    let open = |fingerprint: &str| {
        let mut open = draft_open("s", &[0, 1], 64, warm());
        if let Some(session) = &mut open.session {
            session.tokenizer_fingerprint = fingerprint.to_owned();
        }
        open
    };
    let stranger = letters(VOCAB + 1, false).unwrap();
    let status = Drafting::open(&node.channel(), open(stranger.fingerprint())).await.err().unwrap();
    assert_status(&status, Code::FailedPrecondition, "TOKENIZER_MISMATCH");
    let ours = plain_letters();
    for part in [stranger.fingerprint(), ours.fingerprint()] {
        assert!(status.message().contains(part), "{status:?}");
    }
    assert!(Drafting::open(&node.channel(), open(ours.fingerprint())).await.is_ok());
}

#[test]
fn a_damaged_table_is_refused_with_its_name_and_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.ngram");
    let name = path.to_str().unwrap();
    let whole = ngrams::encoded(3, &plain_letters(), &[&TEXT]);
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        format!("{:#}", tables::load(name).unwrap_err())
    };
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    for (bytes, told) in [
        (&whole[..whole.len() - 1], "not whole"),
        (&whole[..20], "not whole"),
        (flipped.as_slice(), "checksum"),
        (b"GGUF and so on".as_slice(), "no n-gram table"),
        (b"".as_slice(), "no n-gram table"),
    ] {
        let error = refused(bytes);
        assert!(error.contains(told) && error.contains(name), "{error}");
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(tables::load(name).unwrap().head().order, 3);
    let error = format!("{:#}", tables::load("no/such.ngram").unwrap_err());
    assert!(error.contains("no/such.ngram") && error.contains("SmolLM2-135M-Instruct"), "{error}");
}

/// Guesses that were rejected are forgotten: what is drafted next is what a worker drafts that never saw them.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_drafted_from_rejected_guesses() {
    let node = draft_worker(with_table(VOCAB)).await;
    node.healthy().await;
    let channel = node.channel();
    let prompt = [0, 1];
    let mut stream = Drafting::open(&channel, draft_open("long", &prompt, 400, warm())).await.unwrap();
    let mut committed = prompt.to_vec();
    let mut drafted_before = 0;
    for round in 0..60u64 {
        let known = committed.len().saturating_sub(3).max(prompt.len());
        let frame = drafts(text(round + 1, round, &committed, known), 5);
        let drafted = stream.drafted(frame.clone()).await;
        let mut fresh =
            Drafting::open(&channel, draft_open(&format!("{round}"), &prompt, 400, warm())).await.unwrap();
        let again = fresh.drafted(drafts(text(round + 1, round, &committed, prompt.len()), 5)).await;
        assert_eq!((&again.tokens, &again.q), (&drafted.tokens, &drafted.q), "round {round}");
        // Again the same: nothing of the first answer is left either.
        assert_eq!(stream.drafted(frame).await.tokens, drafted.tokens);
        drafted_before += drafted.tokens.len();
        // One guess stands, the next is repaired by a token that was not guessed.
        let stands = drafted.tokens.first().copied().unwrap_or(0);
        let guessed = drafted.tokens.get(1).copied().unwrap_or(0);
        committed.extend([stands, (guessed + 1 + (round % 5) as u32) % VOCAB as u32]);
    }
    assert!(drafted_before > 100, "{drafted_before} tokens were drafted");
}

/// A block tells what each token was drawn from as soon as one of them was drawn.
#[tokio::test(flavor = "multi_thread")]
async fn one_hot_and_drawn_guesses_share_a_block() {
    let node = draft_worker(with_table(VOCAB)).await;
    node.healthy().await;
    let block = async |id: &str, prompt: &[u32], sampling| {
        let mut stream = Drafting::open(&node.channel(), draft_open(id, prompt, 64, sampling)).await.unwrap();
        stream.drafted(drafts(text(1, 0, prompt, prompt.len()), 4)).await
    };
    // The text repeats itself: nothing is drawn, so no q is told.
    let looked_up = block("l", &[0, 1, 5, 3, 0, 1], warm()).await;
    assert_eq!((looked_up.tokens.as_slice(), looked_up.q.len()), ([5, 3, 0, 1].as_slice(), 0));
    // 4 5 is new to the text, and the table knows only 6 behind it. 5 6 stood before, and so do its followers.
    let prompt = [5, 6, 7, 0, 4, 5];
    let mixed = block("m", &prompt, warm()).await;
    assert_eq!(mixed.tokens, [6, 7, 0, 4]);
    let q = |id, count| v1::LatticeQ { id_deltas: vec![id], counts: vec![count] };
    assert_eq!(mixed.q, [q(6, 4096), q(7, 1), q(0, 1), q(4, 1)]);
    // At temperature 0 everything is one-hot.
    let greedy = block("g", &prompt, foretoken_engine::Sampling::GREEDY).await;
    assert_eq!((greedy.tokens, greedy.q.len()), (mixed.tokens, 0));
}

/// A guess that the request forbids would be rejected and waste the block behind it: others are guessed instead.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_request_forbids_is_not_guessed() {
    let node = draft_worker(with_table(VOCAB)).await;
    node.healthy().await;
    let prompt = [0, 1, 2, 7, 0, 1];
    let block = async |id: &str, params: AdjustmentParams| {
        let mut session = session(id, &prompt, 64, foretoken_engine::Sampling::GREEDY);
        session.adjustments = Adjustments::new(params).unwrap();
        let open = (&DraftOpen { session, key: keys().draft() }).into();
        let mut stream = Drafting::open(&node.channel(), open).await.unwrap();
        stream.drafted(drafts(text(1, 0, &prompt, prompt.len()), 4)).await.tokens
    };
    assert_eq!(block("all", AdjustmentParams::default()).await, [2, 7, 0, 1]);
    let forbidden = AdjustmentParams { forbidden_ids: vec![7], ..AdjustmentParams::default() };
    assert_eq!(block("forbidden", forbidden).await[..2], [2, 3]);
    // 7 would end the answer, and is guessed where the answer may end.
    let min_tokens =
        |min_tokens| AdjustmentParams { min_tokens, end_ids: vec![7], ..AdjustmentParams::default() };
    assert_eq!(block("early", min_tokens(2)).await[..2], [2, 3]);
    assert_eq!(block("late", min_tokens(1)).await[..2], [2, 7]);
}
