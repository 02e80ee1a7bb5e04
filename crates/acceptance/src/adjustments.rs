//! What is done to logits before the temperature: bias, penalties, masks. Here are the validated parameters; what they
//! do to a row is in [`crate::Shaping`].

/// Biases of one request.
pub const MAX_BIASES: usize = 1024;
/// Ids that a request may allow, or forbid.
pub const MAX_MASKED_IDS: usize = 16_384;
/// Ids that may end an answer.
pub const MAX_END_IDS: usize = 128;

/// The parameters of [`Adjustments`], not yet checked. The default changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct AdjustmentParams {
    /// Added to the logits of tokens; each from −100 to 100, no id twice.
    pub logit_bias: Vec<(u32, f32)>,
    /// Divides logits above 0 and multiplies those below, of tokens in the prompt or the output; from 0.01 to 100,
    /// 1 is none (CTRL, Keskar et al. 2019, arXiv 1909.05858, section 4.1; both signs as in Hugging Face and vLLM).
    pub repetition_penalty: f64,
    /// Subtracted from the logits of tokens in the output; from −2 to 2.
    pub presence_penalty: f64,
    /// Subtracted once for each time that a token stands in the output; from −2 to 2.
    pub frequency_penalty: f64,
    /// `end_ids` are masked at the first so many output tokens.
    pub min_tokens: u32,
    /// The ids that would end the answer; of no account without `min_tokens`.
    pub end_ids: Vec<u32>,
    /// Only these tokens may come; empty allows all.
    pub allowed_ids: Vec<u32>,
    /// These tokens never come, allowed or not.
    pub forbidden_ids: Vec<u32>,
}

impl Default for AdjustmentParams {
    fn default() -> Self {
        Self {
            logit_bias: Vec::new(),
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            min_tokens: 0,
            end_ids: Vec::new(),
            allowed_ids: Vec::new(),
            forbidden_ids: Vec::new(),
        }
    }
}

/// An adjustment out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AdjustmentError {
    /// The parameter, as a request spells it.
    pub field: &'static str,
    /// Parameter, value, limit and what to do.
    pub message: String,
}

/// Checked adjustments: the ids of each list ascend and differ. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjustments(AdjustmentParams);

impl Adjustments {
    /// Checks every parameter but against the vocabulary, and puts the lists in order.
    ///
    /// # Errors
    /// The first parameter out of range, not finite, or too long.
    pub fn new(mut params: AdjustmentParams) -> Result<Self, AdjustmentError> {
        check_biases(&mut params.logit_bias)?;
        within("repetition_penalty", params.repetition_penalty, 0.01, 100.0)?;
        within("presence_penalty", params.presence_penalty, -2.0, 2.0)?;
        within("frequency_penalty", params.frequency_penalty, -2.0, 2.0)?;
        if params.min_tokens == 0 {
            params.end_ids.clear();
        }
        for (field, ids, limit) in [
            ("end_ids", &mut params.end_ids, MAX_END_IDS),
            ("allowed_ids", &mut params.allowed_ids, MAX_MASKED_IDS),
            ("forbidden_ids", &mut params.forbidden_ids, MAX_MASKED_IDS),
        ] {
            at_most(field, ids.len(), limit)?;
            ids.sort_unstable();
            ids.dedup();
        }
        Ok(Self(params))
    }

    /// The parameters.
    #[must_use]
    pub fn params(&self) -> &AdjustmentParams {
        &self.0
    }

    /// The same with other ids that would end the answer.
    ///
    /// # Errors
    /// Too many ids.
    pub fn with_end_ids(self, end_ids: Vec<u32>) -> Result<Self, AdjustmentError> {
        Self::new(AdjustmentParams { end_ids, ..self.0 })
    }

