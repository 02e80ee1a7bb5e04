//! Adjusted logits, row by row: bias, then repetition, presence and frequency penalties of the history at that
//! position, then min-tokens, then allowed and forbidden ids. What follows, from the temperature on, is in
//! [`crate::Distribution::fill`].
//!
//! A row costs a copy of its logits and a step for each token concerned. Counts are kept from row to row; nothing is
//! counted anew and, once warm, nothing allocated.

use crate::adjustments::{AdjustmentParams, Adjustments};
use crate::history::History;

/// A session's adjustments at work. It follows the session's text as a worker holds it, drafted tokens included.
#[derive(Debug)]
pub struct Shaping {
    adjustments: Adjustments,
    prompt_len: usize,
    /// None without penalties.
    history: Option<History>,
    adjusted: Vec<f32>,
}

impl Shaping {
    /// The shaping of a session that begins with `prompt` and may become `reserve_len` long; none if `adjustments`
    /// change nothing.
    #[must_use]
    pub fn new(
        adjustments: &Adjustments,
        prompt: &[u32],
        vocab_size: usize,
        reserve_len: usize,
    ) -> Option<Self> {
        if adjustments.is_none() {
            return None;
        }
        let history = adjustments.has_penalties().then(|| {
            let counted = if adjustments.counts_prompt() { prompt } else { &[] };
            History::new(prompt.len(), counted, vocab_size, reserve_len.saturating_sub(prompt.len()))
        });
        Some(Self {
            adjustments: adjustments.clone(),
            prompt_len: prompt.len(),
            history,
            adjusted: Vec::new(),
        })
    }

    /// The adjustments.
    #[must_use]
    pub fn adjustments(&self) -> &Adjustments {
        &self.adjustments
    }

    /// Takes from `text`, prompt included, what is new behind the text known so far.
    pub fn follow(&mut self, text: &[u32]) {
        if let Some(history) = &mut self.history {
            history.follow(text);
        }
    }

    /// Forgets the text from `len` on: it was rejected, or never committed.
    pub fn truncate(&mut self, len: usize) {
        if let Some(history) = &mut self.history {
            history.truncate(len);
        }
    }

    /// The logits of the token at `position`, adjusted by the text before it. A logit of −∞ stays one.
    pub fn adjust(&mut self, logits: &[f32], position: usize) -> &[f32] {
        let AdjustmentParams { logit_bias, end_ids, allowed_ids, forbidden_ids, .. } =
            self.adjustments.params();
        let adjusted = &mut self.adjusted;
        adjusted.clear();
        if allowed_ids.is_empty() {
            adjusted.extend_from_slice(logits);
        } else {
            adjusted.resize(logits.len(), f32::NEG_INFINITY);
            for &id in allowed_ids {
                if let (Some(to), Some(&logit)) = (adjusted.get_mut(id as usize), logits.get(id as usize)) {
                    *to = logit;
                }
            }
        }
        for &(id, bias) in logit_bias {
            change(adjusted, id, |logit| logit + f64::from(bias));
        }
        if let Some(history) = &mut self.history {
            penalise(adjusted, history, position, self.adjustments.params());
        }
        if position.saturating_sub(self.prompt_len) < self.adjustments.params().min_tokens as usize {
            mask(adjusted, end_ids);
        }
        mask(adjusted, forbidden_ids);
        adjusted
    }
}

fn penalise(logits: &mut [f32], history: &mut History, position: usize, params: &AdjustmentParams) {
    let (repetition, presence) = (params.repetition_penalty, params.presence_penalty);
    for seen in history.before(position) {
        change(logits, seen.id, |logit| {
            let logit = if logit > 0.0 { logit / repetition } else { logit * repetition };
            let present = if seen.in_output > 0 { presence } else { 0.0 };
            logit - present - params.frequency_penalty * f64::from(seen.in_output)
        });
    }
}

fn change(logits: &mut [f32], id: u32, to: impl Fn(f64) -> f64) {
    if let Some(logit) = logits.get_mut(id as usize)
        && logit.is_finite()
    {
        // What a penalty makes of a huge logit is the hugest: infinity would be taken for a fault of the model, or a mask.
        *logit = to(f64::from(*logit)).clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
    }
}

fn mask(logits: &mut [f32], ids: &[u32]) {
    for &id in ids {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests;
