//! Draft workers that are absent, unfit, lost, slow or come back: the request goes on, and says what happened.

use std::time::Duration;

use foretoken_engine::generate::Timeouts;
use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_proto::v1::Origin;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{Answer, generate, ids_request};
use foretoken_testkit::cluster::{
    Cluster, draft_worker, draft_worker_at, host, ngram, orchestrator, verifier,
};
use foretoken_testkit::table::{TableModel, random_table};
use foretoken_testkit::vocabulary::letters;

use crate::support::{Pace, Reading, VOCAB, draft, plain_letters, target, until_described, warm};

const TABLE: u64 = 1;

fn drafted(token: &v1::Token) -> bool {
    token.origin() != Origin::Plain
}

async fn plain_ids(cluster: &Cluster, request: &v1::GenerateRequest) -> Vec<u32> {
    let request = v1::GenerateRequest { drafter: v1::DrafterKind::None.into(), ..request.clone() };
    generate(&cluster.orchestrator, request).await.unwrap().ids()
}

/// Decoded plainly from the first token on, for this reason.
#[track_caller]
fn assert_never_drafted(answer: &Answer, reason: &str) -> v1::SpeculationOff {
    assert!(!answer.tokens.iter().any(drafted), "{:?}", answer.ledger());
    assert_eq!((answer.finished.drafter.as_str(), answer.ledger().drafted), ("none", 0));
    let [off] = answer.finished.speculation_off.as_slice() else { panic!("{:?}", answer.finished) };
    assert_eq!((off.reason.as_str(), off.until_token), (reason, None), "{off:?}");
    off.clone()
}

/// ggml-org/llama.cpp#25345, lmstudio-ai/mlx-engine#280: speculation that does not run says so, and why.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_draft_worker_the_answer_says_none_and_why() {
    let cluster = Cluster::start(target(random_table(TABLE, VOCAB, 0)), vec![], Config::default()).await;
    let answer = generate(&cluster.orchestrator, ids_request(&[0], 40)).await.unwrap();
    let off = assert_never_drafted(&answer, "NO_DRAFTER");
    assert!(off.message.contains("--draft-workers"), "{off:?}");
    // Who wants none is told nothing.
    let request = v1::GenerateRequest { draft_len: Some(0), ..ids_request(&[0], 40) };
    let answer = generate(&cluster.orchestrator, request).await.unwrap();
    assert!(answer.finished.speculation_off.is_empty());
}

/// The same where one is configured and does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_draft_worker_is_named_in_answer_and_description() {
    let mut cluster =
        Cluster::start(target(random_table(TABLE, VOCAB, 0)), vec![ngram()], Config::default()).await;
    let worker = cluster.draft_workers.remove(0);
    let address = worker.address.to_string();
    worker.stop().await;
    let description = until_described(&cluster.orchestrator, "the draft worker is missed", |description| {
        !description.draft_workers[0].ready && description.draft_workers[0].reason == "UNREACHABLE"
    })
    .await;
    assert_eq!(description.draft_workers[0].address, address);
    let answer = generate(&cluster.orchestrator, ids_request(&[0], 40)).await.unwrap();
    let off = assert_never_drafted(&answer, "NO_DRAFTER");
    assert!(off.message.contains(&address), "{off:?}");
}

/// A drafter of another kind than the one wanted is none.
#[tokio::test(flavor = "multi_thread")]
async fn the_wanted_kind_of_drafter_is_used_or_none() {
    let drafts = vec![ngram()];
    let cluster = Cluster::start(target(random_table(TABLE, VOCAB, 0)), drafts, Config::default()).await;
    let mut request = v1::GenerateRequest { drafter: v1::DrafterKind::Model.into(), ..ids_request(&[0], 40) };
    assert_never_drafted(&generate(&cluster.orchestrator, request.clone()).await.unwrap(), "NO_DRAFTER");
    request.drafter = v1::DrafterKind::Ngram.into();
    assert_eq!(generate(&cluster.orchestrator, request).await.unwrap().finished.drafter, "ngram");
}