    /// Checks what only the model's vocabulary tells: ids exist, and at every position some token is left.
    ///
    /// # Errors
    /// The parameter that names an id outside, or that leaves no token.
    pub fn check_vocabulary(&self, vocab_size: usize) -> Result<(), AdjustmentError> {
        let AdjustmentParams { end_ids, allowed_ids, forbidden_ids, .. } = &self.0;
        let biased = self.0.logit_bias.last().map(|&(id, _)| id);
        for (field, highest) in [
            ("logit_bias", biased),
            ("end_ids", end_ids.last().copied()),
            ("allowed_ids", allowed_ids.last().copied()),
            ("forbidden_ids", forbidden_ids.last().copied()),
        ] {
            if let Some(id) = highest.filter(|&id| id as usize >= vocab_size) {
                let message =
                    format!("{field} has id {id}; ids must be below the vocabulary's size, {vocab_size}");
                return Err(AdjustmentError { field, message });
            }
        }
        let masked = |id: u32| forbidden_ids.binary_search(&id).is_ok() || end_ids.binary_search(&id).is_ok();
        let some_left = match allowed_ids.as_slice() {
            [] => (0u32..).take(vocab_size).any(|id| !masked(id)),
            allowed => allowed.iter().any(|&id| !masked(id)),
        };
        if some_left {
            return Ok(());
        }
        let field = if allowed_ids.is_empty() { "forbidden_ids" } else { "allowed_ids" };
        let message = format!(
            "{field} leaves no token that may come (ids that end the answer cannot before min_tokens, {}); leave one",
            self.0.min_tokens
        );
        Err(AdjustmentError { field, message })
    }

    /// Whether a token may come at all behind `output_len` tokens of the answer: whether its logit is not masked.
    #[must_use]
    pub fn allows(&self, id: u32, output_len: usize) -> bool {
        let AdjustmentParams { min_tokens, end_ids, allowed_ids, forbidden_ids, .. } = &self.0;
        let has = |ids: &[u32]| ids.binary_search(&id).is_ok();
        (allowed_ids.is_empty() || has(allowed_ids))
            && !has(forbidden_ids)
            && !(output_len < *min_tokens as usize && has(end_ids))
    }

    /// Whether logits stay as they are.
    #[must_use]
    pub fn is_none(&self) -> bool {
        let params = &self.0;
        params.logit_bias.is_empty()
            && !self.has_penalties()
            && params.end_ids.is_empty()
            && params.allowed_ids.is_empty()
            && params.forbidden_ids.is_empty()
    }

    /// Whether the history matters.
    pub(crate) fn has_penalties(&self) -> bool {
        self.counts_prompt() || self.0.presence_penalty != 0.0 || self.0.frequency_penalty != 0.0
    }

    /// Whether the prompt is part of the history that matters.
    pub(crate) fn counts_prompt(&self) -> bool {
        self.0.repetition_penalty != 1.0
    }
}

fn check_biases(biases: &mut [(u32, f32)]) -> Result<(), AdjustmentError> {
    let field = "logit_bias";
    at_most(field, biases.len(), MAX_BIASES)?;
    if let Some((id, bias)) = biases.iter().find(|(_, bias)| !(-100.0..=100.0).contains(bias)) {
        let message = format!(
            "{field} is {bias} for id {id}; it must be between -100 and 100; to exclude a token, forbid it"
        );
        return Err(AdjustmentError { field, message });
    }
    biases.sort_unstable_by_key(|&(id, _)| id);
    for pair in biases.windows(2) {
        if let [(one, _), (other, _)] = pair
            && one == other
        {
            return Err(AdjustmentError {
                field,
                message: format!("{field} has id {one} twice; give each once"),
            });
        }
    }
    Ok(())
}

fn within(field: &'static str, value: f64, least: f64, most: f64) -> Result<(), AdjustmentError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(AdjustmentError {
        field,
        message: format!("{field} is {value}; it must be between {least} and {most}"),
    })
}

