//! Bias, penalties, masks and samples: answers follow the enumerated probabilities of every short answer, and each
//! mistake that verifiers make about them is caught.
//!
//! What penalties look at grows with the answer, so here every answer is short and one draw; `n` gives many.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foretoken_acceptance::{AdjustmentParams, Adjustments, Distribution, RequestKeys, Sampling};
use foretoken_engine::generate::Plan;
use foretoken_proto::convert::sampling_to_wire;
use foretoken_proto::v1;
use foretoken_testkit::adjusted::{Before, Mistake, adjusted};
use foretoken_testkit::client::{ids_request, samples_at};
use foretoken_testkit::scripted::{Collected, ExactRule, Guess, Scripts, TableVerifier};
use foretoken_testkit::table::{Table, TableModel, random_table};
use foretoken_tests::stats::{GTest, g_test, holm};

use crate::clocked::{ALARM, CERTAIN, PROMPT, V};
use crate::looped::{plan, run};
use crate::services::cluster;

/// Output tokens of an answer: one plain token, then blocks of up to three with room for a second one.
const LEN: usize = 6;

// Fixed before the first run and never picked again.
const TARGET: u64 = 2011;
const DRAFT: u64 = 2012;
const FIRST_SEED: u64 = 36_000;

const DRAFTERS: [v1::DrafterKind; 3] =
    [v1::DrafterKind::Model, v1::DrafterKind::Ngram, v1::DrafterKind::None];

const RULES: [v1::Rule; 3] = [v1::Rule::Token, v1::Rule::Block, v1::Rule::Gumbel];

fn target() -> Table {
    random_table(TARGET, V, 0)
}

fn draft() -> Table {
    random_table(DRAFT, V, 0)
}

/// Parameters, and the ids that end an answer.
struct Setting {
    name: &'static str,
    params: AdjustmentParams,
    stop_ids: Vec<u32>,
}

fn settings() -> [Setting; 4] {
    let none = AdjustmentParams::default;
    let penalties =
        AdjustmentParams { repetition_penalty: 1.4, presence_penalty: 0.7, frequency_penalty: 0.5, ..none() };
    let bias = AdjustmentParams { logit_bias: vec![(0, 1.5), (3, -1.0)], forbidden_ids: vec![2], ..none() };
    let min_tokens = AdjustmentParams { min_tokens: 3, end_ids: vec![1], ..none() };
    let all = AdjustmentParams {
        logit_bias: vec![(0, 0.8)],
        frequency_penalty: -0.4,
        allowed_ids: vec![0, 1, 3],
        min_tokens: 2,
        end_ids: vec![1],
        ..none()
    };
    [
        Setting { name: "penalties", params: penalties, stop_ids: vec![] },
        Setting { name: "bias", params: bias, stop_ids: vec![] },
        Setting { name: "min-tokens", params: min_tokens, stop_ids: vec![1] },
        Setting { name: "all", params: all, stop_ids: vec![1] },
    ]
}

impl Setting {
    fn adjustments(&self) -> Adjustments {
        Adjustments::new(self.params.clone()).unwrap()
    }
}

fn temperatures() -> [Sampling; 2] {
    [0.7, 1.0].map(|temperature| Sampling::new(temperature, 0, 1.0, 0.0).unwrap())
}

/// What answers are sorted by: their length, their last tokens, and how many different ones they have.
type Cell = (usize, u32, u32, usize);

fn cell(answer: &[u32]) -> Cell {
    let from_end = |back: usize| answer.len().checked_sub(back).map_or(u32::MAX, |index| answer[index]);
    (answer.len(), from_end(2), from_end(1), answer.iter().collect::<BTreeSet<_>>().len())
}

/// Counts and probabilities of the cells.
type Cells = BTreeMap<Cell, (u64, f64)>;

/// The probability of every cell, by the definition.
fn expected(setting: &Setting, sampling: &Sampling) -> Cells {
    let (table, adjustments) = (target(), setting.adjustments());
    let mut cells = Cells::new();
    let mut open = vec![(Vec::new(), 1.0)];
    while let Some((answer, so_far)) = open.pop() {
        let ended = answer.last().is_some_and(|last| setting.stop_ids.contains(last));
        if ended || answer.len() == LEN {
            cells.entry(cell(&answer)).or_default().1 += so_far;
            continue;
        }
        let text = [&PROMPT[..], &answer].concat();
        let before = Before { output_len: answer.len(), history: &answer };
        let logits = adjusted(&TableModel::logits_of(&table(&text)), &adjustments, &PROMPT, before);
        let p = Distribution::from_logits(&logits, sampling).unwrap();
        open.extend(p.iter().map(|(token, p)| ([&answer[..], &[token]].concat(), so_far * p)));
    }
    cells
}

