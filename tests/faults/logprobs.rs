//! Log-probabilities: of every emitted token, however it came to be, the numbers that the table gives.

use foretoken_acceptance::{AdjustmentParams, Adjustments, Distribution, Sampling};
use foretoken_orchestrator::Config;
use foretoken_proto::convert::sampling_to_wire;
use foretoken_proto::v1;
use foretoken_testkit::adjusted::{Before, adjusted};
use foretoken_testkit::client::{Answer, generate, ids_request};
use foretoken_testkit::cluster::{Cluster, verifier};
use foretoken_testkit::table::{Table, TableModel, random_table};

use crate::protocol::stream::{VerifyKind, Verifying, block, decode, text, verify_open, warm};
use crate::support::{VOCAB, draft, scripted, target};

const PROMPT: [u32; 3] = [1, 2, 3];
/// As close as log-probabilities must be.
const CLOSE: f64 = 1e-4;

fn params() -> AdjustmentParams {
    AdjustmentParams {
        logit_bias: vec![(2, 1.5)],
        repetition_penalty: 1.1,
        frequency_penalty: 0.2,
        ..AdjustmentParams::default()
    }
}

/// The likeliest tokens of a distribution with ln p.
fn likeliest(p: &Distribution, count: usize) -> Vec<(u32, f64)> {
    let mut all: Vec<_> = p.iter().map(|(id, p)| (id, p.ln())).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(count);
    all
}

#[track_caller]
fn assert_top(told: &[v1::TokenLogprob], right: &[(u32, f64)]) {
    assert_eq!(
        told.iter().map(|top| top.id).collect::<Vec<_>>(),
        right.iter().map(|top| top.0).collect::<Vec<_>>()
    );
    for (told, (_, right)) in told.iter().zip(right) {
        assert!((f64::from(told.logprob) - right).abs() < CLOSE, "{told:?}, not {right}");
    }
}

/// Holds every token's log-probabilities against the table.
fn check(answer: &Answer, table: &Table, sampling: &Sampling, top: usize) {
    let adjustments = Adjustments::new(params()).unwrap();
    let mut text = PROMPT.to_vec();
    for (output_len, token) in answer.tokens.iter().enumerate() {
        let logits = TableModel::logits_of(&table(&text));
        let before = Before { output_len, history: &text[PROMPT.len()..] };
        let shaped = adjusted(&logits, &adjustments, &PROMPT, before);
        let p = Distribution::from_logits(&shaped, sampling).unwrap();
        let raw = Distribution::from_logits(&logits, &Sampling::PLAIN).unwrap();
        let told = token.logprobs.as_ref().expect("log-probabilities");
        let (logprob, raw_logprob) = (p.prob(token.id).ln(), raw.prob(token.id).ln());
        assert!((f64::from(told.logprob) - logprob).abs() < CLOSE, "{token:?}, not {logprob}");
        assert!((f64::from(told.raw_logprob) - raw_logprob).abs() < CLOSE, "{token:?}, not {raw_logprob}");
        assert_top(&told.top, &likeliest(&p, top));
        assert_top(&told.raw_top, &likeliest(&raw, top));
        text.push(token.id);
    }
}

fn request(sampling: &Sampling, rule: v1::Rule, draft_len: u32, top: u32) -> v1::GenerateRequest {
    v1::GenerateRequest {
        sampling: Some(sampling_to_wire(sampling, &Adjustments::new(params()).unwrap())),
        draft_len: Some(draft_len),
        rule: rule.into(),
        logprobs: Some(top),
        seed: Some(4),
        ..ids_request(&PROMPT, 120)
    }
}

