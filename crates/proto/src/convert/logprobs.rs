//! Log-probabilities between verifier, orchestrator and client.

use foretoken_engine::Logprobs;
use foretoken_engine::conversation::{PositionLogprobs, TokenLogprobs};

use super::required;
use crate::error::Problem;
use crate::v1;

impl From<Logprobs> for v1::Logprobs {
    fn from(logprobs: Logprobs) -> Self {
        let (top_ids, top) = logprobs.top.into_iter().unzip();
        Self { tokens: logprobs.tokens, top_ids, top }
    }
}

impl TryFrom<v1::Logprobs> for Logprobs {
    type Error = Problem;

    fn try_from(wire: v1::Logprobs) -> Result<Self, Problem> {
        let (ids, count) = (wire.top_ids.len(), wire.top.len());
        if ids != count {
            let message = format!("{ids} alternatives have {count} log-probabilities; each has one");
            return Err(Problem::field("logprobs.top", message));
        }
        Ok(Self { tokens: wire.tokens, top: wire.top_ids.into_iter().zip(wire.top).collect() })
    }
}

impl From<PositionLogprobs> for v1::PositionLogprobs {
    fn from(position: PositionLogprobs) -> Self {
        Self { processed: Some(position.processed.into()), raw: Some(position.raw.into()) }
    }
}

impl TryFrom<v1::PositionLogprobs> for PositionLogprobs {
    type Error = Problem;

    fn try_from(wire: v1::PositionLogprobs) -> Result<Self, Problem> {
        Ok(Self {
            processed: required(wire.processed, "logprobs.processed")?.try_into()?,
            raw: required(wire.raw, "logprobs.raw")?.try_into()?,
        })
    }
}

impl From<TokenLogprobs> for v1::TokenLogprobs {
    fn from(logprobs: TokenLogprobs) -> Self {
        let top = |top: Vec<(u32, f32)>| {
            top.into_iter().map(|(id, logprob)| v1::TokenLogprob { id, logprob }).collect()
        };
        Self {
            logprob: logprobs.processed,
            raw_logprob: logprobs.raw,
            top: top(logprobs.top),
            raw_top: top(logprobs.raw_top),
        }
    }
}
