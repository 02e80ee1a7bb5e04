//! Bias, penalties, masks, stop ids and end-of-text: with speculation they do what they do without it.

use std::sync::Arc;

use foretoken_acceptance::{AdjustmentParams, Adjustments, Distribution, Sampling};
use foretoken_orchestrator::Config;
use foretoken_proto::convert::sampling_to_wire;
use foretoken_proto::v1;
use foretoken_testkit::adjusted::{Before, adjusted};
use foretoken_testkit::client::{Answer, generate, ids_request};
use foretoken_testkit::cluster::{Cluster, ngram};
use foretoken_testkit::table::{Table, TableModel, random_table};

use crate::support::{VOCAB, draft, one_hot, says, scripted, target};

const DRAFTERS: [v1::DrafterKind; 3] =
    [v1::DrafterKind::Model, v1::DrafterKind::Ngram, v1::DrafterKind::None];

async fn cluster(target_table: Table, draft_table: Table) -> Cluster {
    let drafts = vec![ngram(), draft(draft_table)];
    Cluster::start(target(target_table), drafts, Config::default()).await
}

fn wire(sampling: &Sampling, params: AdjustmentParams) -> Option<v1::Sampling> {
    Some(sampling_to_wire(sampling, &Adjustments::new(params).unwrap()))
}

async fn ask(cluster: &Cluster, request: v1::GenerateRequest) -> Answer {
    generate(&cluster.orchestrator, request).await.unwrap()
}

/// The greedy answer by the definition: counted anew for every token.
fn greedy_text(table: &Table, params: &AdjustmentParams, prompt: &[u32], len: usize) -> Vec<u32> {
    let adjustments = Adjustments::new(params.clone()).unwrap();
    let mut text = prompt.to_vec();
    for output_len in 0..len {
        let before = Before { output_len, history: &text[prompt.len()..] };
        let logits = adjusted(&TableModel::logits_of(&table(&text)), &adjustments, prompt, before);
        text.push(Distribution::from_logits(&logits, &Sampling::GREEDY).unwrap().argmax());
    }
    text.split_off(prompt.len())
}

/// vllm-project/vllm#42744: a bias of -100 on the draft's favourite token, which is the target's, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_biased_away_favourite_never_comes() {
    let favourite: Table = Arc::new(|_| (0..VOCAB).map(|id| if id == 3 { 0.93 } else { 0.01 }).collect());
    let cluster = cluster(favourite.clone(), favourite).await;
    let bias = |bias| AdjustmentParams { logit_bias: vec![(3, bias)], ..AdjustmentParams::default() };
    for sampling in [Sampling::GREEDY, Sampling::new(1.0, 0, 1.0, 0.0).unwrap()] {
        for drafter in DRAFTERS {
            for (params, comes) in [(bias(0.0), true), (bias(-100.0), false)] {
                let request = v1::GenerateRequest {
                    sampling: wire(&sampling, params),
                    seed: Some(1),
                    drafter: drafter.into(),
                    // The look-up finds the favourite in the prompt.
                    ..ids_request(&[3, 3, 3, 3], 120)
                };
                let answer = ask(&cluster, request).await;
                assert_eq!(answer.ids().contains(&3), comes, "{drafter:?}: {:?}", answer.ids());
            }
        }
    }
}

/// The same for a drafter that does not know of the bias and insists: its token is judged, and rejected.
#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_draft_stays_in_its_block_and_is_rejected() {
    let table = random_table(5, VOCAB, 0);
    let cluster = cluster(table.clone(), table.clone()).await;
    let forbidden = vec![0, 2, 5];
    let params = AdjustmentParams { forbidden_ids: forbidden.clone(), ..AdjustmentParams::default() };
    let right = greedy_text(&table, &params, &[0, 2, 5, 0, 2, 5, 0, 2], 60);
    for drafter in DRAFTERS {
        let request = v1::GenerateRequest {
            sampling: wire(&Sampling::GREEDY, params.clone()),
            drafter: drafter.into(),
            ..ids_request(&[0, 2, 5, 0, 2, 5, 0, 2], 60)
        };
        let answer = ask(&cluster, request).await;
        assert_eq!(answer.ids(), right, "{drafter:?}");
        assert!(answer.ids().iter().all(|id| !forbidden.contains(id)));
        if drafter != v1::DrafterKind::None {
            assert!(answer.ledger().drafted > 0, "{drafter:?} drafted nothing");
        }
    }
}

