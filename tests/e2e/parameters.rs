//! Penalties, masks, samples and log-probabilities on the default model, three services as processes.

use foretoken_proto::v1;
use foretoken_testkit::client::{Answer, samples_at};
use foretoken_tests::process::{Service, ready, test_model};
use tonic::transport::Channel;

use crate::real_model::{answer, request};

/// Something that a small model repeats itself on.
const PROMPT: &str = "Write a list of animals: cat, dog, cat, dog, cat,";

async fn services() -> ([Service; 4], Channel) {
    let verifier = Service::verifier();
    let (ngram, model) =
        (Service::draft_worker("ngram"), Service::draft_worker(&test_model().to_string_lossy()));
    // No drafter is given up for being slow: forty-eight tokens take a while.
    let patience = ["--draft-timeout", "60s"];
    let orchestrator = Service::orchestrator(&verifier, &[&ngram, &model], &patience);
    let channel = ready(&orchestrator, 2).await;
    ([verifier, ngram, model, orchestrator], channel)
}

fn penalties() -> v1::Sampling {
    v1::Sampling {
        repetition_penalty: Some(1.05),
        presence_penalty: 0.2,
        frequency_penalty: 0.1,
        ..v1::Sampling::default()
    }
}

/// With penalties the look-up is hardly ever right, and the text is that of plain decoding all the same.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn penalised_greedy_text_is_that_of_plain_decoding() {
    let (_services, channel) = services().await;
    let endless = || v1::GenerateRequest { ignore_eos: true, ..request(PROMPT, 96) };
    let without = answer(&channel, v1::GenerateRequest { draft_len: Some(0), ..endless() }).await;
    let penalised = |draft_len, drafter: v1::DrafterKind| v1::GenerateRequest {
        sampling: Some(penalties()),
        draft_len: Some(draft_len),
        drafter: drafter.into(),
        ..endless()
    };
    let plain = answer(&channel, penalised(0, v1::DrafterKind::None)).await;
    assert_ne!(plain.ids(), without.ids(), "the penalties show");
    for draft_len in [2, 8, 48] {
        for drafter in [v1::DrafterKind::Ngram, v1::DrafterKind::Model] {
            let drafted = answer(&channel, penalised(draft_len, drafter)).await;
            assert_eq!(drafted.ids(), plain.ids(), "{drafter:?}, draft length {draft_len}");
            let ledger = drafted.ledger();
            println!("{drafter:?} {draft_len}: {} of {} accepted", ledger.accepted, ledger.drafted);
            assert!(ledger.drafted > 0, "{drafter:?} drafted nothing: {:?}", drafted.finished);
            if drafter == v1::DrafterKind::Model {
                // The target as its own draft, under the same penalties: every guess is right.
                assert_eq!(ledger.repair, 0, "{ledger:?}");
            }
        }
    }
}

/// ln p of a token, after all parameters and raw, and of the likeliest.
type Told = (f32, f32, Vec<(u32, f32)>);

fn logprobs(answer: &Answer) -> Vec<Told> {
    let of = |token: &v1::Token| {
        let told = token.logprobs.clone().expect("log-probabilities");
        let top = told.top.iter().chain(&told.raw_top).map(|top| (top.id, top.logprob)).collect();
        (told.logprob, told.raw_logprob, top)
    };
    answer.tokens.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn log_probabilities_are_those_of_plain_decoding() {
    let (_services, channel) = services().await;
    for sampling in [v1::Sampling::default(), penalties()] {
        let asked = |draft_len, drafter: v1::DrafterKind| v1::GenerateRequest {
            sampling: Some(sampling.clone()),
            draft_len: Some(draft_len),
            drafter: drafter.into(),
            logprobs: Some(5),
            ..request(PROMPT, 64)
        };
        let plain = answer(&channel, asked(0, v1::DrafterKind::None)).await;
        let right = logprobs(&plain);
        let mut furthest = 0f32;
        for (draft_len, drafter) in [
            (1, v1::DrafterKind::Ngram),
            (4, v1::DrafterKind::Ngram),
            (3, v1::DrafterKind::Model),
            (8, v1::DrafterKind::Model),
        ] {
            let drafted = answer(&channel, asked(draft_len, drafter)).await;
            assert_eq!(drafted.ids(), plain.ids());
            for (got, right) in logprobs(&drafted).iter().zip(&right) {
                furthest = furthest.max((got.0 - right.0).abs()).max((got.1 - right.1).abs());
                assert_eq!(got.2.len(), right.2.len());
                for (got, right) in got.2.iter().zip(&right.2) {
                    assert_eq!(got.0, right.0);
                    furthest = furthest.max((got.1 - right.1).abs());
                }
            }
        }
        println!("log-probabilities differ by {furthest:e} at most");
        assert!(furthest < 1e-4, "{furthest}");
        assert!(right.iter().any(|(_, raw, _)| *raw < -0.1), "no placeholders: {right:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn samples_masks_and_min_tokens_hold_on_the_real_model() {
    let (_services, channel) = services().await;
    let plain = answer(&channel, request("The capital of France is", 24)).await;
    let forbidden = plain.ids();
    let warm = v1::Sampling {
        temperature: 0.8,
        forbidden_ids: forbidden.clone(),
        min_tokens: 24,
        ..v1::Sampling::default()
    };
    let many = v1::GenerateRequest {
        sampling: Some(warm),
        seed: Some(1),
        n: Some(6),
        draft_len: Some(4),
        ..request("The capital of France is", 24)
    };
    let samples = samples_at(channel.clone(), many).await.unwrap();
    let different: std::collections::BTreeSet<_> = samples.iter().map(Answer::ids).collect();
    assert_eq!(different.len(), 6);
    for sample in &samples {
        assert_eq!(sample.tokens.len(), 24, "an end came before min_tokens");
        assert!(sample.ids().iter().all(|id| !forbidden.contains(id)));
    }
}
