//! Which ids end an answer, and what may be drawn until they do.

use foretoken_engine::{Adjustments, Sampling};
use foretoken_proto::convert::{adjustment_problem, sampling_from_wire};
use foretoken_proto::error::Problem;
use foretoken_proto::v1;

use crate::pool::Target;

/// Stop ids of a request.
const MAX_STOP_IDS: usize = 32;

/// The model's end-of-text ids unless they are ignored, and the request's own.
pub(super) fn stop_ids(given: &[u32], ignore_eos: bool, target: &Target) -> Result<Vec<u32>, Problem> {
    let vocab_size = target.description.vocab_size;
    if given.len() > MAX_STOP_IDS {
        let message = format!("stop_ids has {} entries; it may have at most {MAX_STOP_IDS}", given.len());
        return Err(Problem::field("stop_ids", message));
    }
    if let Some(id) = given.iter().find(|&&id| id >= vocab_size) {
        let message = format!("stop_ids has id {id}; ids must be below the vocabulary's size, {vocab_size}");
        return Err(Problem::field("stop_ids", message));
    }
    let eos = if ignore_eos { &[] } else { target.tokenizer.eos_ids() };
    let mut ids = [eos, given].concat();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The sampling parameters of an answer that `stop_ids` would end.
pub(super) fn sampling(
    wire: Option<v1::Sampling>,
    stop_ids: &[u32],
    target: &Target,
) -> Result<(Sampling, Adjustments), Problem> {
    let (sampling, adjustments) = sampling_from_wire(wire.unwrap_or_default(), stop_ids.to_vec())?;
    adjustments.check_vocabulary(target.description.vocab_size as usize).map_err(adjustment_problem)?;
    Ok((sampling, adjustments))
}

/// `min_tokens` must leave the answer an end.
pub(super) fn check_min_tokens(adjustments: &Adjustments, max_tokens: usize) -> Result<(), Problem> {
    let min_tokens = adjustments.params().min_tokens;
    if min_tokens as usize <= max_tokens {
        return Ok(());
    }
    let message = format!("min_tokens is {min_tokens}; it must be at most max_tokens, {max_tokens}");
    Err(Problem::field("sampling.min_tokens", message))
}