fn at_most(field: &'static str, len: usize, limit: usize) -> Result<(), AdjustmentError> {
    if len <= limit {
        return Ok(());
    }
    Err(AdjustmentError { field, message: format!("{field} has {len} entries; it may have at most {limit}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut AdjustmentParams)) -> AdjustmentError {
        let mut params = AdjustmentParams::default();
        change(&mut params);
        Adjustments::new(params).unwrap_err()
    }

    #[test]
    fn refuses_by_name_value_and_limit() {
        let error = refused(|p| p.logit_bias = vec![(7, 100.5)]);
        assert_eq!((error.field, error.message.contains("100.5 for id 7")), ("logit_bias", true), "{error}");
        for bias in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -101.0] {
            assert_eq!(refused(|p| p.logit_bias = vec![(7, bias)]).field, "logit_bias");
        }
        assert!(
            refused(|p| p.logit_bias = vec![(7, 1.0), (3, 0.0), (7, 1.0)]).message.contains("id 7 twice")
        );
        assert!(refused(|p| p.logit_bias = vec![(0, 0.0); 1025]).message.contains("1025 entries"));
        for value in [0.0, 0.009, 100.5, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(|p| p.repetition_penalty = value).field, "repetition_penalty");
        }
        for value in [-2.1, 2.1, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(refused(|p| p.presence_penalty = value).field, "presence_penalty");
            assert_eq!(refused(|p| p.frequency_penalty = value).field, "frequency_penalty");
        }
        let ids = || (0..16_385).collect::<Vec<u32>>();
        assert_eq!(refused(|p| p.allowed_ids = ids()).field, "allowed_ids");
        assert_eq!(refused(|p| p.forbidden_ids = ids()).field, "forbidden_ids");
        assert_eq!(refused(|p| (p.min_tokens, p.end_ids) = (1, ids())).field, "end_ids");
    }

    #[test]
    fn the_vocabulary_bounds_ids_and_must_not_be_masked_whole() {
        let check = |change: fn(&mut AdjustmentParams)| {
            let mut params = AdjustmentParams::default();
            change(&mut params);
            Adjustments::new(params).unwrap().check_vocabulary(4).map_err(|error| error.field)
        };
        assert_eq!(check(|p| p.logit_bias = vec![(4, 1.0), (0, 1.0)]), Err("logit_bias"));
        assert_eq!(check(|p| p.allowed_ids = vec![9, 1]), Err("allowed_ids"));
        assert_eq!(check(|p| p.forbidden_ids = vec![4]), Err("forbidden_ids"));
        assert_eq!(check(|p| (p.min_tokens, p.end_ids) = (2, vec![4])), Err("end_ids"));
        assert_eq!(check(|p| p.forbidden_ids = vec![0, 1, 2, 3]), Err("forbidden_ids"));
        assert_eq!(check(|p| p.forbidden_ids = vec![0, 1, 2]), Ok(()));
        assert_eq!(check(|p| (p.allowed_ids, p.forbidden_ids) = (vec![1], vec![1])), Err("allowed_ids"));
        assert_eq!(check(|p| (p.allowed_ids, p.end_ids) = (vec![1], vec![1])), Ok(()), "min_tokens is 0");
        assert_eq!(
            check(|p| (p.allowed_ids, p.min_tokens, p.end_ids) = (vec![1], 1, vec![1])),
            Err("allowed_ids")
        );
    }

    #[test]
    fn what_is_masked_is_not_allowed() {
        let params = AdjustmentParams {
            min_tokens: 3,
            end_ids: vec![1],
            allowed_ids: vec![2, 1, 4],
            forbidden_ids: vec![4],
            ..Default::default()
        };
        let adjustments = Adjustments::new(params).unwrap();
        let mut shaping = crate::Shaping::new(&adjustments, &[0, 0], 6, 9).unwrap();
        for output_len in 0..5 {
            let adjusted = shaping.adjust(&[0.0; 6], 2 + output_len).to_vec();
            for (id, logit) in (0..).zip(adjusted) {
                assert_eq!(adjustments.allows(id, output_len), logit.is_finite(), "{id} at {output_len}");
            }
        }
        assert!(Adjustments::default().allows(9, 0));
    }

    #[test]
    fn the_default_is_none_and_lists_are_put_in_order() {
        assert!(Adjustments::default().is_none());
        assert!(
            Adjustments::new(AdjustmentParams { min_tokens: 5, ..Default::default() }).unwrap().is_none()
        );
        let params = AdjustmentParams { forbidden_ids: vec![3, 1, 3], ..Default::default() };
        let adjustments = Adjustments::new(params).unwrap();
        assert!(!adjustments.is_none());
        assert_eq!(adjustments.params().forbidden_ids, [1, 3]);
    }
}