/// Whether the answers come from these probabilities; one that cannot come decides it.
fn test<'a>(mut cells: Cells, answers: impl IntoIterator<Item = &'a [u32]>) -> GTest {
    let mut impossible = false;
    for answer in answers {
        match cells.get_mut(&cell(answer)) {
            Some((count, _)) => *count += 1,
            None => impossible = true,
        }
    }
    let test = g_test(&cells.into_values().collect::<Vec<_>>());
    if impossible { GTest { p_value: 0.0, ..test } } else { test }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_n_samples_follow_the_target_under_every_parameter() {
    const REQUESTS: u64 = 100;
    const SAMPLES: u32 = 16;
    let cluster = Arc::new(cluster(V, target(), draft()).await);
    let (mut names, mut p_values) = (Vec::new(), Vec::new());
    let mut seed = FIRST_SEED;
    for setting in settings() {
        for sampling in temperatures() {
            for kind in DRAFTERS {
                let (mut answers, mut accepted) = (Vec::new(), 0);
                for request in 0..REQUESTS {
                    seed += 1;
                    let request = v1::GenerateRequest {
                        sampling: Some(sampling_to_wire(&sampling, &setting.adjustments())),
                        seed: Some(seed),
                        drafter: kind.into(),
                        rule: RULES[request as usize / 3 % 3].into(),
                        draft_len: Some(1 + (request % 3) as u32),
                        stop_ids: setting.stop_ids.clone(),
                        n: Some(SAMPLES),
                        ..ids_request(&PROMPT, LEN as u32)
                    };
                    for sample in samples_at(cluster.orchestrator.channel(), request).await.unwrap() {
                        accepted += sample.ledger().accepted;
                        answers.push(sample.ids());
                    }
                }
                let name = format!("{}, T {}, {kind:?}", setting.name, sampling.temperature());
                let found = test(expected(&setting, &sampling), answers.iter().map(Vec::as_slice));
                println!("{name}: n {}, p-value {:.4}, accepted {accepted}", answers.len(), found.p_value);
                assert_eq!(accepted > 0, kind != v1::DrafterKind::None, "{name}");
                names.push(name);
                p_values.push(found.p_value);
            }
        }
    }
    let alarms: Vec<_> = holm(&p_values, ALARM).into_iter().map(|i| (&names[i], p_values[i])).collect();
    assert!(alarms.is_empty(), "off the target: {alarms:?}");
}

/// The test of many answers through the round loop over a verifier that makes `mistake`, if any.
async fn looped(setting: &Setting, sampling: Sampling, mistake: Option<Mistake>) -> GTest {
    const ANSWERS: u64 = 20_000;
    let plain = plan(sampling, FIRST_SEED, 3, LEN);
    let mut answers = Vec::new();
    for answer in 0..ANSWERS {
        let plan = Plan {
            adjustments: setting.adjustments(),
            stop_ids: setting.stop_ids.clone(),
            keys: RequestKeys::new(FIRST_SEED + answer, 0),
            draft_len: 1 + (answer % 3) as usize,
            ..plain.clone()
        };
        let mut verifier = TableVerifier::new(target(), ExactRule, plan.verify_open());
        verifier.mistake = mistake;
        let drafters = Some(Scripts::steady(Guess::Table(draft())));
        answers.push(run(&plan, verifier, drafters, Collected::default()).await.ids());
    }
    test(expected(setting, &sampling), answers.iter().map(Vec::as_slice))
}

#[tokio::test]
async fn the_round_loop_follows_the_target_under_every_parameter() {
    let (mut names, mut p_values) = (Vec::new(), Vec::new());
    for setting in settings() {
        for sampling in temperatures() {
            let found = looped(&setting, sampling, None).await;
            println!("{}, T {}: p-value {:.4}", setting.name, sampling.temperature(), found.p_value);
            names.push((setting.name, sampling.temperature()));
            p_values.push(found.p_value);
        }
    }
    let alarms: Vec<_> = holm(&p_values, ALARM).into_iter().map(|i| (names[i], p_values[i])).collect();
    assert!(alarms.is_empty(), "off the target: {alarms:?}");
}

async fn is_caught(mistake: Mistake, wrong_in: &[&str]) {
    for setting in settings().iter().filter(|setting| wrong_in.contains(&setting.name)) {
        for sampling in temperatures() {
            let GTest { statistic, degrees, p_value } = looped(setting, sampling, Some(mistake)).await;
            let name = format!("{mistake:?}, {}, T {}", setting.name, sampling.temperature());
            println!("{name}: G {statistic:.0} on {degrees}, p-value {p_value:e}");
            assert!(p_value < CERTAIN, "{name} passes with a p-value of {p_value:e}");
        }
    }
}

#[tokio::test]
async fn counting_rejected_tokens_is_caught() {
    is_caught(Mistake::RejectedTokensCount, &["penalties"]).await;
}

#[tokio::test]
async fn adjusting_the_bonus_alone_is_caught() {
    is_caught(Mistake::OnlyTheBonusIsAdjusted, &["penalties", "bias", "min-tokens"]).await;
}

#[tokio::test]
async fn a_history_of_the_blocks_start_is_caught() {
    is_caught(Mistake::HistoryOfTheBlocksStart, &["penalties"]).await;
}
