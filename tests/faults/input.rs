//! Bad requests: refused by field, value and limit, with the documented code and reason; the next request works.

use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_proto::v1::generate_request::Prompt;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{generate, ids_request};
use foretoken_testkit::cluster::{Cluster, host, ngram};
use foretoken_testkit::table::{TableModel, random_table};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::support::{VOCAB, assert_status, plain_letters};

const CONTEXT: usize = 64;

async fn cluster() -> Cluster {
    let model = TableModel::new("target", VOCAB, CONTEXT, random_table(1, VOCAB, 0));
    let host = host(model, &plain_letters(), &RuntimeConfig::default());
    Cluster::start(host, vec![ngram()], Config::default()).await
}

type Spoil = fn(&mut v1::GenerateRequest);

fn sampling(request: &mut v1::GenerateRequest) -> &mut v1::Sampling {
    request.sampling.get_or_insert_default()
}

fn set(request: &mut v1::GenerateRequest, temperature: f64, top_k: u32, top_p: f64, min_p: f64) {
    *sampling(request) =
        v1::Sampling { temperature, top_k, top_p: Some(top_p), min_p, ..v1::Sampling::default() };
}

fn bias(id: u32, bias: f32) -> v1::LogitBias {
    v1::LogitBias { id, bias }
}

fn chat(roles: &[&str]) -> Option<Prompt> {
    let message = |role: &&str| v1::ChatMessage { role: (*role).to_owned(), content: "a".into() };
    Some(Prompt::Chat(v1::ChatPrompt { messages: roles.iter().map(message).collect() }))
}

/// How a request is spoilt, the field named, and what else the text must hold.
const OUT_OF_RANGE: &[(Spoil, &str, &[&str])] = &[
    (|r| r.prompt = None, "prompt", &["missing", "token_ids"]),
    (|r| r.prompt = Some(Prompt::Text(String::new())), "text", &["no tokens", "at least one"]),
    (|r| *r = ids_request(&[], 5), "token_ids", &["no tokens", "at least one"]),
    (|r| *r = ids_request(&[0, 8], 5), "token_ids", &["8", "vocabulary of 8"]),
    (|r| *r = ids_request(&[u32::MAX], 5), "token_ids", &["4294967295", "8"]),
    (|r| sampling(r).temperature = -0.5, "sampling.temperature", &["-0.5", "100"]),
    (|r| sampling(r).temperature = 101.0, "sampling.temperature", &["101", "100"]),
    (|r| sampling(r).temperature = f64::NAN, "sampling.temperature", &["NaN", "100"]),
    (|r| sampling(r).top_p = Some(0.0), "sampling.top_p", &["top_p is 0", "1"]),
    (|r| sampling(r).top_p = Some(1.01), "sampling.top_p", &["1.01", "1"]),
    (|r| sampling(r).top_p = Some(f64::NAN), "sampling.top_p", &["NaN"]),
    (|r| sampling(r).min_p = -1.0, "sampling.min_p", &["-1", "between 0 and 1"]),
    (|r| sampling(r).min_p = 1.5, "sampling.min_p", &["1.5", "between 0 and 1"]),
    (|r| sampling(r).min_p = f64::INFINITY, "sampling.min_p", &["inf"]),
    (
        |r| sampling(r).logit_bias = vec![bias(3, 100.5)],
        "sampling.logit_bias",
        &["100.5", "id 3", "100", "forbid"],
    ),
    (|r| sampling(r).logit_bias = vec![bias(3, f32::NAN)], "sampling.logit_bias", &["NaN", "id 3"]),
    (
        |r| sampling(r).logit_bias = vec![bias(3, f32::NEG_INFINITY)],
        "sampling.logit_bias",
        &["-inf", "forbid"],
    ),
    (|r| sampling(r).logit_bias = vec![bias(3, 1.0), bias(3, 2.0)], "sampling.logit_bias", &["id 3 twice"]),
    (|r| sampling(r).logit_bias = vec![bias(8, 1.0)], "sampling.logit_bias", &["id 8", "size, 8"]),
    (|r| sampling(r).logit_bias = vec![bias(3, 1.0); 1025], "sampling.logit_bias", &["1025", "1024"]),
    (
        |r| sampling(r).repetition_penalty = Some(0.0),
        "sampling.repetition_penalty",
        &["is 0;", "0.01 and 100"],
    ),
    (|r| sampling(r).repetition_penalty = Some(f64::NAN), "sampling.repetition_penalty", &["NaN"]),
    (|r| sampling(r).presence_penalty = 2.5, "sampling.presence_penalty", &["2.5", "-2 and 2"]),
    (|r| sampling(r).frequency_penalty = f64::INFINITY, "sampling.frequency_penalty", &["inf", "-2 and 2"]),
    (|r| sampling(r).min_tokens = 6, "sampling.min_tokens", &["min_tokens is 6", "max_tokens, 5"]),
    (|r| sampling(r).allowed_ids = vec![1, 9], "sampling.allowed_ids", &["id 9", "size, 8"]),
    (|r| sampling(r).allowed_ids = vec![1; 16_385], "sampling.allowed_ids", &["16385", "16384"]),
    (|r| sampling(r).forbidden_ids = vec![u32::MAX], "sampling.forbidden_ids", &["4294967295", "size, 8"]),
    (|r| sampling(r).forbidden_ids = (0..8).collect(), "sampling.forbidden_ids", &["no token"]),
    (
        |r| (sampling(r).allowed_ids, sampling(r).forbidden_ids) = (vec![2], vec![2]),
        "sampling.allowed_ids",
        &["no token"],
    ),
    (
        |r| (sampling(r).allowed_ids, sampling(r).min_tokens, r.stop_ids) = (vec![2], 1, vec![2]),
        "sampling.allowed_ids",
        &["min_tokens, 1"],
    ),
    (|r| r.stop_ids = vec![8], "stop_ids", &["id 8", "size, 8"]),
    (|r| r.stop_ids = vec![1; 33], "stop_ids", &["33", "32"]),
    (|r| r.n = Some(0), "n", &["n is 0", "between 1 and 16"]),
    (|r| r.n = Some(17), "n", &["n is 17", "between 1 and 16"]),
    (|r| r.logprobs = Some(21), "logprobs", &["logprobs is 21", "20"]),
    (|r| r.seed = Some(1 << 53), "seed", &["9007199254740992", "2^53"]),
    (|r| r.seed = Some(u64::MAX), "seed", &["18446744073709551615", "2^53"]),
    (|r| r.max_tokens = Some(0), "max_tokens", &["max_tokens is 0", "at least 1"]),
    (|r| r.stop = vec!["x".into(); 17], "stop", &["17", "16"]),
    (|r| r.stop = vec!["x".into(), String::new()], "stop", &["stop string 1", "empty"]),
    (|r| r.stop = vec!["x".repeat(257)], "stop", &["257", "256"]),
    (|r| r.draft_len = Some(65), "draft_len", &["draft_len is 65", "64"]),
    (|r| r.draft_len = Some(u32::MAX), "draft_len", &["4294967295", "64"]),
    (|r| r.drafter = 4, "drafter", &["drafter is 4", "3"]),
    (|r| r.drafter = -1, "drafter", &["drafter is -1", "3"]),
    (|r| r.request_id = "i".repeat(65), "request_id", &["64"]),
    (|r| r.request_id = "a b".into(), "request_id", &["a b", "64"]),
    (|r| r.request_id = "übung".into(), "request_id", &["übung"]),
];