/// NVIDIA/TensorRT-LLM#17701, sgl-project/sglang#28180: a model that says one thing for ever is made to say others, by
/// each penalty alone, whoever drafts.
#[tokio::test(flavor = "multi_thread")]
async fn a_loop_is_broken_by_each_penalty() {
    // One letter three times as likely as any other.
    let stuck: Table = Arc::new(|_| (0..VOCAB).map(|id| if id == 4 { 0.3 } else { 0.1 }).collect());
    let cluster = cluster(stuck.clone(), stuck.clone()).await;
    let none = AdjustmentParams::default;
    for (params, other_tokens) in [
        (none(), false),
        (AdjustmentParams { presence_penalty: 1.5, ..none() }, true),
        (AdjustmentParams { frequency_penalty: 0.3, ..none() }, true),
        (AdjustmentParams { repetition_penalty: 2.0, ..none() }, true),
    ] {
        let right = greedy_text(&stuck, &params, &[0, 4], 60);
        assert_eq!(right.iter().any(|&id| id != 4), other_tokens, "{params:?}");
        for drafter in DRAFTERS {
            let request = v1::GenerateRequest {
                sampling: wire(&Sampling::GREEDY, params.clone()),
                drafter: drafter.into(),
                ..ids_request(&[0, 4], 60)
            };
            assert_eq!(ask(&cluster, request).await.ids(), right, "{params:?} with {drafter:?}");
        }
    }
}

/// Penalties with hardly anything accepted: blocks are rejected over and over, and what was in them leaves no trace.
#[tokio::test(flavor = "multi_thread")]
async fn rejected_tokens_never_count() {
    let (table, other) = (random_table(11, VOCAB, 0), random_table(12, VOCAB, 0));
    let cluster = cluster(table.clone(), other).await;
    let params = AdjustmentParams {
        logit_bias: vec![(1, -0.5), (6, 0.75)],
        repetition_penalty: 1.2,
        presence_penalty: 0.4,
        frequency_penalty: 0.15,
        ..AdjustmentParams::default()
    };
    let prompt = [1, 2, 3];
    let right = greedy_text(&table, &params, &prompt, 300);
    let (mut drafted, mut accepted) = (0, 0);
    for draft_len in [0, 2, 8, 48] {
        let request = v1::GenerateRequest {
            sampling: wire(&Sampling::GREEDY, params.clone()),
            draft_len: Some(draft_len),
            drafter: v1::DrafterKind::Model.into(),
            ..ids_request(&prompt, 300)
        };
        let answer = ask(&cluster, request).await;
        assert_eq!(answer.ids(), right, "draft length {draft_len}");
        (drafted, accepted) = (drafted + answer.ledger().drafted, accepted + answer.ledger().accepted);
    }
    assert!(drafted > 1000 && accepted * 4 < drafted, "{accepted} of {drafted} were accepted");
}

const LETTERS: usize = 6;
const END: u32 = 6;

