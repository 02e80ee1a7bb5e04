//! The smallest requests that show a sampler that is off: a flat target, and one that truncates.

use std::sync::Arc;

use foretoken_acceptance::{Distribution, Sampling};
use foretoken_proto::v1;
use foretoken_testkit::client::ids_request;
use foretoken_testkit::table::{Table, TableModel};
use foretoken_tests::stats::{g_test, holm};

use crate::clocked::ALARM;
use crate::services::{AT_ONCE, answers, cluster};

const DRAFTERS: [v1::DrafterKind; 3] =
    [v1::DrafterKind::Model, v1::DrafterKind::Ngram, v1::DrafterKind::None];

/// Fixed before the first run and never picked again.
const FIRST_SEED: u64 = 34_000;

/// The same probabilities whatever the text.
fn constant(weights: &[f64]) -> Table {
    let sum: f64 = weights.iter().sum();
    let probs: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
    Arc::new(move |_| probs.clone())
}

const RULES: [v1::Rule; 3] = [v1::Rule::Token, v1::Rule::Block, v1::Rule::Gumbel];

/// Every rule with every drafter, numbered.
fn settings() -> impl Iterator<Item = (u64, v1::Rule, v1::DrafterKind)> {
    let all = RULES.into_iter().flat_map(|rule| DRAFTERS.map(|kind| (rule, kind)));
    (0..).zip(all).map(|(number, (rule, kind))| (number, rule, kind))
}

fn request(
    sampling: v1::Sampling,
    rule: v1::Rule,
    seed: u64,
    kind: v1::DrafterKind,
    tokens: u32,
) -> v1::GenerateRequest {
    v1::GenerateRequest {
        sampling: Some(sampling),
        rule: rule.into(),
        seed: Some(FIRST_SEED + seed),
        drafter: kind.into(),
        draft_len: Some(3),
        // Long enough that the look-up finds something.
        ..ids_request(&[0, 1, 2, 3, 0, 1, 2, 3], tokens)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flat_target_gives_every_token_a_quarter() {
    const REQUESTS: u64 = 400;
    const TOKENS: usize = 6;
    // A draft that strongly prefers one token: taken for the target, or taken greedily, it would show.
    let cluster = Arc::new(cluster(4, constant(&[1.0; 4]), constant(&[1.0, 1.0, 17.0, 1.0])).await);
    let sampling = v1::Sampling { temperature: 1.0, ..v1::Sampling::default() };
    let (mut names, mut p_values) = (Vec::new(), Vec::new());
    for (number, rule, kind) in settings() {
        let seed = |i| number * REQUESTS + i;
        let requests = (0..REQUESTS).map(|i| request(sampling.clone(), rule, seed(i), kind, TOKENS as u32));
        let answers: Vec<_> =
            answers(&cluster, requests, AT_ONCE).await.iter().map(|answer| answer.ids()).collect();
        for index in 0..TOKENS {
            let count = |token| answers.iter().filter(|ids| ids[index] == token).count() as u64;
            let cells: Vec<_> = (0..4).map(|token| (count(token), 0.25)).collect();
            let name = format!("{rule:?} {kind:?}, token {index}: {cells:?}");
            assert!(cells.iter().all(|cell| cell.0 > 0), "{name}");
            names.push(name);
            p_values.push(g_test(&cells).p_value);
        }
    }
    let alarms: Vec<_> = holm(&p_values, ALARM).into_iter().map(|i| (&names[i], p_values[i])).collect();
    assert!(alarms.is_empty(), "not flat: {alarms:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncating_request_keeps_the_targets_proportions() {
    const STREAMS: u64 = 10;
    const TOKENS: u32 = 10_000;
    let weights = [3.0, 9.0, 1.0, 7.0, 2.0, 8.0, 4.0, 6.0];
    let target = constant(&weights);
    let cluster =
        Arc::new(cluster(8, Arc::clone(&target), constant(&[5.0, 2.0, 8.0, 9.0, 1.0, 3.0, 7.0, 4.0])).await);
    let wire = v1::Sampling { temperature: 0.7, top_k: 3, ..v1::Sampling::default() };
    let sampling = Sampling::new(0.7, 3, 1.0, 0.0).unwrap();
    let p = Distribution::from_logits(&TableModel::logits_of(&target(&[])), &sampling).unwrap();
    let (mut names, mut p_values) = (Vec::new(), Vec::new());
    for (number, rule, kind) in settings() {
        let seed = |i| 10_000 + number * STREAMS + i;
        let requests = (0..STREAMS).map(|i| request(wire.clone(), rule, seed(i), kind, TOKENS));
        let mut cells: Vec<_> = (0..8).map(|token| (0, p.prob(token))).collect();
        for answer in answers(&cluster, requests, AT_ONCE).await {
            answer.ids().iter().for_each(|&token| cells[token as usize].0 += 1);
        }
        println!("{rule:?} {kind:?}: {cells:?}");
        // The three heaviest of the target, and nothing else.
        assert!(cells.iter().all(|cell| (cell.0 > 0) == (cell.1 > 0.0)), "{rule:?} {kind:?}: {cells:?}");
        names.push(format!("{rule:?} {kind:?}: {cells:?}"));
        p_values.push(g_test(&cells).p_value);
    }
    let alarms: Vec<_> = holm(&p_values, ALARM).into_iter().map(|i| (&names[i], p_values[i])).collect();
    assert!(alarms.is_empty(), "off the target: {alarms:?}");
}
