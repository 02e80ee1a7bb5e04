//! Drafters that are always wrong, always right, or wrong by a pattern: the text is the target's in any case.

use foretoken_proto::v1;
use foretoken_proto::v1::Origin;
use foretoken_testkit::client::{Answer, generate, ids_request};
use foretoken_testkit::cluster::{Cluster, Node};
use foretoken_testkit::table::{Table, random_table};

use crate::support::{VOCAB, draft, says, target, warm};

async fn cluster(target_table: Table, draft_table: Table) -> Cluster {
    Cluster::start(target(target_table), vec![draft(draft_table)], foretoken_orchestrator::Config::default())
        .await
}

async fn ask(node: &Node, request: &v1::GenerateRequest) -> Answer {
    generate(node, request.clone()).await.unwrap()
}

fn likeliest(probs: &[f64]) -> usize {
    (0..probs.len()).reduce(|best, id| if probs[id] > probs[best] { id } else { best }).unwrap()
}

/// huggingface/transformers#28508, ohdearquant/lattice#243: nothing an adversary drafts is taken, and the text is that
/// of plain decoding, for blocks of one token too.
#[tokio::test(flavor = "multi_thread")]
async fn a_drafter_that_is_always_wrong_changes_nothing() {
    let table = random_table(3, VOCAB, 0);
    let wrong = {
        let table = table.clone();
        says(VOCAB, move |text| (likeliest(&table(text)) as u32 + 1) % VOCAB as u32)
    };
    let cluster = cluster(table, wrong).await;
    let plain = v1::GenerateRequest { draft_len: Some(0), ..ids_request(&[0, 1], 120) };
    let expected = ask(&cluster.orchestrator, &plain).await;
    for draft_len in [1, 2, 4, 8] {
        let answer =
            ask(&cluster.orchestrator, &v1::GenerateRequest { draft_len: Some(draft_len), ..plain.clone() })
                .await;
        assert_eq!((answer.ids(), answer.text()), (expected.ids(), expected.text()));
        let ledger = answer.ledger();
        assert_eq!((ledger.accepted, ledger.bonus), (0, 0), "{ledger:?}");
        assert!(ledger.drafted >= 118, "{ledger:?}");
        assert_eq!(ledger.saved_passes, 0);
    }
}

/// The same at a temperature: every token is a repair, and its coins are new in every round.
#[tokio::test(flavor = "multi_thread")]
async fn repairs_in_a_row_are_drawn_with_fresh_coins() {
    // The target never says 7 and likes everything else alike; the drafter says nothing but 7.
    let flat: Table =
        std::sync::Arc::new(|_| (0..VOCAB).map(|id| if id < 7 { 1.0 / 7.0 } else { 0.0 }).collect());
    let cluster = cluster(flat, says(VOCAB, |_| 7)).await;
    let request = v1::GenerateRequest {
        seed: Some(11),
        rule: v1::Rule::Token.into(),
        sampling: Some(warm()),
        ..ids_request(&[0], 1400)
    };
    let answer = ask(&cluster.orchestrator, &request).await;
    let ledger = answer.ledger();
    assert_eq!((ledger.accepted, ledger.bonus), (0, 0));
    assert!(ledger.repair > 1390, "{ledger:?}");
    let ids = answer.ids();
    for token in 0..7 {
        let count = ids.iter().filter(|&&id| id == token).count();
        // 200 on average, with a deviation of 13.
        assert!((130..270).contains(&count), "token {token} came {count} times");
    }
    // Pairs as well: a coin used twice would tie one token to the next.
    for first in 0..7 {
        let after: Vec<_> = ids.windows(2).filter(|pair| pair[0] == first).map(|pair| pair[1]).collect();
        let most = (0..7).map(|token| after.iter().filter(|&&id| id == token).count()).max().unwrap();
        assert!(most * 100 < after.len() * 35, "{most} of {} follow {first}", after.len());
    }
}

fn accepted_of(tokens: &[v1::Token]) -> usize {
    tokens.iter().filter(|token| token.origin() == Origin::Accepted).count()
}

