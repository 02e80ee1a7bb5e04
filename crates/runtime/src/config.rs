//! What a runtime may use, and the check at start that it fits the machine.

use std::time::Duration;

use foretoken_acceptance::LatticeShape;
use thiserror::Error;

use crate::decoder::ModelShape;

/// Limits told to peers and kept by the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of a block.
    pub max_draft_len: usize,
    /// Frames of one session that may wait for their replies.
    pub max_window: usize,
    /// Sessions held at once, those in their grace time included.
    pub max_sessions: usize,
    /// Positions a decode run may be granted beyond the committed text.
    pub max_grant: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_draft_len: 64, max_window: 4, max_sessions: 64, max_grant: 64 }
    }
}

/// Everything a runtime is told at start.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// See [`Limits`].
    pub limits: Limits,
    /// Positions of all sessions together; by default eight full contexts, or what the memory allows.
    pub kv_tokens: Option<usize>,
    /// Bytes that weights and KV cache may take together.
    pub memory_limit: Option<u64>,
    /// Commands that may wait for the model's thread.
    pub queue: usize,
    /// Rows of a pass, at most.
    pub row_budget: usize,
    /// Rows of one session's prompt in a pass that others share, at most.
    pub prefill_chunk: usize,
    /// How long a session outlives its broken stream.
    pub grace: Duration,
    /// Shape of a draft model's proposals.
    pub lattice: LatticeShape,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            kv_tokens: None,
            memory_limit: None,
            queue: 1024,
            row_budget: 512,
            prefill_chunk: 128,
            grace: Duration::from_secs(10),
            lattice: LatticeShape::default(),
        }
    }
}

/// Why a runtime was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// Weights and cache do not fit.
    #[error(
        "weights of {} MiB and a KV cache of {kv_tokens} positions ({} MiB) need more than the {} MiB allowed; \
         lower --kv-tokens or raise --memory-limit",
        mib(*weight_bytes), mib(*kv_bytes), mib(*limit)
    )]
    Memory {
        /// Bytes of the weights.
        weight_bytes: u64,
        /// Positions wanted.
        kv_tokens: usize,
        /// Bytes of these positions.
        kv_bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// A setting that cannot work.
    #[error("{field} is {value}; it must be {limit}")]
    Setting {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: usize,
        /// What it must be.
        limit: String,
    },
    /// The operating system gave no thread.
    #[error("the model's thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Full contexts that the KV cache holds unless told otherwise.
const DEFAULT_CONTEXTS: usize = 8;

impl RuntimeConfig {
    /// Positions of the KV cache for a model, after checking that everything fits.
    pub(crate) fn kv_tokens_for(&self, shape: &ModelShape) -> Result<usize, StartError> {
        let at_least = |field, value, least: usize| match value >= least {
            true => Ok(()),
            false => Err(StartError::Setting { field, value, limit: format!("at least {least}") }),
        };
        at_least("row budget", self.row_budget, self.limits.max_draft_len + 1)?;
        at_least("prefill chunk", self.prefill_chunk, 1)?;
        at_least("queue", self.queue, 1)?;
        at_least("max window", self.limits.max_window, 1)?;
        at_least("max grant", self.limits.max_grant, 1)?;
        at_least("max sessions", self.limits.max_sessions, 1)?;
        let per_token = shape.kv_bytes_per_token;
        let affordable = self.memory_limit.filter(|_| per_token > 0).map(|limit| {
            usize::try_from(limit.saturating_sub(shape.weight_bytes) / per_token).unwrap_or(usize::MAX)
        });
        let default =
            DEFAULT_CONTEXTS.saturating_mul(shape.max_context).min(affordable.unwrap_or(usize::MAX));
        // A cache that cannot hold a small session is refused with the numbers of one that could.
        let kv_tokens = self.kv_tokens.unwrap_or(default.max(shape.max_context.min(512)));
        if affordable.is_some_and(|affordable| kv_tokens > affordable) {
            return Err(StartError::Memory {
                weight_bytes: shape.weight_bytes,
                kv_tokens,
                kv_bytes: (kv_tokens as u64).saturating_mul(per_token),
                limit: self.memory_limit.unwrap_or(u64::MAX),
            });
        }
        at_least("kv tokens", kv_tokens, 2)?;
        Ok(kv_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> ModelShape {
        ModelShape {
            name: "m".into(),
            fingerprint: String::new(),
            vocab_size: 4,
            max_context: 1000,
            weight_bytes: 10 << 20,
            kv_bytes_per_token: 1 << 10,
            device: "cpu".into(),
        }
    }

    #[test]
    fn the_default_fills_what_is_allowed() {
        let config = RuntimeConfig { memory_limit: Some(12 << 20), ..RuntimeConfig::default() };
        assert_eq!(config.kv_tokens_for(&shape()).unwrap(), 2048);
        let config = RuntimeConfig { memory_limit: Some(1 << 30), ..RuntimeConfig::default() };
        assert_eq!(config.kv_tokens_for(&shape()).unwrap(), 8000);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_numbers() {
        let config =
            RuntimeConfig { memory_limit: Some(12 << 20), kv_tokens: Some(4096), ..RuntimeConfig::default() };
        let text = config.kv_tokens_for(&shape()).unwrap_err().to_string();
        assert!(text.contains("10 MiB") && text.contains("4096") && text.contains("12 MiB"), "{text}");
        let config = RuntimeConfig { memory_limit: Some(5 << 20), ..RuntimeConfig::default() };
        assert!(config.kv_tokens_for(&shape()).is_err());
    }
}
