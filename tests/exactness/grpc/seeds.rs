//! Seeds: equal ones replay, different ones differ, absent ones are chosen anew and told.

use std::collections::BTreeSet;
use std::sync::Arc;

use foretoken_proto::v1;
use foretoken_testkit::client::{Answer, generate, ids_request};
use foretoken_testkit::cluster::Cluster;

use crate::clocked::{PROMPT, V, draft, target};
use crate::services::{answers, cluster};

const TOKENS: u32 = 200;
const DRAFTERS: [v1::DrafterKind; 3] =
    [v1::DrafterKind::Model, v1::DrafterKind::Ngram, v1::DrafterKind::None];

async fn running() -> Arc<Cluster> {
    Arc::new(cluster(V, target(), draft()).await)
}

fn request(seed: Option<u64>, kind: v1::DrafterKind) -> v1::GenerateRequest {
    v1::GenerateRequest {
        sampling: Some(v1::Sampling { temperature: 1.0, ..v1::Sampling::default() }),
        seed,
        drafter: kind.into(),
        draft_len: Some(3),
        ..ids_request(&PROMPT, TOKENS)
    }
}

async fn one(cluster: &Cluster, request: v1::GenerateRequest) -> Answer {
    generate(&cluster.orchestrator, request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_seeds_replay_alone_and_among_others() {
    let cluster = running().await;
    for kind in DRAFTERS {
        let alone = one(&cluster, request(Some(7), kind)).await;
        for again in 0..5 {
            assert_eq!(
                one(&cluster, request(Some(7), kind)).await.ids(),
                alone.ids(),
                "{kind:?}, time {again}"
            );
        }
        // Eight others, of all drafters, run at the same time; the same request is twice among them.
        let others = (0..8).map(|i| request(Some(100 + i), DRAFTERS[i as usize % 3]));
        let mut mixed: Vec<_> = others.collect();
        mixed.insert(2, request(Some(7), kind));
        mixed.insert(6, request(Some(7), kind));
        let at_once = mixed.len();
        let answers = answers(&cluster, mixed, at_once).await;
        assert_eq!(answers[2].ids(), alone.ids(), "{kind:?} among others");
        assert_eq!(answers[6].ids(), alone.ids(), "{kind:?} among others");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn different_seeds_differ() {
    let cluster = running().await;
    for kind in DRAFTERS {
        let answers = answers(&cluster, (0..20).map(|seed| request(Some(seed), kind)), 8).await;
        let different: BTreeSet<_> = answers.iter().map(Answer::ids).collect();
        assert_eq!(different.len(), answers.len(), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_seeds_are_chosen_anew_and_replay() {
    let cluster = running().await;
    for kind in DRAFTERS {
        let mut different = BTreeSet::new();
        for _ in 0..50 {
            let answer = one(&cluster, request(None, kind)).await;
            assert!(answer.started.seed < 1 << 53);
            let replayed = one(&cluster, request(Some(answer.started.seed), kind)).await;
            assert_eq!(replayed.ids(), answer.ids(), "{kind:?}, seed {}", answer.started.seed);
            different.insert(answer.ids());
        }
        assert_eq!(different.len(), 50, "{kind:?}");
    }
}
