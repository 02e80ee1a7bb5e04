//! The default model, three services as processes.

use std::time::Duration;

use foretoken_proto::v1;
use foretoken_testkit::client::{Answer, generate_at};
use foretoken_tests::process::{Service, full, ready, test_model};
use tonic::transport::Channel;

const PROMPTS: &str = include_str!("prompts.txt");

pub(crate) fn request(prompt: &str, max_tokens: u32) -> v1::GenerateRequest {
    v1::GenerateRequest {
        prompt: Some(v1::generate_request::Prompt::Text(prompt.into())),
        max_tokens: Some(max_tokens),
        ..v1::GenerateRequest::default()
    }
}

pub(crate) async fn answer(channel: &Channel, request: v1::GenerateRequest) -> Answer {
    generate_at(channel.clone(), request).await.expect("the request is answered")
}

/// Principle 5: with speculation and without it, alone and with others in the pass, the greedy text is the same
/// token for token.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn greedy_text_is_that_of_plain_decoding() {
    let verifier = Service::verifier();
    let (ngram, model) =
        (Service::draft_worker("ngram"), Service::draft_worker(&test_model().to_string_lossy()));
    let orchestrator = Service::orchestrator(&verifier, &[&ngram, &model], &[]);
    let channel = ready(&orchestrator, 2).await;
    let (count, max_tokens, draft_lens, at_once) = if full() {
        (40, 64, (1..=8).collect::<Vec<u32>>(), (1..=8).collect())
    } else {
        (6, 32, vec![1, 3, 8], vec![1, 6])
    };
    let prompts: Vec<&str> = PROMPTS.lines().take(count).collect();
    let mut plain = Vec::new();
    for prompt in &prompts {
        let request = v1::GenerateRequest { draft_len: Some(0), ..request(prompt, max_tokens) };
        plain.push(answer(&channel, request).await);
    }
    let mut settings = vec![(v1::DrafterKind::None, 0)];
    for drafter in [v1::DrafterKind::Ngram, v1::DrafterKind::Model] {
        settings.extend(draft_lens.iter().map(|&draft_len| (drafter, draft_len)));
    }
    let mut drafted = 0;
    for sessions in at_once {
        for &(drafter, draft_len) in &settings {
            for (prompts, plain) in prompts.chunks(sessions).zip(plain.chunks(sessions)) {
                let together: Vec<_> = prompts
                    .iter()
                    .map(|prompt| {
                        let request = v1::GenerateRequest {
                            draft_len: Some(draft_len),
                            drafter: drafter.into(),
                            ..request(prompt, max_tokens)
                        };
                        tokio::spawn(generate_at(channel.clone(), request))
                    })
                    .collect();
                for ((prompt, plain), together) in prompts.iter().zip(plain).zip(together) {
                    let answer = together.await.unwrap().expect("the request is answered");
                    let setting =
                        format!("{prompt:?} with {drafter:?}, draft length {draft_len}, {sessions} at once");
                    assert_eq!(answer.ids(), plain.ids(), "{setting}");
                    assert_eq!(answer.text(), plain.text(), "{setting}");
                    let ledger = answer.ledger();
                    drafted += ledger.drafted;
                    if drafter == v1::DrafterKind::Model {
                        // The target as its own draft: every guess is right.
                        assert_eq!(ledger.repair, 0, "{setting}: {ledger:?}");
                    }
                }
            }
        }
    }
    assert!(drafted > 0, "nothing was drafted");
}

/// The same where sessions of one pass have blocks of several lengths.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn greedy_text_does_not_depend_on_the_blocks_of_others() {
    let verifier = Service::verifier();
    let ngram = Service::draft_worker("ngram");
    let orchestrator = Service::orchestrator(&verifier, &[&ngram], &[]);
    let channel = ready(&orchestrator, 1).await;
    let prompts: Vec<_> = PROMPTS.lines().skip(8).take(8).collect();
    let mut alone = Vec::new();
    for prompt in &prompts {
        let plain = v1::GenerateRequest { draft_len: Some(0), ..request(prompt, 32) };
        alone.push(answer(&channel, plain).await.ids());
    }
    // Blocks of several lengths and decode runs, all at once.
    let together: Vec<_> = prompts
        .iter()
        .enumerate()
        .map(|(i, prompt)| {
            let request = v1::GenerateRequest { draft_len: Some(i as u32 % 5), ..request(prompt, 32) };
            tokio::spawn(generate_at(channel.clone(), request))
        })
        .collect();
    for ((prompt, alone), together) in prompts.iter().zip(alone).zip(together) {
        let answer = together.await.unwrap().expect("the request is answered");
        assert_eq!(answer.ids(), alone, "{prompt:?}");
    }
}