/// ggml-org/llama.cpp#3812, LostRuins/koboldcpp#2325, vllm-project/vllm#7252, huggingface/transformers#45307: a drafter
/// of another tokenizer is refused with both names, sizes, fingerprints and the first token that differs.
#[tokio::test(flavor = "multi_thread")]
async fn a_drafter_of_another_tokenizer_is_refused_in_full() {
    let theirs = letters(VOCAB + 1, false).unwrap();
    let model = TableModel::new("stranger", VOCAB + 1, 4096, random_table(2, VOCAB + 1, 0));
    let stranger = foretoken_draft_worker::Source::Model(host(model, &theirs, &RuntimeConfig::default()));
    let cluster =
        Cluster::start(target(random_table(TABLE, VOCAB, 0)), vec![stranger], Config::default()).await;
    let description = foretoken_testkit::client::describe(&cluster.orchestrator).await;
    let state = &description.draft_workers[0];
    assert_eq!((state.ready, state.reason.as_str()), (false, "TOKENIZER_MISMATCH"));
    let answer = generate(&cluster.orchestrator, ids_request(&[0], 40)).await.unwrap();
    let off = assert_never_drafted(&answer, "TOKENIZER_MISMATCH");
    let ours = plain_letters();
    for message in [&state.message, &off.message] {
        for part in
            ["stranger", "target", "9 tokens", "8 tokens", theirs.fingerprint(), ours.fingerprint(), "\"i\""]
        {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }
}

/// vllm-project/vllm#57941, #5342, #22935, #58080: a draft context shorter than the target's turns speculation off for
/// the requests that need more, and for no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_beyond_the_drafts_context_is_decoded_plainly() {
    let model = |name, context, seed| {
        let model = TableModel::new(name, VOCAB, context, random_table(seed, VOCAB, 0));
        host(model, &plain_letters(), &RuntimeConfig::default())
    };
    let short = foretoken_draft_worker::Source::Model(model("draft", 64, 2));
    let cluster = Cluster::start(model("target", 256, TABLE), vec![short], Config::default()).await;
    let long = ids_request(&[1; 100], 100);
    let answer = generate(&cluster.orchestrator, long.clone()).await.unwrap();
    let off = assert_never_drafted(&answer, "DRAFT_CONTEXT_TOO_SHORT");
    for part in ["draft", "64", "200"] {
        assert!(off.message.contains(part), "{part} is not in {off:?}");
    }
    assert_eq!(answer.ids(), plain_ids(&cluster, &long).await);
    // It is the text's length that counts, not the prompt's; up to the very end.
    let answer = generate(&cluster.orchestrator, ids_request(&[1; 4], 60)).await.unwrap();
    assert_eq!((answer.finished.drafter.as_str(), answer.tokens.len()), ("draft", 60));
    let answer = generate(&cluster.orchestrator, ids_request(&[1; 4], 61)).await.unwrap();
    assert_never_drafted(&answer, "DRAFT_CONTEXT_TOO_SHORT");
}

/// The draft worker dies in the middle of an answer: the same greedy tokens, the loss told, and speculation back when a
/// worker listens there again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_drafter_costs_no_token_and_comes_back() {
    let pace = Pace::of(Duration::from_millis(1));
    let host = target(pace.apply(random_table(TABLE, VOCAB, 0)));
    let source = || draft(random_table(2, VOCAB, 0));
    let mut cluster = Cluster::start(host, vec![source()], Config::default()).await;
    let request = ids_request(&[0, 1], 4000);
    let mut reading = Reading::start(&cluster.orchestrator, request.clone()).await.unwrap();
    assert!(
        reading
            .until(|tokens| tokens.iter().filter(|token| drafted(token)).count() > 40)
            .await
            .unwrap()
            .is_none()
    );

    let worker = cluster.draft_workers.remove(0);
    let address = worker.address;
    worker.stop().await;
    let stopped_at = reading.tokens.len();
    let plainly =
        |tokens: &[v1::Token]| tokens[stopped_at..].iter().rev().take_while(|token| !drafted(token)).count();
    assert!(reading.until(|tokens| plainly(tokens) > 20).await.unwrap().is_none());

    let plain_until = reading.tokens.len();
    let _again = draft_worker_at(address, source()).await;
    let back = |tokens: &[v1::Token]| tokens[plain_until..].iter().any(drafted);
    assert!(reading.until(back).await.unwrap().is_none(), "it never came back");
    pace.set(Duration::ZERO);
    let finished = reading.finish().await.unwrap();

    assert_eq!(reading.ids().len(), 4000);
    assert_eq!(reading.ids(), plain_ids(&cluster, &request).await);
    assert_eq!(finished.drafter, "draft");
    let [off, ..] = finished.speculation_off.as_slice() else { panic!("{finished:?}") };
    assert!(off.at_token > 40 && !off.message.is_empty(), "{off:?}");
    let until_token = finished.speculation_off.last().unwrap().until_token.expect("it came back");
    assert!(until_token as usize > stopped_at, "{until_token} {stopped_at}");
    let ledger = finished.ledger.unwrap();
    assert_eq!(ledger.output_tokens, 4000);
    assert!(ledger.draft_bytes_up > 0 && ledger.draft_bytes_down > 0);
}

