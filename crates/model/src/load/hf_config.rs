//! `config.json` of a Hugging Face model, as far as the families built use it.

use super::LoadError;
use super::family::Family;
use crate::compute::attention::Heads;
use crate::compute::rope::{Pairing, Scaling};
use crate::config::ModelConfig;
use serde::Deserialize;
use serde_json::Value;

/// Rotary base where a file does not state it, as those of the first Llama models.
const DEFAULT_THETA: f64 = 10_000.0;

/// The fields read; others do not change the arithmetic of these architectures.
#[derive(Debug, Deserialize)]
pub(super) struct HfConfig {
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: usize,
    #[serde(default = "default_eps")]
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeFields>,
    rope_parameters: Option<RopeFields>,
    tie_word_embeddings: Option<bool>,
    hidden_act: Option<String>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    rope_interleaved: Option<bool>,
    partial_rotary_factor: Option<f64>,
    num_local_experts: Option<usize>,
    num_experts: Option<usize>,
    dual_chunk_attention_config: Option<Value>,
    quantization_config: Option<Value>,
}

/// `rope_scaling`, or `rope_parameters` as newer files call it.
#[derive(Debug, Deserialize)]
struct RopeFields {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

fn default_eps() -> f64 {
    1e-6
}

impl HfConfig {
    /// Whether the embedding is the output head.
    pub(super) fn tied(&self) -> bool {
        self.tie_word_embeddings.unwrap_or(false)
    }

    /// Positions attended over, where it is not all.
    pub(super) fn sliding_window(&self) -> Option<usize> {
        let unless_said = Family::of_hf(&self.model_type).is_none_or(Family::window_by_width);
        self.sliding_window.filter(|_| self.use_sliding_window.unwrap_or(unless_said))
    }

    /// The common form, or the name of what the decoder does not have.
    pub(super) fn into_config(self) -> Result<ModelConfig, LoadError> {
        let family = self.family()?;
        self.refuse_the_unsupported()?;
        let query = self.num_attention_heads;
        let dim = match self.head_dim.or(family.hf_head_dim()) {
            Some(dim) => dim,
            None if query > 0 && self.hidden_size.is_multiple_of(query) => self.hidden_size / query,
            None => {
                let problem = format!("is {query}, which does not divide hidden_size {}", self.hidden_size);
                return Err(LoadError::field("num_attention_heads", problem));
            }
        };
        let rope = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let theta = rope.and_then(|rope| rope.rope_theta).or(self.rope_theta).unwrap_or(DEFAULT_THETA);
        let config = ModelConfig {
            layers: self.num_hidden_layers,
            hidden: self.hidden_size,
            feed_forward: self.intermediate_size,
            heads: Heads { query, key_value: self.num_key_value_heads.unwrap_or(query), dim },
            norm_eps: self.rms_norm_eps as f32,
            max_context: self.max_position_embeddings,
            pairing: Pairing::Halves,
            rope_dimensions: dim,
            rope_theta: theta,
            rope_scaling: rope.map_or(Ok(Scaling::None), RopeFields::scaling)?,
            biases: family.biases(),
            qk_norm: family.qk_norm(),
        };
        config.check().map_err(|bad| LoadError::field(bad.field, bad.problem))?;
        Ok(config)
    }

    fn family(&self) -> Result<Family, LoadError> {
        Family::of_hf(&self.model_type).ok_or_else(|| {
            LoadError::Unsupported(format!(
                "model_type {:?}; only \"llama\", \"mistral\", \"qwen2\" and \"qwen3\" are built so far",
                self.model_type
            ))
        })
    }

