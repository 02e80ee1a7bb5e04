//! Adjusted logits by their definition, one token at a time and counted anew for every row: what the real thing is
//! held against. And the mistakes that the field makes about them.

use foretoken_acceptance::{AdjustmentParams, Adjustments};

/// A mistake about what p depends on, for a verifier to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Drafted tokens that were rejected stay in the history.
    RejectedTokensCount,
    /// p is left as it is where a draft is judged.
    OnlyTheBonusIsAdjusted,
    /// All rows of a block have the history of its first.
    HistoryOfTheBlocksStart,
}

/// What stands before a position.
#[derive(Debug, Clone, Copy)]
pub struct Before<'a> {
    /// Output tokens before it.
    pub output_len: usize,
    /// The tokens that penalties count as output.
    pub history: &'a [u32],
}

/// The logits of the next token.
#[must_use]
pub fn adjusted(logits: &[f32], adjustments: &Adjustments, prompt: &[u32], before: Before<'_>) -> Vec<f32> {
    // The suites' long answers have nothing to adjust, and no history to count for every token.
    if adjustments.is_none() {
        return logits.to_vec();
    }
    let params = adjustments.params();
    (0..).zip(logits).map(|(id, &logit)| adjusted_logit(id, logit, params, prompt, before)).collect()
}

fn adjusted_logit(id: u32, logit: f32, params: &AdjustmentParams, prompt: &[u32], before: Before<'_>) -> f32 {
    let early = before.output_len < params.min_tokens as usize && params.end_ids.contains(&id);
    let shut_out = !params.allowed_ids.is_empty() && !params.allowed_ids.contains(&id);
    if early || shut_out || params.forbidden_ids.contains(&id) {
        return f32::NEG_INFINITY;
    }
    let bias = params.logit_bias.iter().find(|entry| entry.0 == id).map_or(0.0, |entry| entry.1);
    let biased = (f64::from(logit) + f64::from(bias)) as f32;
    let times = before.history.iter().filter(|&&other| other == id).count();
    if times == 0 && !prompt.contains(&id) {
        return biased;
    }
    let biased = f64::from(biased);
    let r = params.repetition_penalty;
    let repeated = if biased > 0.0 { biased / r } else { biased * r };
    let present = if times > 0 { params.presence_penalty } else { 0.0 };
    (repeated - present - params.frequency_penalty * times as f64) as f32
}