/// With a second draft worker at hand the loss of one is hardly felt.
#[tokio::test(flavor = "multi_thread")]
async fn another_draft_worker_takes_over() {
    let pace = Pace::of(Duration::from_millis(1));
    let host = target(pace.apply(random_table(TABLE, VOCAB, 0)));
    let source = || draft(random_table(2, VOCAB, 0));
    let mut cluster = Cluster::start(host, vec![source(), source()], Config::default()).await;
    let request = ids_request(&[0, 1], 1500);
    let mut reading = Reading::start(&cluster.orchestrator, request.clone()).await.unwrap();
    assert!(
        reading
            .until(|tokens| tokens.iter().filter(|token| drafted(token)).count() > 40)
            .await
            .unwrap()
            .is_none()
    );
    cluster.draft_workers.remove(0).stop().await;
    let stopped_at = reading.tokens.len();
    let back =
        |tokens: &[v1::Token]| tokens[stopped_at..].iter().filter(|token| drafted(token)).count() > 200;
    assert!(reading.until(back).await.unwrap().is_none());
    pace.set(Duration::ZERO);
    let finished = reading.finish().await.unwrap();
    assert_eq!(reading.ids(), plain_ids(&cluster, &request).await);
    assert_eq!(finished.drafter, "draft");
}

/// A draft worker that answers too late is left, at a cost that does not grow with the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_drafter_that_is_too_slow_is_left() {
    let pace = Pace::of(Duration::from_millis(300));
    let slow = draft(pace.apply(random_table(2, VOCAB, 0)));
    let timeouts = Timeouts { draft: Duration::from_millis(50), ..Config::default().timeouts };
    let config = Config { timeouts, ..Config::default() };
    let cluster = Cluster::start(target(random_table(TABLE, VOCAB, 0)), vec![slow], config).await;
    let request = ids_request(&[0, 1], 400);
    let began = std::time::Instant::now();
    let answer = generate(&cluster.orchestrator, request.clone()).await.unwrap();
    let took = began.elapsed();
    assert_eq!(answer.ids(), plain_ids(&cluster, &request).await);
    let off = &answer.finished.speculation_off;
    assert_eq!(off[0].reason, "DRAFTER_TIMEOUT", "{off:?}");
    assert!(off[0].message.contains("50 ms"), "{off:?}");
    // A time-out for each of 400 tokens would be 20 s.
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// A draft worker that is not under one's control drafts greedily, or by Gumbel coupling: it sends no proposals, and has
/// no coins from which others could be told. Describe names it.
#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_draft_worker_sends_tokens_alone() {
    let (verifier, worker) = (
        verifier(target(random_table(TABLE, VOCAB, 0))).await,
        draft_worker(draft(random_table(2, VOCAB, 0))).await,
    );
    let address = worker.address.to_string();
    let untrusted = Config { untrusted_draft_workers: vec![address.clone()], ..Config::default() };
    let nodes = [
        orchestrator(Config::default(), &[&verifier], &[&worker]).await,
        orchestrator(untrusted, &[&verifier], &[]).await,
    ];
    let mut bytes = Vec::new();
    for node in &nodes {
        until_described(node, "the draft worker is ready", |description| description.draft_workers[0].ready)
            .await;
        for rule in [v1::Rule::Token, v1::Rule::Block, v1::Rule::Gumbel] {
            let request = v1::GenerateRequest {
                sampling: Some(warm()),
                rule: rule.into(),
                seed: Some(4),
                ..ids_request(&[0, 1], 400)
            };
            let answer = generate(node, request).await.unwrap();
            assert_eq!(answer.finished.drafter, "draft");
            assert!(answer.finished.speculation_off.is_empty(), "{:?}", answer.finished);
            assert!(answer.ledger().accepted > 10, "{rule:?}: {:?}", answer.ledger());
            let ledger = answer.ledger();
            bytes.push((ledger.draft_bytes_down as f64 / f64::from(ledger.drafted), answer.ids()));
        }
    }
    let [by_token, by_block, by_gumbel, blind_token, blind_block, blind_gumbel] = &bytes[..] else {
        panic!()
    };
    assert!(
        blind_token.0 < by_token.0 - 8.0 && blind_block.0 < by_block.0 - 8.0,
        "proposals came: {bytes:?}"
    );
    assert_eq!(blind_gumbel.1, by_gumbel.1, "under Gumbel coupling nothing need be believed");
    let description = foretoken_testkit::client::describe(&nodes[1]).await;
    assert_eq!(description.untrusted_draft_workers, [address]);
    assert_eq!(description.default_rule(), v1::Rule::Token);
}

/// Both a model and look-up are there: each request gets the one it asks for.
#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_drafters_live_side_by_side() {
    let drafts = vec![ngram(), draft(random_table(2, VOCAB, 0))];
    let cluster = Cluster::start(target(random_table(TABLE, VOCAB, 0)), drafts, Config::default()).await;
    for (kind, name) in [(v1::DrafterKind::Ngram, "ngram"), (v1::DrafterKind::Model, "draft")] {
        let request = v1::GenerateRequest { drafter: kind.into(), ..ids_request(&[0], 60) };
        assert_eq!(generate(&cluster.orchestrator, request).await.unwrap().finished.drafter, name);
    }
}