/// A target that ends at every multiple of four output tokens, and its own draft.
async fn ending() -> Cluster {
    let table =
        || says(LETTERS + 1, |text: &[u32]| if text.len() % 4 == 1 { END } else { text.len() as u32 % 5 });
    scripted(LETTERS, table(), table()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ignored_ends_end_nothing() {
    let cluster = ending().await;
    for draft_len in [0, 1, 3, 8] {
        let request =
            v1::GenerateRequest { draft_len: Some(draft_len), ignore_eos: true, ..ids_request(&[0, 1], 20) };
        let answer = ask(&cluster, request).await;
        assert_eq!(answer.tokens.len(), 20);
        assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Length);
        assert_eq!(answer.ids().iter().filter(|&&id| id == END).count(), 5, "{:?}", answer.ids());
        assert!(answer.tokens.iter().all(|token| token.text.is_empty() == (token.id == END)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_id_ends_the_answer_at_every_index_and_has_no_text() {
    let table = || says(VOCAB, |text: &[u32]| if text.len() % 16 == 15 { 7 } else { text.len() as u32 % 5 });
    let cluster = cluster(table(), table()).await;
    for prompt_len in 1..15 {
        for draft_len in [0, 1, 4, 8] {
            let request = v1::GenerateRequest {
                draft_len: Some(draft_len),
                drafter: v1::DrafterKind::Model.into(),
                stop_ids: vec![6, 7],
                logprobs: Some(2),
                ..ids_request(&vec![0; prompt_len], 40)
            };
            let answer = ask(&cluster, request).await;
            assert_eq!(answer.tokens.len(), 16 - prompt_len, "{prompt_len} {draft_len}");
            let last = answer.tokens.last().unwrap();
            assert_eq!((last.id, last.text.as_str()), (7, ""));
            assert_eq!(answer.text().len(), answer.tokens.len() - 1);
            assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Stop);
            assert_eq!(answer.ledger().output_tokens as usize, answer.tokens.len());
            assert!(answer.tokens.iter().all(|token| token.logprobs.is_some()));
        }
    }
}

/// The end of text is masked at the first `min_tokens` output tokens, inside blocks and outside, and comes when it may.
#[tokio::test(flavor = "multi_thread")]
async fn no_end_comes_before_min_tokens() {
    // The end of text is the likeliest everywhere.
    let table: Table = Arc::new(|text| {
        let mut probs = one_hot(LETTERS + 1, END);
        probs.iter_mut().for_each(|p| *p *= 0.9);
        probs[text.len() % 5] += 0.1;
        probs
    });
    let cluster = scripted(LETTERS, table.clone(), table).await;
    for min_tokens in [0, 1, 2, 5, 9, 20] {
        for draft_len in [0, 1, 3, 8] {
            for (ignore_eos, stop_ids) in [(false, vec![]), (true, vec![END]), (true, vec![])] {
                let ends = !ignore_eos || !stop_ids.is_empty();
                let params = AdjustmentParams { min_tokens, ..AdjustmentParams::default() };
                let request = v1::GenerateRequest {
                    sampling: wire(&Sampling::GREEDY, params),
                    draft_len: Some(draft_len),
                    ignore_eos,
                    stop_ids,
                    ..ids_request(&[0, 1], 20)
                };
                let answer = ask(&cluster, request).await;
                let expected = if ends { (min_tokens as usize + 1).min(20) } else { 20 };
                assert_eq!(answer.tokens.len(), expected, "{min_tokens} {draft_len} {ends}");
                assert_eq!(
                    answer.ids().iter().position(|&id| id == END),
                    match (ends, min_tokens) {
                        (false, _) => Some(0),
                        (true, 20) => None,
                        (true, _) => Some(min_tokens as usize),
                    }
                );
            }
        }
    }
}

/// A session that is taken over by a newer Open keeps its history, and one under other parameters does not pass for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_draft_worker_changes_nothing_under_penalties() {
    let table = random_table(13, VOCAB, 0);
    let mut cluster = cluster(table.clone(), table.clone()).await;
    let params = AdjustmentParams { frequency_penalty: 0.5, ..AdjustmentParams::default() };
    let right = greedy_text(&table, &params, &[1], 200);
    let request = v1::GenerateRequest {
        sampling: wire(&Sampling::GREEDY, params),
        draft_len: Some(4),
        ..ids_request(&[1], 200)
    };
    let mut reading = crate::support::Reading::start(&cluster.orchestrator, request).await.unwrap();
    reading.until(|tokens| tokens.len() > 40).await.unwrap();
    for worker in std::mem::take(&mut cluster.draft_workers) {
        worker.stop().await;
    }
    reading.finish().await.unwrap();
    assert_eq!(reading.ids(), right);
}

/// What the drafter is told helps it: with the same bias it guesses what the target says, without it nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_draft_model_drafts_under_the_same_parameters() {
    let table = random_table(14, VOCAB, 0);
    let cluster = Cluster::start(target(table.clone()), vec![draft(table)], Config::default()).await;
    let params = AdjustmentParams {
        logit_bias: vec![(2, 4.0)],
        frequency_penalty: 0.7,
        forbidden_ids: vec![1],
        ..AdjustmentParams::default()
    };
    let request = v1::GenerateRequest {
        sampling: wire(&Sampling::GREEDY, params),
        draft_len: Some(6),
        ..ids_request(&[1, 2], 200)
    };
    let ledger = ask(&cluster, request).await.ledger().clone();
    assert_eq!((ledger.accepted, ledger.repair), (ledger.drafted, 0), "{ledger:?}");
}
