//! Seeds: equal ones replay, different ones differ, absent ones are chosen anew and told.

use std::collections::BTreeSet;
use std::sync::Arc;

use foretoken_proto::v1;
use foretoken_testkit::client::{Answer, generate, ids_request};
use foretoken_testkit::cluster::Cluster;

use crate::clocked::{PROMPT, V, draft, target};
use crate::services::{answers, cluster};

const TOKENS: u32 = 200;
const RULES: [v1::Rule; 3] = [v1::Rule::Token, v1::Rule::Block, v1::Rule::Gumbel];
const DRAFTERS: [v1::DrafterKind; 3] =
    [v1::DrafterKind::Model, v1::DrafterKind::Ngram, v1::DrafterKind::None];

async fn running() -> Arc<Cluster> {
    Arc::new(cluster(V, target(), draft()).await)
}

fn request(seed: Option<u64>, rule: v1::Rule, kind: v1::DrafterKind) -> v1::GenerateRequest {
    v1::GenerateRequest {
        rule: rule.into(),
        sampling: Some(v1::Sampling { temperature: 1.0, ..v1::Sampling::default() }),
        seed,
        drafter: kind.into(),
        draft_len: Some(3),
        ..ids_request(&PROMPT, TOKENS)
    }
}

fn settings() -> impl Iterator<Item = (v1::Rule, v1::DrafterKind)> {
    RULES.into_iter().flat_map(|rule| DRAFTERS.map(|kind| (rule, kind)))
}

async fn one(cluster: &Cluster, request: v1::GenerateRequest) -> Answer {
    generate(&cluster.orchestrator, request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_seeds_replay_alone_and_among_others() {
    let cluster = running().await;
    for (rule, kind) in settings() {
        let alone = one(&cluster, request(Some(7), rule, kind)).await;
        for again in 0..5 {
            assert_eq!(
                one(&cluster, request(Some(7), rule, kind)).await.ids(),
                alone.ids(),
                "{rule:?} {kind:?}, time {again}"
            );
        }
        // Eight others, of all drafters, run at the same time; the same request is twice among them.
        let others = (0..8).map(|i| request(Some(100 + i), RULES[i as usize / 3], DRAFTERS[i as usize % 3]));
        let mut mixed: Vec<_> = others.collect();
        mixed.insert(2, request(Some(7), rule, kind));
        mixed.insert(6, request(Some(7), rule, kind));
        let at_once = mixed.len();
        let answers = answers(&cluster, mixed, at_once).await;
        assert_eq!(answers[2].ids(), alone.ids(), "{rule:?} {kind:?} among others");
        assert_eq!(answers[6].ids(), alone.ids(), "{rule:?} {kind:?} among others");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn different_seeds_differ() {
    let cluster = running().await;
    for (rule, kind) in settings() {
        let answers = answers(&cluster, (0..20).map(|seed| request(Some(seed), rule, kind)), 8).await;
        let different: BTreeSet<_> = answers.iter().map(Answer::ids).collect();
        assert_eq!(different.len(), answers.len(), "{rule:?} {kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_seeds_are_chosen_anew_and_replay() {
    let cluster = running().await;
    for (rule, kind) in settings() {
        let mut different = BTreeSet::new();
        for _ in 0..50 {
            let answer = one(&cluster, request(None, rule, kind)).await;
            assert!(answer.started.seed < 1 << 53);
            let replayed = one(&cluster, request(Some(answer.started.seed), rule, kind)).await;
            assert_eq!(replayed.ids(), answer.ids(), "{rule:?} {kind:?}, seed {}", answer.started.seed);
            different.insert(answer.ids());
        }
        assert_eq!(different.len(), 50, "{rule:?} {kind:?}");
    }
}

/// Under Gumbel coupling the text depends on seed and target alone; every answer says whether it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_coupled_text_does_not_depend_on_who_drafts_or_how_far() {
    let cluster = running().await;
    for seed in 0..6 {
        let plain = one(&cluster, request(Some(seed), v1::Rule::Gumbel, v1::DrafterKind::None)).await;
        assert_eq!(plain.ledger().drafted, 0);
        let mut accepted = 0;
        for kind in [v1::DrafterKind::Model, v1::DrafterKind::Ngram] {
            for (draft_len, min_confidence) in (1..=8).flat_map(|len| [(len, 0.0), (len, 0.4)]) {
                let request = v1::GenerateRequest {
                    draft_len: Some(draft_len),
                    min_confidence: Some(min_confidence),
                    ..request(Some(seed), v1::Rule::Gumbel, kind)
                };
                let answer = one(&cluster, request).await;
                assert_eq!(answer.ids(), plain.ids(), "seed {seed}, {kind:?}, draft length {draft_len}");
                accepted += answer.ledger().accepted;
            }
        }
        assert!(accepted > 0, "nothing was accepted");
    }
}

/// With a seed and no rule the text is to be had again: Gumbel coupling. Without either it is the default rule.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_says_its_rule_and_whether_its_seed_gives_it_again() {
    let cluster = running().await;
    let warm = |seed, rule| request(seed, rule, v1::DrafterKind::Model);
    let greedy = |rule| v1::GenerateRequest { sampling: None, ..warm(Some(1), rule) };
    for (request, rule, reproducible) in [
        (warm(None, v1::Rule::Unspecified), v1::Rule::Token, false),
        (warm(Some(1), v1::Rule::Unspecified), v1::Rule::Gumbel, true),
        (warm(None, v1::Rule::Gumbel), v1::Rule::Gumbel, true),
        (warm(Some(1), v1::Rule::Token), v1::Rule::Token, false),
        (warm(Some(1), v1::Rule::Block), v1::Rule::Block, false),
        (greedy(v1::Rule::Token), v1::Rule::Token, true),
        (greedy(v1::Rule::Block), v1::Rule::Block, true),
        (greedy(v1::Rule::Unspecified), v1::Rule::Gumbel, true),
    ] {
        let answer = one(&cluster, request).await;
        assert_eq!((answer.started.rule(), answer.started.reproducible), (rule, reproducible));
        assert_eq!(answer.finished.reproducible, reproducible);
    }
}