/// lablup/mlxcel#994, mlc-ai/mlc-llm#2939: the target as its own draft is accepted for 500 tokens, and with a forced
/// rejection in every block acceptance stays as it began.
#[tokio::test(flavor = "multi_thread")]
async fn acceptance_does_not_decay_with_length() {
    let table = random_table(4, VOCAB, 0);
    let same = cluster(table.clone(), table.clone()).await;
    for sampling in [None, Some(warm())] {
        let greedy = sampling.is_none();
        let request = v1::GenerateRequest {
            sampling,
            seed: Some(5),
            rule: v1::Rule::Token.into(),
            draft_len: Some(4),
            ..ids_request(&[0, 1], 501)
        };
        let answer = ask(&same.orchestrator, &request).await;
        let ledger = answer.ledger();
        assert!(ledger.overlap_sum / f64::from(ledger.judged) > 0.998, "{ledger:?}");
        if greedy {
            assert_eq!((ledger.accepted, ledger.repair), (ledger.drafted, 0), "{ledger:?}");
        }
        assert!(f64::from(ledger.accepted) > f64::from(ledger.drafted) * 0.98, "{ledger:?}");
    }

    let wrong_at_times = {
        let table = table.clone();
        says(VOCAB, move |text| {
            let best = likeliest(&table(text)) as u32;
            if text.len() % 4 == 0 { (best + 1) % VOCAB as u32 } else { best }
        })
    };
    let forced = cluster(table, wrong_at_times).await;
    let request = v1::GenerateRequest { draft_len: Some(4), ..ids_request(&[0, 1], 1001) };
    let answer = ask(&forced.orchestrator, &request).await;
    assert_eq!(answer.ids(), ask(&same.orchestrator, &request).await.ids());
    assert!(answer.ledger().repair > 100, "{:?}", answer.ledger());
    let quarters: Vec<_> = answer.tokens[1..].chunks(250).map(accepted_of).collect();
    let (least, most) = (quarters.iter().min().unwrap(), quarters.iter().max().unwrap());
    assert!(most - least <= 4, "accepted by quarters of the answer: {quarters:?}");
}

/// vllm-project/vllm#6038, NVIDIA/TensorRT-LLM#17599: a seed fixes the text, also while others run; another seed gives
/// another text.
#[tokio::test(flavor = "multi_thread")]
async fn equal_seeds_give_equal_texts_while_others_run() {
    let cluster = cluster(random_table(5, VOCAB, 0), random_table(6, VOCAB, 0)).await;
    let request = |seed| v1::GenerateRequest { seed, sampling: Some(warm()), ..ids_request(&[0, 1], 80) };
    let alone = ask(&cluster.orchestrator, &request(Some(1))).await;
    assert!(alone.ledger().accepted > 0 && alone.ledger().repair > 0, "{:?}", alone.ledger());
    let mut together = tokio::task::JoinSet::new();
    for index in 0..9 {
        let channel = cluster.orchestrator.channel();
        // One of them has the seed; the others have none, and are as long as four of it.
        let request = if index == 4 {
            request(Some(1))
        } else {
            v1::GenerateRequest { max_tokens: Some(320), ..request(None) }
        };
        together.spawn(async move {
            let mut reading = crate::support::Reading::over(channel, request).await.unwrap();
            reading.finish().await.unwrap();
            (index, reading.ids())
        });
    }
    let mut texts: Vec<_> = together.join_all().await;
    texts.sort_unstable();
    assert_eq!(texts[4].1, alone.ids());
    assert_ne!(ask(&cluster.orchestrator, &request(Some(2))).await.ids(), alone.ids());
}

/// NVIDIA/TensorRT-LLM#19487: requests without a seed do not share one.
#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_seed_differ() {
    let cluster = cluster(random_table(5, VOCAB, 0), random_table(6, VOCAB, 0)).await;
    let request = v1::GenerateRequest { sampling: Some(warm()), ..ids_request(&[0, 1], 24) };
    let mut texts = std::collections::BTreeSet::new();
    let mut seeds = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let answer = ask(&cluster.orchestrator, &request).await;
        assert!(answer.started.seed < 1 << 53);
        seeds.insert(answer.started.seed);
        texts.insert(answer.ids());
    }
    assert_eq!((texts.len(), seeds.len()), (50, 50));
}

/// z-lab/dflash#74, EricLBuehler/mistral.rs#2424: the temperature reaches both models.
#[tokio::test(flavor = "multi_thread")]
async fn a_temperature_is_not_ignored_by_blocks() {
    let flat: Table = std::sync::Arc::new(|_| vec![1.0 / VOCAB as f64; VOCAB]);
    let cluster = cluster(flat.clone(), flat).await;
    for rule in [v1::Rule::Token, v1::Rule::Block, v1::Rule::Gumbel] {
        let request = v1::GenerateRequest {
            seed: Some(3),
            rule: rule.into(),
            sampling: Some(warm()),
            ..ids_request(&[0], 1600)
        };
        let answer = ask(&cluster.orchestrator, &request).await;
        assert_eq!(answer.ledger().repair, 0, "a draft equal to the target is never rejected");
        for token in 0..VOCAB as u32 {
            let count = answer.ids().iter().filter(|&&id| id == token).count();
            assert!((130..270).contains(&count), "{rule:?}: token {token} came {count} times");
        }
    }
}