fn field_of(status: &Status) -> String {
    let details = status.get_details_bad_request().expect("a BadRequest");
    assert_eq!(details.field_violations.len(), 1, "{status:?}");
    let violation = details.field_violations.into_iter().next().expect("one violation");
    assert_eq!(violation.description, status.message());
    violation.field
}

async fn works(cluster: &Cluster) {
    let answer = generate(&cluster.orchestrator, ids_request(&[0, 1], 5)).await.unwrap();
    assert_eq!(answer.tokens.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_out_of_range_is_named_with_value_and_limit() {
    let cluster = cluster().await;
    for (spoil, field, parts) in OUT_OF_RANGE {
        let mut request = ids_request(&[0, 1], 5);
        spoil(&mut request);
        let what = format!("{request:?}");
        let status = generate(&cluster.orchestrator, request).await.expect_err(&what);
        assert_status(&status, Code::InvalidArgument, "INVALID_FIELD");
        assert_eq!(field_of(&status), *field, "{what}");
        for part in *parts {
            assert!(status.message().contains(part), "{part:?} is not in {:?}", status.message());
        }
        works(&cluster).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ends_of_every_range_are_taken() {
    let cluster = cluster().await;
    let taken: &[Spoil] = &[
        |r| r.prompt = Some(Prompt::Text("abc".into())),
        |r| *r = ids_request(&[7], 1),
        |r| set(r, 100.0, u32::MAX, 1.0, 1.0),
        |r| set(r, 1e-300, 1, 1e-300, 0.0),
        |r| sampling(r).logit_bias = (0..8).map(|id| bias(id, 100.0 - id as f32 * 25.0)).collect(),
        |r| sampling(r).repetition_penalty = Some(0.01),
        |r| sampling(r).repetition_penalty = Some(100.0),
        |r| (sampling(r).presence_penalty, sampling(r).frequency_penalty) = (-2.0, 2.0),
        |r| sampling(r).min_tokens = 5,
        |r| sampling(r).forbidden_ids = vec![0, 1, 2, 3, 4, 5, 6],
        |r| sampling(r).allowed_ids = vec![7; 16_384],
        |r| r.stop_ids = vec![7; 32],
        |r| r.ignore_eos = true,
        |r| r.n = Some(1),
        |r| r.logprobs = Some(0),
        |r| r.logprobs = Some(20),
        |r| r.seed = Some((1 << 53) - 1),
        |r| r.seed = Some(0),
        |r| r.stop = vec!["x".repeat(256); 16],
        |r| r.draft_len = Some(64),
        |r| r.draft_len = Some(0),
        |r| r.request_id = "AZaz09._-".repeat(7),
        |r| r.max_tokens = None,
    ];
    for change in taken {
        let mut request = ids_request(&[0, 1], 5);
        change(&mut request);
        let what = format!("{request:?}");
        let answer = generate(&cluster.orchestrator, request).await.expect(&what);
        assert_eq!(answer.ledger().output_tokens as usize, answer.tokens.len(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_of_context_less_one_works_and_one_more_does_not() {
    let cluster = cluster().await;
    for max_tokens in [Some(1), None] {
        let request = v1::GenerateRequest { max_tokens, ..ids_request(&[1; CONTEXT - 1], 1) };
        let answer = generate(&cluster.orchestrator, request).await.unwrap();
        assert_eq!(answer.tokens.len(), 1);
        assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Length);
    }
    for len in [CONTEXT, CONTEXT + 1, 3000] {
        let status = generate(&cluster.orchestrator, ids_request(&vec![1; len], 1)).await.unwrap_err();
        assert_status(&status, Code::InvalidArgument, "PROMPT_TOO_LONG");
        assert_eq!(field_of(&status), "prompt");
        for part in [len.to_string(), "64".into(), "63".into()] {
            assert!(status.message().contains(&part), "{part} is not in {status:?}");
        }
        works(&cluster).await;
    }
}

/// predibase/lorax#474, ggml-org/llama.cpp#10547: the context is filled to its last position with speculation on,
/// and a token more is refused before anything runs.
#[tokio::test(flavor = "multi_thread")]
async fn the_context_is_filled_exactly_with_speculation_on() {
    let model = |name, seed| TableModel::new(name, VOCAB, CONTEXT, random_table(seed, VOCAB, 0));
    let host = |model| host(model, &plain_letters(), &RuntimeConfig::default());
    let drafts = vec![foretoken_draft_worker::Source::Model(host(model("draft", 1)))];
    let cluster = Cluster::start(host(model("target", 1)), drafts, Config::default()).await;
    for prompt_len in [1, 20, 54, 55, 56, 60, 62, 63] {
        let room = (CONTEXT - prompt_len) as u32;
        for draft_len in [0, 1, 8, 64] {
            let full =
                v1::GenerateRequest { draft_len: Some(draft_len), ..ids_request(&vec![1; prompt_len], room) };
            let answer = generate(&cluster.orchestrator, full.clone()).await.unwrap();
            assert_eq!(answer.tokens.len(), room as usize, "{prompt_len} {draft_len}");
            assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Length);
            let one_more = v1::GenerateRequest { max_tokens: Some(room + 1), ..full };
            let status = generate(&cluster.orchestrator, one_more).await.unwrap_err();
            assert_status(&status, Code::InvalidArgument, "CONTEXT_EXCEEDED");
            assert_eq!(field_of(&status), "max_tokens");
            for part in [(room + 1).to_string(), "64".into(), room.to_string()] {
                assert!(status.message().contains(&part), "{part} is not in {status:?}");
            }
        }
    }
    works(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_needs_a_template() {
    let cluster = cluster().await;
    for roles in [&["user"][..], &[]] {
        let request = v1::GenerateRequest { prompt: chat(roles), ..v1::GenerateRequest::default() };
        let status = generate(&cluster.orchestrator, request).await.unwrap_err();
        assert_status(&status, Code::FailedPrecondition, "NO_CHAT_TEMPLATE");
        assert_eq!(field_of(&status), "chat");
        assert!(status.message().contains("send text"), "{status:?}");
    }
    works(&cluster).await;
}
