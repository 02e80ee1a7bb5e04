//! What a refused Open is told: code, reason, and whether asking again helps.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, helpers included")]

use foretoken_proto::error::{Problem, reason_of, retry_after_of};
use foretoken_runtime::OpenError;
use foretoken_worker::{check_tokenizer, open_problem, tokenizer_chunks};
use tonic::{Code, Status};

#[test]
fn every_refusal_has_its_code_its_reason_and_a_hint_only_where_one_helps() {
    let refusals = [
        (
            OpenError::Invalid { field: "session.prompt", message: "token 9".into() },
            Code::InvalidArgument,
            "INVALID_FIELD",
            false,
        ),
        (
            OpenError::Model { model: "m".into(), ours: "aa".into(), expected: "bb".into() },
            Code::FailedPrecondition,
            "MODEL_MISMATCH",
            false,
        ),
        (OpenError::KvTooSmall { needed: 9, capacity: 8 }, Code::FailedPrecondition, "KV_TOO_SMALL", false),
        (OpenError::KvFull { needed: 9, free: 1, capacity: 10 }, Code::ResourceExhausted, "KV_FULL", true),
        (OpenError::SessionsFull(4), Code::ResourceExhausted, "SESSIONS_FULL", true),
        (OpenError::QueueFull, Code::ResourceExhausted, "QUEUE_FULL", true),
        (OpenError::ModelFailed("it broke".into()), Code::Internal, "MODEL_FAILED", false),
    ];
    for (error, code, reason, again) in refusals {
        let text = error.to_string();
        let status = Status::from(open_problem(&error));
        assert_eq!((status.code(), reason_of(&status).as_deref()), (code, Some(reason)));
        assert_eq!(retry_after_of(&status).is_some(), again, "{reason}");
        assert!(status.message().starts_with(&text), "{status:?}");
    }
}

#[test]
fn numbers_and_names_are_in_the_text() {
    let text = |error| Problem::to_string(&open_problem(&error));
    let full = text(OpenError::KvFull { needed: 901, free: 12, capacity: 4000 });
    assert!(["901", "12", "4000"].iter().all(|part| full.contains(part)), "{full}");
    let small = text(OpenError::KvTooSmall { needed: 901, capacity: 400 });
    assert!(["901", "400", "--kv-tokens"].iter().all(|part| small.contains(part)), "{small}");
    let model = text(OpenError::Model { model: "Tiny".into(), ours: "aa".into(), expected: "bb".into() });
    assert!(["Tiny", "aa", "bb"].iter().all(|part| model.contains(part)), "{model}");
}

#[test]
fn an_expected_tokenizer_is_the_workers_or_none() {
    assert!(check_tokenizer("m", "aa", "aa").is_ok());
    assert!(check_tokenizer("m", "aa", "").is_ok());
    let problem = check_tokenizer("m", "aa", "bb").unwrap_err();
    assert_eq!((problem.metadata["ours"].as_str(), problem.metadata["expected"].as_str()), ("aa", "bb"));
    assert!(problem.message.contains("aa") && problem.message.contains("bb"), "{problem}");
}

#[test]
fn a_bundle_is_cut_into_messages_that_every_client_takes() {
    assert!(tokenizer_chunks(&[]).is_empty());
    let bundle: Vec<u8> = (0..10_000_000_u32).map(|index| index as u8).collect();
    let chunks: Vec<_> = tokenizer_chunks(&bundle).into_iter().map(|chunk| chunk.unwrap().data).collect();
    assert!(chunks.iter().all(|chunk| chunk.len() < 4 << 20 && !chunk.is_empty()));
    assert_eq!(chunks.concat(), bundle);
}
