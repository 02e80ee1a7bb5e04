//! From requests to plans: what is filled in, what is cut, and that workers get no more than is theirs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, helpers included")]

use foretoken_engine::{RequestKeys, Rule};
use foretoken_orchestrator::Config;
use foretoken_orchestrator::admission::{Admitted, admit};
use foretoken_orchestrator::pool::Target;
use foretoken_proto::error::{Problem, Reason};
use foretoken_proto::v1;
use foretoken_proto::v1::generate_request::Prompt;
use foretoken_testkit::client::ids_request;
use foretoken_testkit::vocabulary::letters;

fn target() -> Target {
    let tokenizer = letters(4, true).unwrap();
    let description = v1::WorkerDescription {
        model: "target".into(),
        model_fingerprint: "m".into(),
        tokenizer_fingerprint: tokenizer.fingerprint().into(),
        vocab_size: 5,
        max_context: 100,
        ..v1::WorkerDescription::default()
    };
    Target { tokenizer, description }
}

fn config() -> Config {
    Config { default_draft_len: 3, max_draft_len: 7, default_max_tokens: 50, ..Config::default() }
}

fn admitted(request: v1::GenerateRequest) -> Result<Admitted, Problem> {
    admit(request, &target(), &config())
}

#[test]
fn what_a_request_leaves_out_is_filled_in_and_told() {
    let Admitted { plan, started, drafter, .. } =
        admitted(v1::GenerateRequest { max_tokens: None, ..ids_request(&[0, 1], 1) }).unwrap();
    assert!(plan.sampling.is_greedy());
    assert_eq!((plan.max_tokens, plan.draft_len, plan.vocab_size), (50, 3, 5));
    assert_eq!((started.max_tokens, started.draft_len, started.prompt_tokens), (50, 3, 2));
    assert_eq!((started.target.as_str(), drafter), ("target", v1::DrafterKind::Unspecified));
    assert!(started.seed < 1 << 53);
    assert!(!started.request_id.is_empty());
    assert_eq!(plan.stop_ids, [4]);
    assert_eq!(
        (plan.model_fingerprint.as_str(), &plan.tokenizer_fingerprint),
        ("m", &target().description.tokenizer_fingerprint)
    );
}

#[test]
fn the_default_of_max_tokens_is_cut_to_the_context_and_a_given_one_is_not() {
    let prompt = [0; 80];
    let request = v1::GenerateRequest { max_tokens: None, ..ids_request(&prompt, 1) };
    assert_eq!(admitted(request).unwrap().plan.max_tokens, 20);
    assert_eq!(admitted(ids_request(&prompt, 20)).unwrap().plan.max_tokens, 20);
    assert_eq!(admitted(ids_request(&prompt, 21)).unwrap_err().reason, Reason::ContextExceeded);
    assert_eq!(admitted(ids_request(&[0; 99], 1)).unwrap().plan.max_tokens, 1);
    assert_eq!(admitted(ids_request(&[0; 100], 1)).unwrap_err().reason, Reason::PromptTooLong);
}

#[test]
fn no_drafter_is_draft_length_0() {
    let request = v1::GenerateRequest {
        drafter: v1::DrafterKind::None.into(),
        draft_len: Some(5),
        ..ids_request(&[0], 5)
    };
    let Admitted { plan, started, .. } = admitted(request.clone()).unwrap();
    assert_eq!((plan.draft_len, started.draft_len), (0, 0));
    // A length out of range is refused all the same.
    let request = v1::GenerateRequest { draft_len: Some(8), ..request };
    assert_eq!(admitted(request).unwrap_err().field.as_deref(), Some("draft_len"));
}

#[test]
fn two_requests_of_one_id_have_two_sessions() {
    let request = || v1::GenerateRequest { request_id: "r".repeat(64), ..ids_request(&[0], 5) };
    let (one, other) = (admitted(request()).unwrap(), admitted(request()).unwrap());
    assert_eq!(one.started.request_id, other.started.request_id);
    assert_ne!(one.plan.session_id, other.plan.session_id);
    assert!(one.plan.session_id.len() <= 128, "a worker takes 128 bytes");
}

