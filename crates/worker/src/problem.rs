//! Refused Opens as statuses.

use std::time::Duration;

use foretoken_proto::error::{Problem, Reason};
use foretoken_runtime::OpenError;

/// When to ask again after a full queue, and after full sessions or a full cache.
const QUEUE_RETRY: Duration = Duration::from_millis(20);
const ROOM_RETRY: Duration = Duration::from_millis(500);

/// What a caller is told when the runtime refused its Open.
#[must_use]
pub fn open_problem(error: &OpenError) -> Problem {
    let text = error.to_string();
    match error {
        OpenError::Invalid { field, .. } => Problem::field(*field, text),
        OpenError::Model { ours, expected, .. } => {
            Problem::new(Reason::ModelMismatch, text).with("ours", ours).with("expected", expected)
        }
        OpenError::KvTooSmall { .. } => Problem::new(
            Reason::KvTooSmall,
            format!("{text}; shorten prompt or max_tokens, or raise --kv-tokens"),
        ),
        OpenError::KvFull { .. } => Problem::new(Reason::KvFull, text).retry_after(ROOM_RETRY),
        OpenError::SessionsFull(_) => Problem::new(Reason::SessionsFull, text).retry_after(ROOM_RETRY),
        OpenError::QueueFull => Problem::new(Reason::QueueFull, text).retry_after(QUEUE_RETRY),
        OpenError::ModelFailed(_) => Problem::new(Reason::ModelFailed, text),
    }
}

/// Refuses ids of another tokenizer. An empty expectation accepts any.
///
/// # Errors
/// TOKENIZER_MISMATCH with both fingerprints.
pub fn check_tokenizer(model: &str, ours: &str, expected: &str) -> Result<(), Problem> {
    if expected.is_empty() || expected == ours {
        return Ok(());
    }
    let message = format!(
        "{model} has the tokenizer {ours}, the session's ids belong to {expected}; \
         use a worker whose tokenizer is the target's"
    );
    Err(Problem::new(Reason::TokenizerMismatch, message).with("ours", ours).with("expected", expected))
}