    fn refuse_the_unsupported(&self) -> Result<(), LoadError> {
        let unsupported = |what: String| Err(LoadError::Unsupported(what));
        if let Some(act) = self.hidden_act.as_deref().filter(|&act| act != "silu") {
            return unsupported(format!("hidden_act {act:?}, only \"silu\" is"));
        }
        for (field, set) in [
            // Not Qwen2's biases, which no field states: this one is on the output projection too.
            ("attention_bias", self.attention_bias),
            ("mlp_bias", self.mlp_bias),
            ("rope_interleaved", self.rope_interleaved),
        ] {
            if set == Some(true) {
                return unsupported(format!("{field} = true"));
            }
        }
        for (field, experts) in
            [("num_local_experts", self.num_local_experts), ("num_experts", self.num_experts)]
        {
            if let Some(experts) = experts.filter(|&experts| experts > 0) {
                return unsupported(format!("a mixture of experts ({field} = {experts})"));
            }
        }
        if self.dual_chunk_attention_config.as_ref().is_some_and(|config| !config.is_null()) {
            return unsupported("dual chunk attention (dual_chunk_attention_config)".to_owned());
        }
        // Sliding layers are right as long as the window covers the context, which is checked later.
        let window = self.sliding_window().is_some();
        let plain = |kind: &str| kind == "full_attention" || (kind == "sliding_attention" && window);
        if let Some(other) = self.layer_types.iter().flatten().find(|kind| !plain(kind)) {
            return unsupported(format!("layer_types with {other:?}"));
        }
        if self.quantization_config.as_ref().is_some_and(|config| !config.is_null()) {
            return unsupported("quantised safetensors (quantization_config); use a GGUF file".to_owned());
        }
        let nested = self.rope_parameters.as_ref().and_then(|rope| rope.partial_rotary_factor);
        if let Some(factor) = self.partial_rotary_factor.or(nested).filter(|&factor| factor != 1.0) {
            return unsupported(format!("partial_rotary_factor = {factor}"));
        }
        Ok(())
    }
}

impl RopeFields {
    fn scaling(&self) -> Result<Scaling, LoadError> {
        let need = |field: &str, value: Option<f64>| {
            value.ok_or_else(|| LoadError::field(format!("rope_scaling.{field}"), "is missing"))
        };
        match self.rope_type.as_deref() {
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
            Some(other) => Err(LoadError::Unsupported(format!("rope scaling {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(changes: &Value) -> Result<ModelConfig, LoadError> {
        let mut config = json!({
            "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 128,
        });
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        serde_json::from_value::<HfConfig>(config).unwrap().into_config()
    }

    #[test]
    fn absent_fields_have_the_family_defaults() {
        let config = with(&json!({})).unwrap();
        assert_eq!(config.heads, Heads { query: 4, key_value: 4, dim: 16 });
        assert_eq!((config.rope_theta, config.rope_scaling), (1e4, Scaling::None));
    }

    #[test]
    fn families_switch_biases_head_norms_and_the_head_size() {
        let switches = |model_type: &str| {
            let config = with(&json!({"model_type": model_type})).unwrap();
            (config.biases, config.qk_norm, config.heads.dim)
        };
        assert_eq!(switches("mistral"), (false, false, 16));
        assert_eq!(switches("qwen2"), (true, false, 16));
        assert_eq!(switches("qwen3"), (false, true, 128));
    }

    #[test]
    fn a_window_that_is_off_is_none() {
        let window = |model_type: &str, on: Option<bool>| {
            let config = json!({
                "model_type": model_type, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                "num_attention_heads": 4, "max_position_embeddings": 128, "sliding_window": 32,
                "use_sliding_window": on, "max_window_layers": 1,
            });
            serde_json::from_value::<HfConfig>(config).unwrap().sliding_window()
        };
        assert_eq!(window("qwen2", Some(false)), None);
        assert_eq!(window("qwen3", None), None);
        assert_eq!(window("qwen2", Some(true)), Some(32));
        assert_eq!(window("mistral", None), Some(32));
        assert_eq!(window("mistral", Some(false)), None);
    }

    #[test]
    fn both_spellings_of_rope_are_read() {
        let old = json!({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}});
        let new = json!({"rope_parameters": {"rope_type": "linear", "rope_theta": 500000, "factor": 2}});
        for changes in [old, new] {
            let config = with(&changes).unwrap();
            assert_eq!((config.rope_theta, config.rope_scaling), (5e5, Scaling::Linear { factor: 2.0 }));
        }
    }

    #[test]
    fn what_would_be_wrong_is_refused_by_name() {
        for (changes, name) in [
            (json!({"model_type": "qwen3_moe"}), "qwen3_moe"),
            (json!({"model_type": "qwen3", "attention_bias": true}), "attention_bias"),
            (json!({"model_type": "qwen2", "num_experts": 60}), "num_experts"),
            (json!({"model_type": "qwen2", "dual_chunk_attention_config": {"chunk_size": 8}}), "dual_chunk"),
            (json!({"layer_types": ["full_attention", "linear_attention"]}), "linear_attention"),
            (json!({"model_type": "qwen2", "layer_types": ["sliding_attention"]}), "sliding_attention"),
            (json!({"model_type": "mamba"}), "mamba"),
            (json!({"hidden_act": "gelu"}), "gelu"),
            (json!({"attention_bias": true}), "attention_bias"),
            (json!({"num_local_experts": 8}), "num_local_experts"),
            (json!({"quantization_config": {"bits": 4}}), "quantization_config"),
            (json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}), "yarn"),
            (json!({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}), "low_freq_factor"),
            (json!({"num_attention_heads": 5}), "num_attention_heads"),
            (json!({"num_key_value_heads": 3}), "key-value heads"),
        ] {
            let error = with(&changes).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
    }
}
