//! Draft frames: as many tokens as asked for, the same for the same frame, never beyond the reserve.

use foretoken_acceptance::{Distribution, Lattice, LatticeShape};
use foretoken_engine::Sampling;
use foretoken_proto::v1;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::cluster::{Node, draft_worker, ngram};
use foretoken_testkit::table::{TableModel, random_table};
use tonic::Code;

use super::stream::{DraftKind, Drafting, draft_open, drafts, keys, text, warm};
use crate::support::{VOCAB, assert_status, draft, model, until};

const PROMPT: [u32; 3] = [0, 1, 2];

async fn node() -> Node {
    let node = draft_worker(draft(random_table(2, VOCAB, 0))).await;
    node.healthy().await;
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_frame_gets_the_same_draft_drawn_from_the_q_it_sends() {
    let node = node().await;
    let mut stream = Drafting::open(&node.channel(), draft_open("s", &PROMPT, 96, warm())).await.unwrap();
    let drafted = stream.drafted(drafts(text(1, 5, &PROMPT, 3), 6)).await;
    assert_eq!((drafted.tokens.len(), drafted.q.len(), drafted.epoch), (6, 6, 5));
    assert_eq!(stream.drafted(drafts(text(1, 5, &PROMPT, 3), 6)).await, drafted);
    // Another worker in its place drafts the same, so does the same worker asked anew.
    let again = stream.drafted(drafts(text(2, 5, &PROMPT, 3), 6)).await;
    assert_eq!((&again.tokens, &again.q), (&drafted.tokens, &drafted.q));

    let table = random_table(2, VOCAB, 0);
    let mut tokens = PROMPT.to_vec();
    for (token, wire) in drafted.tokens.iter().zip(&drafted.q) {
        let p = Distribution::from_logits(&TableModel::logits_of(&table(&tokens)), &warm()).unwrap();
        let mut q = Lattice::default();
        q.fill(&p, LatticeShape::default());
        assert_eq!(v1::LatticeQ::from(&q), *wire);
        assert_eq!(q.draw(keys().draft().word(tokens.len() as u64, 5)), *token);
        tokens.push(*token);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn greedy_drafts_carry_no_q() {
    let node = node().await;
    let open = draft_open("s", &PROMPT, 96, Sampling::GREEDY);
    let mut stream = Drafting::open(&node.channel(), open).await.unwrap();
    let drafted = stream.drafted(drafts(text(1, 0, &PROMPT, 3), 6)).await;
    assert_eq!((drafted.tokens.len(), drafted.q.len()), (6, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_for_no_tokens_warms_the_cache() {
    let source = model("draft", random_table(2, VOCAB, 0), &RuntimeConfig::default());
    let runtime = source.runtime.clone();
    let node = draft_worker(foretoken_draft_worker::Source::Model(source)).await;
    node.healthy().await;
    let mut stream = Drafting::open(&node.channel(), draft_open("s", &PROMPT, 96, warm())).await.unwrap();
    let mut committed = PROMPT.to_vec();
    committed.extend([4; 20]);
    let drafted = stream.drafted(drafts(text(1, 0, &committed, 3), 0)).await;
    assert!(drafted.tokens.is_empty() && drafted.q.is_empty());
    // All but the token that the next frame feeds.
    until("the text is read ahead", || runtime.stats().rows == 22).await;
    let drafted = stream.drafted(drafts(text(2, 0, &committed, 23), 2)).await;
    assert_eq!(drafted.tokens.len(), 2);
    assert_eq!(runtime.stats().rows, 22 + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn drafts_end_at_the_reserve() {
    for source in [draft(random_table(2, VOCAB, 0)), ngram()] {
        let node = draft_worker(source).await;
        node.healthy().await;
        // A period, so that look-up has a guess too.
        let prompt = [0, 1, 0, 1, 0, 1];
        let mut stream = Drafting::open(&node.channel(), draft_open("s", &prompt, 9, warm())).await.unwrap();
        assert_eq!(stream.drafted(drafts(text(1, 0, &prompt, 6), 8)).await.tokens.len(), 3);
        let committed = [0, 1, 0, 1, 0, 1, 0, 1, 0];
        assert_eq!(stream.drafted(drafts(text(2, 0, &committed, 6), 8)).await.tokens.len(), 0);
        stream.frame(drafts(text(3, 0, &[0; 10], 6), 8)).await;
        match stream.next().await.unwrap() {
            DraftKind::Invalid(invalid) => {
                assert_eq!((invalid.reason.as_str(), invalid.field.as_str()), ("OUT_OF_RANGE", "text.start"));
            }
            other => panic!("{other:?}"),
        }
        stream.frame(drafts(text(4, 0, &prompt, 6), 65)).await;
        match stream.next().await.unwrap() {
            DraftKind::Invalid(invalid) => {
                assert_eq!((invalid.reason.as_str(), invalid.field.as_str()), ("OUT_OF_RANGE", "draft_len"));
                assert!(invalid.message.contains("65") && invalid.message.contains("64"), "{invalid:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn look_up_follows_the_same_conversation() {
    let node = draft_worker(ngram()).await;
    node.healthy().await;
    let prompt = [0, 1, 2, 3, 0, 1];
    let mut stream = Drafting::open(&node.channel(), draft_open("s", &prompt, 64, warm())).await.unwrap();
    let drafted = stream.drafted(drafts(text(1, 3, &prompt, 6), 3)).await;
    assert_eq!((drafted.tokens.as_slice(), drafted.q.len()), ([2, 3, 0].as_slice(), 0));
    assert_eq!(stream.drafted(drafts(text(1, 3, &prompt, 6), 3)).await.tokens, drafted.tokens);
    stream.frame(drafts(text(2, 2, &prompt, 6), 3)).await;
    assert!(matches!(stream.next().await.unwrap(), DraftKind::Stale(stale) if stale.epoch == 3));
    stream.frame(drafts(text(3, 3, &[0, 1, 2, 3, 0, 1, 7, 7], 8), 3)).await;
    assert!(matches!(stream.next().await.unwrap(), DraftKind::NeedPrefix(need) if need.have_len == 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_has_so_many_sessions() {
    use foretoken_draft_worker::ngram::Ngram;
    use foretoken_runtime::Limits;
    let limits = Limits { max_sessions: 2, ..Limits::default() };
    let config = RuntimeConfig { limits, ..RuntimeConfig::default() };
    let sources = [
        foretoken_draft_worker::Source::Ngram(Ngram { limits, ..Ngram::default() }),
        foretoken_draft_worker::Source::Model(model("draft", random_table(2, VOCAB, 0), &config)),
    ];
    for source in sources {
        let node = draft_worker(source).await;
        node.healthy().await;
        let channel = node.channel();
        let _first = Drafting::open(&channel, draft_open("1", &PROMPT, 96, warm())).await.unwrap();
        let _second = Drafting::open(&channel, draft_open("2", &PROMPT, 96, warm())).await.unwrap();
        let status = Drafting::open(&channel, draft_open("3", &PROMPT, 96, warm())).await.err().unwrap();
        assert_status(&status, Code::ResourceExhausted, "SESSIONS_FULL");
        assert!(foretoken_proto::error::retry_after_of(&status).is_some());
    }
}
