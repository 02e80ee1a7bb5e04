//! The rotary part of `config.json`: how frequencies are stretched, or the name of a way that is not built.

use super::LoadError;
use crate::compute::rope::{Scaling, yarn_magnitude};
use serde::Deserialize;

/// `rope_scaling`, or `rope_parameters` as newer files call it.
#[derive(Debug, Deserialize)]
pub(super) struct RopeFields {
    /// In models with layers of two kinds: the same for each.
    pub(super) full_attention: Option<Box<RopeFields>>,
    pub(super) sliding_attention: Option<Box<RopeFields>>,
    rope_type: Option<String>,
    /// What older files call it; some have both.
    #[serde(rename = "type")]
    older_type: Option<String>,
    pub(super) rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    pub(super) partial_rotary_factor: Option<f64>,
    attention_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
}

impl RopeFields {
    /// The name of the way that frequencies are stretched, if any is given.
    pub(super) fn kind(&self) -> Option<&str> {
        self.rope_type.as_deref().or(self.older_type.as_deref())
    }

    /// `context` is what the model was made for.
    pub(super) fn scaling(&self, context: usize) -> Result<Scaling, LoadError> {
        let need = |field: &str, value: Option<f64>| {
            value.ok_or_else(|| LoadError::field(format!("rope_scaling.{field}"), "is missing"))
        };
        match self.kind() {
            None | Some("default") => Ok(Scaling::None),
            Some("linear") => Ok(Scaling::Linear { factor: need("factor", self.factor)? }),
            Some("llama3") => Ok(Scaling::Llama3 {
                factor: need("factor", self.factor)?,
                low: need("low_freq_factor", self.low_freq_factor)?,
                high: need("high_freq_factor", self.high_freq_factor)?,
                original_context: need(
                    "original_max_position_embeddings",
                    self.original_max_position_embeddings,
                )?,
            }),
            Some("yarn") if self.truncate == Some(false) => {
                Err(LoadError::Unsupported("rope_scaling.truncate = false".to_owned()))
            }
            Some("yarn") => {
                let factor = need("factor", self.factor)?;
                let by_strength = match (self.mscale, self.mscale_all_dim) {
                    (Some(one), Some(all)) if one != 0.0 && all != 0.0 => {
                        yarn_magnitude(factor, one) / yarn_magnitude(factor, all)
                    }
                    _ => yarn_magnitude(factor, 1.0),
                };
                Ok(Scaling::Yarn {
                    factor,
                    fast: self.beta_fast.unwrap_or(32.0),
                    slow: self.beta_slow.unwrap_or(1.0),
                    original_context: self.original_max_position_embeddings.unwrap_or(context as f64),
                    magnitude: self.attention_factor.unwrap_or(by_strength),
                })
            }
            Some(other) => Err(LoadError::Unsupported(format!("rope scaling {other:?}"))),
        }
    }
}
