use super::*;
use crate::{Distribution, Sampling};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

const V: usize = 8;

/// The adjusted logits by their definition: each token by itself, the history counted from the text.
fn right(params: &AdjustmentParams, logits: &[f32], prompt: &[u32], output: &[u32]) -> Vec<f32> {
    (0..logits.len() as u32)
        .map(|id| {
            let mut logit = f64::from(logits[id as usize]);
            for &(biased, bias) in &params.logit_bias {
                if biased == id {
                    logit = f64::from((logit + f64::from(bias)) as f32);
                }
            }
            let times = output.iter().filter(|&&other| other == id).count();
            if prompt.contains(&id) || times > 0 {
                let r = params.repetition_penalty;
                logit = if logit > 0.0 { logit / r } else { logit * r };
            }
            if times > 0 {
                logit -= params.presence_penalty;
            }
            logit -= times as f64 * params.frequency_penalty;
            let early = output.len() < params.min_tokens as usize && params.end_ids.contains(&id);
            let shut_out = !params.allowed_ids.is_empty() && !params.allowed_ids.contains(&id);
            if early || shut_out || params.forbidden_ids.contains(&id) {
                f32::NEG_INFINITY
            } else {
                logit as f32
            }
        })
        .collect()
}

fn params() -> impl Strategy<Value = AdjustmentParams> {
    let id = 0..V as u32;
    let ids = move || btree_set(0..V as u32, 0..4).prop_map(|ids| ids.into_iter().collect::<Vec<_>>());
    let penalties = (
        prop_oneof![Just(1.0), 0.5..2.0],
        prop_oneof![Just(0.0), -2.0..2.0],
        prop_oneof![Just(0.0), -2.0..2.0],
    );
    let bias = btree_map(id, -100f32..100.0, 0..4).prop_map(|biases| biases.into_iter().collect());
    (bias, penalties, 0..6u32, ids(), ids(), ids()).prop_map(
        |(logit_bias, (repetition, presence, frequency), min_tokens, end_ids, allowed_ids, forbidden_ids)| {
            AdjustmentParams {
                logit_bias,
                repetition_penalty: repetition,
                presence_penalty: presence,
                frequency_penalty: frequency,
                min_tokens,
                end_ids: if min_tokens > 0 { end_ids } else { Vec::new() },
                allowed_ids,
                forbidden_ids,
            }
        },
    )
}

fn close(got: &[f32], want: &[f32]) -> bool {
    got.iter().zip(want).all(|(&got, &want)| got == want || (got - want).abs() <= 1e-5 * want.abs().max(1.0))
}

proptest! {
    /// Whatever is drafted, rejected and drafted again: a row is adjusted by the text before it alone.
    #[test]
    fn rows_are_adjusted_by_the_formula(
        params in params(), prompt in vec(0..V as u32, 1..6), logits in vec(-8f32..8.0, V..=V),
        rounds in vec((vec(0..V as u32, 1..6), 0..6usize), 1..12),
    ) {
        let adjustments = Adjustments::new(params.clone()).unwrap();
        let shaping = Shaping::new(&adjustments, &prompt, V, 64);
        prop_assert_eq!(shaping.is_none(), adjustments.is_none());
        let Some(mut shaping) = shaping else { return Ok(()) };
        let mut text = prompt.clone();
        for (block, kept) in rounds {
            let start = text.len();
            text.extend(&block);
            shaping.follow(&text);
            for position in start..=text.len() {
                let right = right(&params, &logits, &prompt, &text[prompt.len()..position]);
                let got = shaping.adjust(&logits, position);
                prop_assert!(close(got, &right), "{:?} instead of {:?} at {}", got, right, position);
            }
            text.truncate(start + kept.min(block.len()));
            shaping.truncate(text.len());
        }
    }
}

fn shaped(params: AdjustmentParams, logits: &[f32], prompt: &[u32], text: &[u32]) -> Vec<f32> {
    let adjustments = Adjustments::new(params).unwrap();
    let mut shaping = Shaping::new(&adjustments, prompt, logits.len(), 64).unwrap();
    shaping.follow(text);
    shaping.adjust(logits, text.len()).to_vec()
}

#[test]
fn repetition_counts_the_prompt_and_the_others_do_not() {
    let logits = [2.0, -2.0, 2.0, -2.0];
    let repetition = AdjustmentParams { repetition_penalty: 2.0, ..AdjustmentParams::default() };
    assert_eq!(shaped(repetition, &logits, &[0, 1], &[0, 1, 3]), [1.0, -4.0, 2.0, -4.0]);
    let others =
        AdjustmentParams { presence_penalty: 0.5, frequency_penalty: 0.25, ..AdjustmentParams::default() };
    assert_eq!(shaped(others, &logits, &[0, 1], &[0, 1, 3, 3, 2]), [2.0, -2.0, 1.25, -3.0]);
}

#[test]
fn a_bias_comes_before_the_penalty_and_a_mask_after_all() {
    let params = AdjustmentParams {
        logit_bias: vec![(0, 4.0), (1, 100.0)],
        repetition_penalty: 2.0,
        forbidden_ids: vec![1],
        ..AdjustmentParams::default()
    };
    assert_eq!(shaped(params, &[-2.0, 0.0, 1.0], &[0], &[0]), [1.0, f32::NEG_INFINITY, 1.0]);
}

#[test]
fn masks_of_the_model_stay_and_nothing_becomes_infinite() {
    let params = AdjustmentParams {
        logit_bias: vec![(0, 100.0)],
        repetition_penalty: 0.01,
        presence_penalty: -2.0,
        ..AdjustmentParams::default()
    };
    let logits = [f32::NEG_INFINITY, f32::MAX, 1.0];
    assert_eq!(shaped(params, &logits, &[0, 1], &[0, 1, 0, 1]), [f32::NEG_INFINITY, f32::MAX, 1.0]);
}

#[test]
fn ends_come_from_min_tokens_on() {
    let params = AdjustmentParams { min_tokens: 2, end_ids: vec![1], ..AdjustmentParams::default() };
    let adjustments = Adjustments::new(params).unwrap();
    let mut shaping = Shaping::new(&adjustments, &[0, 0, 0], 3, 64).unwrap();
    let masked =
        |shaping: &mut Shaping, position| shaping.adjust(&[0.0; 3], position)[1] == f32::NEG_INFINITY;
    assert_eq!([3, 4, 5, 6].map(|position| masked(&mut shaping, position)), [true, true, false, false]);
}

#[test]
fn a_greedy_choice_is_that_of_the_adjusted_logits() {
    let params = AdjustmentParams { presence_penalty: 1.5, ..AdjustmentParams::default() };
    let adjusted = shaped(params, &[1.0, 2.0, 0.0], &[2], &[2, 1]);
    assert_eq!(Distribution::from_logits(&adjusted, &Sampling::GREEDY).unwrap().argmax(), 0);
}
