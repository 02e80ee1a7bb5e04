//! End-of-text tokens inside blocks: the answer ends there, and only there.

use foretoken_proto::v1;
use foretoken_testkit::client::{Answer, generate, ids_request};
use foretoken_testkit::cluster::Cluster;

use crate::support::{one_hot, scripted};

/// Letters a to f; the end of text behind them.
const LETTERS: usize = 6;
const END: u32 = 6;
const DRAFT_LEN: u32 = 4;

/// What the drafter does about the end of text.
#[derive(Debug, Clone, Copy)]
enum Drafter {
    /// Says what the target says.
    Agrees,
    /// Says something else where the target ends.
    Overlooks,
    /// Says end of text everywhere.
    Ends,
}

/// The prompt tells the models where the end of text comes, and what the drafter does.
fn prompt(end_at: u32, drafter: Drafter) -> [u32; 3] {
    [end_at / 6, end_at % 6, drafter as u32]
}

async fn cluster() -> Cluster {
    let target = |text: &[u32]| {
        let end_at = text[0] * 6 + text[1];
        // The letter f is the target's never.
        if text.len() as u32 - 3 == end_at { END } else { text.len() as u32 % 5 }
    };
    let draft = move |text: &[u32]| match (text[2], target(text)) {
        (0, token) => token,
        (1, END) => 5,
        (1, token) => token,
        _ => END,
    };
    scripted(
        LETTERS,
        std::sync::Arc::new(move |text| one_hot(LETTERS + 1, target(text))),
        std::sync::Arc::new(move |text| one_hot(LETTERS + 1, draft(text))),
    )
    .await
}

fn assert_ends_at(answer: &Answer, end_at: u32) {
    let count = end_at as usize + 1;
    assert_eq!(answer.ids().len(), count, "{:?}", answer.ids());
    assert_eq!(answer.ids().iter().position(|&id| id == END), Some(end_at as usize));
    assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Stop);
    let letters: String =
        answer.ids()[..count - 1].iter().map(|&id| char::from(b'a' + u8::try_from(id).unwrap())).collect();
    assert_eq!(answer.text(), letters);
    assert_eq!(answer.tokens.last().unwrap().text, "");
    let ledger = answer.ledger();
    assert_eq!(ledger.output_tokens as usize, count);
    let origins = |origin| answer.tokens.iter().filter(|token| token.origin() == origin).count() as u32;
    assert_eq!(ledger.accepted, origins(v1::Origin::Accepted));
    assert_eq!(ledger.repair, origins(v1::Origin::Repair));
    assert_eq!(ledger.bonus, origins(v1::Origin::Bonus));
    assert_eq!(ledger.plain, origins(v1::Origin::Plain));
}

async fn ask(cluster: &Cluster, end_at: u32, drafter: Drafter, draft_len: u32) -> Answer {
    let request =
        v1::GenerateRequest { draft_len: Some(draft_len), ..ids_request(&prompt(end_at, drafter), 20) };
    generate(&cluster.orchestrator, request).await.unwrap()
}

/// huggingface/transformers#47912, LostRuins/koboldcpp#1276, microsoft/onnxruntime-genai#2491: end of text at every
/// index of a block and as bonus, with more drafted behind it.
#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_end_of_text_ends_the_answer_at_every_index() {
    let cluster = cluster().await;
    for end_at in 0..=11 {
        let answer = ask(&cluster, end_at, Drafter::Agrees, DRAFT_LEN).await;
        assert_ends_at(&answer, end_at);
        let origin = answer.tokens.last().unwrap().origin();
        let expected = match end_at {
            0 => v1::Origin::Plain,
            5 | 10 => v1::Origin::Bonus,
            _ => v1::Origin::Accepted,
        };
        assert_eq!(origin, expected, "at {end_at}");
    }
}

/// huggingface/transformers#47912 where the end of text is a repair.
#[tokio::test(flavor = "multi_thread")]
async fn a_repaired_end_of_text_ends_the_answer_at_every_index() {
    let cluster = cluster().await;
    for end_at in 1..=11 {
        let answer = ask(&cluster, end_at, Drafter::Overlooks, DRAFT_LEN).await;
        assert_ends_at(&answer, end_at);
        let expected = if [5, 10].contains(&end_at) { v1::Origin::Bonus } else { v1::Origin::Repair };
        assert_eq!(answer.tokens.last().unwrap().origin(), expected, "at {end_at}");
    }
}

/// openvinotoolkit/openvino.genai#3293: a drafted end of text that the target rejects ends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_end_of_text_ends_nothing() {
    let cluster = cluster().await;
    for draft_len in [1, 4, 8] {
        let answer = ask(&cluster, 11, Drafter::Ends, draft_len).await;
        assert_ends_at(&answer, 11);
        assert!(answer.ledger().repair >= 9, "{:?}", answer.ledger());
        // An end that never comes: the answer goes on to its limit.
        let answer = ask(&cluster, 35, Drafter::Ends, draft_len).await;
        assert_eq!((answer.tokens.len(), answer.finished.finish_reason()), (20, v1::FinishReason::Length));
        assert!(!answer.ids().contains(&END));
    }
}

/// sgl-project/sglang#31599: the limit and the end in one block, in both orders and at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_first_in_the_text_decides_between_end_and_limit() {
    let cluster = cluster().await;
    for end_at in 0..=8 {
        for max_tokens in 1..=10 {
            let request = v1::GenerateRequest {
                draft_len: Some(8),
                ..ids_request(&prompt(end_at, Drafter::Agrees), max_tokens)
            };
            let answer = generate(&cluster.orchestrator, request).await.unwrap();
            if end_at < max_tokens {
                assert_ends_at(&answer, end_at);
            } else {
                assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Length);
                assert_eq!(answer.tokens.len(), max_tokens as usize);
                assert_eq!(answer.text().len(), max_tokens as usize);
            }
        }
    }
}