/// By the Gumbel rule the text depends on seed and target alone: at temperature 1 it is the same, token for token, with
/// look-up, with the target as its own draft, with nobody, and for every draft length.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn a_coupled_text_is_the_same_whoever_drafts() {
    let verifier = Service::verifier();
    let (ngram, model) =
        (Service::draft_worker("ngram"), Service::draft_worker(&test_model().to_string_lossy()));
    let orchestrator = Service::orchestrator(&verifier, &[&ngram, &model], &[]);
    let channel = ready(&orchestrator, 2).await;
    let (enough, max_tokens, draft_lens) =
        if full() { (2_000, 500, (1..=8).collect()) } else { (48, 48, vec![1, 4, 8]) };
    let (mut compared, mut accepted) = (0, 0);
    for (seed, prompt) in (0..).zip(PROMPTS.lines()) {
        if compared >= enough {
            break;
        }
        // A seed and no rule: the Gumbel rule.
        let seeded = v1::GenerateRequest {
            sampling: Some(v1::Sampling { temperature: 1.0, ..v1::Sampling::default() }),
            seed: Some(seed),
            ..request(prompt, max_tokens)
        };
        let plain = v1::GenerateRequest { drafter: v1::DrafterKind::None.into(), ..seeded.clone() };
        let plain = answer(&channel, plain).await;
        assert!(plain.finished.reproducible && plain.started.rule() == v1::Rule::Gumbel);
        compared += plain.tokens.len();
        for drafter in [v1::DrafterKind::Ngram, v1::DrafterKind::Model] {
            for &draft_len in &draft_lens {
                let request = v1::GenerateRequest {
                    draft_len: Some(draft_len),
                    drafter: drafter.into(),
                    ..seeded.clone()
                };
                let answer = answer(&channel, request).await;
                assert_eq!(
                    answer.ids(),
                    plain.ids(),
                    "{prompt:?} with {drafter:?} and draft length {draft_len}"
                );
                let ledger = answer.ledger();
                accepted += ledger.accepted;
                if drafter == v1::DrafterKind::Model {
                    // The target as its own draft, with the same noise: every guess is right.
                    assert_eq!(ledger.repair, 0, "{prompt:?} with draft length {draft_len}: {ledger:?}");
                }
            }
        }
    }
    assert!(compared >= enough, "only {compared} tokens came");
    assert!(accepted > 0, "nothing was accepted");
}

/// The answer goes on, the same, when the draft worker is killed in the middle of it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn killing_the_draft_worker_changes_nothing_but_the_passes() {
    let verifier = Service::verifier();
    let mut drafter = Service::draft_worker(&test_model().to_string_lossy());
    let orchestrator = Service::orchestrator(&verifier, &[&drafter], &["--draft-timeout", "5s"]);
    let channel = ready(&orchestrator, 1).await;
    let prompt = "Once upon a time, in a village by the sea, there lived";
    let plain = v1::GenerateRequest { draft_len: Some(0), ..request(prompt, 48) };
    let plain = answer(&channel, plain).await;

    let mut events =
        foretoken_testkit::client::events_at(channel.clone(), request(prompt, 48)).await.unwrap();
    let (mut tokens, mut finished) = (Vec::new(), None);
    while let Some(event) = events.message().await.expect("the stream goes on") {
        match event.event {
            Some(v1::generate_response::Event::Tokens(new)) => {
                tokens.extend(new.tokens);
                if tokens.len() >= 12 {
                    drafter.kill();
                }
            }
            Some(v1::generate_response::Event::Finished(event)) => finished = Some(event),
            _ => {}
        }
    }
    let ids: Vec<_> = tokens.iter().map(|token| token.id).collect();
    assert_eq!(ids, plain.ids());
    let finished = finished.expect("the answer finished");
    assert_eq!(finished.drafter, "none");
    assert!(!finished.speculation_off.is_empty(), "the reply says why speculation stopped: {finished:?}");
    assert!(tokens.iter().any(|token| token.origin() == v1::Origin::Accepted), "it had speculated before");
}

/// A lost verifier is a clear error in time, never a hang.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn killing_the_verifier_is_a_clear_error() {
    let mut verifier = Service::verifier();
    let ngram = Service::draft_worker("ngram");
    let orchestrator = Service::orchestrator(&verifier, &[&ngram], &[]);
    let channel = ready(&orchestrator, 1).await;
    let mut events =
        foretoken_testkit::client::events_at(channel.clone(), request("The capital of France is", 400))
            .await
            .unwrap();
    let mut seen = 0;
    let status = loop {
        match tokio::time::timeout(Duration::from_secs(20), events.message()).await.expect("no hang") {
            Ok(Some(_)) => {
                seen += 1;
                if seen == 5 {
                    verifier.kill();
                }
            }
            Ok(None) => panic!("the answer finished without its verifier"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    assert_eq!(foretoken_proto::error::reason_of(&status).as_deref(), Some("VERIFIER_LOST"), "{status:?}");
    let refused = generate_at(channel, request("again", 4)).await.expect_err("there is no verifier");
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
}

/// The ledger of real answers is whole, alone and together, whoever drafts.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn ledgers_of_real_answers_leave_no_remainder() {
    let verifier = Service::verifier();
    let (ngram, model) =
        (Service::draft_worker("ngram"), Service::draft_worker(&test_model().to_string_lossy()));
    let orchestrator = Service::orchestrator(&verifier, &[&ngram, &model], &[]);
    let channel = ready(&orchestrator, 2).await;
    for (drafter, at_once) in
        [(v1::DrafterKind::Ngram, 1), (v1::DrafterKind::Model, 4), (v1::DrafterKind::None, 4)]
    {
        let together = PROMPTS.lines().take(at_once).map(|prompt| {
            let request =
                v1::GenerateRequest { drafter: drafter.into(), rounds: true, ..request(prompt, 24) };
            answer(&channel, request)
        });
        futures_util::future::join_all(together).await.iter().for_each(foretoken_tests::ledger::check);
    }
}