/// ggml-org/llama.cpp#27972: with speculation and without it, for accepted, repaired, bonus and plain tokens alike.
#[tokio::test(flavor = "multi_thread")]
async fn every_token_has_the_log_probabilities_of_its_position() {
    let table = random_table(21, VOCAB, 0);
    let cluster =
        Cluster::start(target(table.clone()), vec![draft(random_table(22, VOCAB, 0))], Config::default())
            .await;
    use v1::Rule::{Block, Gumbel, Token};
    let truncated = Sampling::new(0.8, 5, 0.95, 0.0).unwrap();
    for sampling in [Sampling::GREEDY, Sampling::PLAIN, truncated] {
        let mut origins = std::collections::BTreeSet::new();
        let plain = generate(&cluster.orchestrator, request(&sampling, Token, 0, 5)).await.unwrap();
        check(&plain, &table, &sampling, 5);
        for (rule, draft_len, top) in
            [(Token, 1, 0), (Token, 4, 20), (Block, 2, 5), (Block, 8, 3), (Gumbel, 2, 1), (Gumbel, 5, 4)]
        {
            let answer =
                generate(&cluster.orchestrator, request(&sampling, rule, draft_len, top)).await.unwrap();
            check(&answer, &table, &sampling, top as usize);
            origins.extend(answer.tokens.iter().map(|token| token.origin));
            if sampling.is_greedy() {
                assert_eq!(answer.ids(), plain.ids());
                let of = |answer: &Answer| -> Vec<_> {
                    let logprobs = answer.tokens.iter().map(|token| token.logprobs.clone().unwrap());
                    logprobs.map(|logprobs| (logprobs.logprob, logprobs.raw_logprob)).collect()
                };
                assert_eq!(of(&answer), of(&plain), "on the CPU not by a bit");
            }
        }
        assert_eq!(origins.len(), 4, "{origins:?}");
    }
}

/// vllm-project/vllm#47616: where a stop cuts a block, log-probabilities are cut with it.
#[tokio::test(flavor = "multi_thread")]
async fn there_are_as_many_as_tokens_when_a_stop_cuts_a_block() {
    // "abcdeabcde…"
    let table = || crate::support::says(6, |text: &[u32]| (text.len() as u32 - 1) % 5);
    let cluster = scripted(5, table(), table()).await;
    for draft_len in [0, 1, 2, 3, 8] {
        for (stop, stop_ids) in
            [(vec!["de".to_owned()], vec![]), (vec![], vec![3]), (vec!["c".to_owned()], vec![2])]
        {
            let request = v1::GenerateRequest {
                draft_len: Some(draft_len),
                stop,
                stop_ids,
                logprobs: Some(1),
                ..ids_request(&[0], 60)
            };
            let answer = generate(&cluster.orchestrator, request).await.unwrap();
            assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Stop);
            assert!(answer.tokens.len() <= 5, "{:?}", answer.ids());
            let told = answer.tokens.iter().filter(|token| token.logprobs.is_some()).count();
            assert_eq!((told, told), (answer.tokens.len(), answer.ledger().output_tokens as usize));
        }
    }
}

/// Nobody pays for what nobody asked for.
#[tokio::test(flavor = "multi_thread")]
async fn they_travel_only_when_asked_for() {
    let node = verifier(target(random_table(23, VOCAB, 0))).await;
    node.healthy().await;
    for asked in [None, Some(0), Some(3)] {
        let open = v1::VerifyOpen { logprobs: asked, ..verify_open("s", &PROMPT, 64, warm()) };
        let (mut stream, _) = Verifying::open(&node.channel(), open).await.unwrap();
        let verdict = stream.verdict(block(text(1, 0, &PROMPT, 3), &[4, 5, 6])).await;
        let positions = verdict.repairs.len() + usize::from(verdict.bonus.is_some());
        assert_eq!(verdict.logprobs.len(), asked.map_or(0, |_| positions), "{asked:?}");
        for (index, position) in verdict.logprobs.iter().enumerate() {
            let tokens = if index < verdict.repairs.len() { 2 } else { 1 };
            for logprobs in [position.processed.as_ref().unwrap(), position.raw.as_ref().unwrap()] {
                assert_eq!((logprobs.tokens.len(), logprobs.top.len()), (tokens, asked.unwrap() as usize));
            }
        }
        stream.frame(decode(text(2, 1, &PROMPT, 3), 5)).await;
        let VerifyKind::Token(token) = stream.next().await.unwrap() else { panic!("no token") };
        assert_eq!(token.logprobs.is_some(), asked.is_some());
    }
}