#[test]
fn a_seed_fixes_the_keys_and_no_worker_gets_more_than_its_own() {
    let seeded = |rule: v1::Rule| {
        let request = v1::GenerateRequest { seed: Some(77), rule: rule.into(), ..ids_request(&[0, 1], 5) };
        admitted(request).unwrap().plan
    };
    let keys = RequestKeys::new(77, 0);
    for (rule, drafters) in [
        (v1::Rule::Token, keys.draft()),
        (v1::Rule::Block, keys.draft()),
        (v1::Rule::Gumbel, keys.verifier().noise()),
    ] {
        let plan = seeded(rule);
        assert_eq!((&plan.keys, &plan.draft_open().key), (&keys, &drafters), "{rule:?}");
    }
    let plan = seeded(v1::Rule::Token);
    let (verify, draft) = (plan.verify_open(), plan.draft_open());
    assert_eq!(verify.keys, keys.verifier());
    assert_eq!((verify.session.reserve_len, draft.session.reserve_len), (7, 7));
    // The drafter's model is another one: only the tokenizer must be the same.
    assert_eq!(
        (verify.session.model_fingerprint.as_str(), draft.session.model_fingerprint.as_str()),
        ("m", "")
    );
    assert_eq!(verify.session.tokenizer_fingerprint, draft.session.tokenizer_fingerprint);
}

#[test]
fn the_rule_is_the_requests_or_gumbel_with_a_seed_or_the_default() {
    let config = Config { default_rule: Rule::Block, default_min_confidence: 0.3, ..config() };
    let admitted = |seed, rule, min_confidence| {
        let request = v1::GenerateRequest { seed, rule, min_confidence, ..ids_request(&[0], 5) };
        admit(request, &target(), &config)
    };
    for (seed, given, right) in [
        (None, 0, Rule::Block),
        (Some(1), 0, Rule::Gumbel),
        (Some(1), 1, Rule::Token),
        (None, 2, Rule::Block),
        (None, 3, Rule::Gumbel),
    ] {
        let Admitted { plan, started, .. } = admitted(seed, given, None).unwrap();
        assert_eq!((plan.rule, started.rule()), (right, v1::Rule::from(right)), "{seed:?} {given}");
        assert_eq!(plan.verify_open().session.rule, right);
        assert_eq!((plan.min_confidence, started.min_confidence), (0.3, 0.3));
    }
    assert_eq!(admitted(None, 0, Some(0.0)).unwrap().plan.min_confidence, 0.0);
    assert_eq!(admitted(None, 4, None).unwrap_err().field.as_deref(), Some("rule"));
    for given in [-0.1, 1.1, f64::NAN] {
        let problem = admitted(None, 0, Some(given)).unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("min_confidence"));
    }
}

/// What a drafter that is not trusted is told: nothing by which it could tell the coins, and to draft greedily.
#[test]
fn an_untrusted_drafter_drafts_greedily_or_by_gumbel_coupling() {
    let open = |rule: v1::Rule| {
        let sampling = Some(v1::Sampling { temperature: 1.0, ..v1::Sampling::default() });
        let request = v1::GenerateRequest { sampling, rule: rule.into(), ..ids_request(&[0], 5) };
        let open = admitted(request).unwrap().plan.draft_open();
        (open.clone(), open.untrusted())
    };
    for rule in [v1::Rule::Token, v1::Rule::Block] {
        let (trusted, untrusted) = open(rule);
        assert!(untrusted.session.sampling.is_greedy() && !trusted.session.sampling.is_greedy());
        assert_eq!(untrusted.key.to_bytes(), [0; 32]);
    }
    let (trusted, untrusted) = open(v1::Rule::Gumbel);
    assert_eq!(trusted, untrusted);
}

#[test]
fn text_is_encoded_and_ids_are_taken_as_they_are() {
    let text =
        v1::GenerateRequest { prompt: Some(Prompt::Text("abca".into())), ..v1::GenerateRequest::default() };
    assert_eq!(admitted(text).unwrap().plan.prompt, [0, 1, 2, 0]);
    // Control tokens among the ids too; an end of text in a prompt ends nothing.
    assert_eq!(admitted(ids_request(&[4, 0, 4], 5)).unwrap().plan.prompt, [4, 0, 4]);
}

#[test]
fn the_first_problem_is_told_and_nothing_is_half_admitted() {
    let request = v1::GenerateRequest {
        request_id: "not allowed".into(),
        seed: Some(u64::MAX),
        max_tokens: Some(0),
        ..v1::GenerateRequest::default()
    };
    let problem = admitted(request).unwrap_err();
    assert_eq!((problem.reason, problem.field.as_deref()), (Reason::InvalidField, Some("request_id")));
}
