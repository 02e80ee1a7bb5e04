//! Sampling parameters: one message on the wire, two values behind it.

use foretoken_engine::{AdjustmentError, AdjustmentParams, Adjustments, Sampling};

use crate::error::Problem;
use crate::v1;

/// Both values as one message. The ids that end an answer are not in it.
#[must_use]
pub fn sampling_to_wire(sampling: &Sampling, adjustments: &Adjustments) -> v1::Sampling {
    let params = adjustments.params();
    v1::Sampling {
        temperature: sampling.temperature(),
        top_k: sampling.top_k(),
        top_p: Some(sampling.top_p()),
        min_p: sampling.min_p(),
        logit_bias: params.logit_bias.iter().map(|&(id, bias)| v1::LogitBias { id, bias }).collect(),
        repetition_penalty: Some(params.repetition_penalty),
        presence_penalty: params.presence_penalty,
        frequency_penalty: params.frequency_penalty,
        min_tokens: params.min_tokens,
        allowed_ids: params.allowed_ids.clone(),
        forbidden_ids: params.forbidden_ids.clone(),
    }
}

/// Both values of a message; `end_ids` would end the answer.
///
/// # Errors
/// The first parameter out of range, as `sampling.NAME`.
pub fn sampling_from_wire(wire: v1::Sampling, end_ids: Vec<u32>) -> Result<(Sampling, Adjustments), Problem> {
    let sampling = Sampling::new(wire.temperature, wire.top_k, wire.top_p.unwrap_or(1.0), wire.min_p)
        .map_err(|error| Problem::field(format!("sampling.{}", error.field), error.to_string()))?;
    let adjustments = Adjustments::new(AdjustmentParams {
        logit_bias: wire.logit_bias.into_iter().map(|entry| (entry.id, entry.bias)).collect(),
        repetition_penalty: wire.repetition_penalty.unwrap_or(1.0),
        presence_penalty: wire.presence_penalty,
        frequency_penalty: wire.frequency_penalty,
        min_tokens: wire.min_tokens,
        end_ids,
        allowed_ids: wire.allowed_ids,
        forbidden_ids: wire.forbidden_ids,
    })
    .map_err(adjustment_problem)?;
    Ok((sampling, adjustments))
}

/// An adjustment out of range, by its field.
#[must_use]
pub fn adjustment_problem(AdjustmentError { field, message }: AdjustmentError) -> Problem {
    match field {
        "end_ids" => Problem::field("session.end_ids", message),
        _ => Problem::field(format!("sampling.{field}"), message),
    }
}
