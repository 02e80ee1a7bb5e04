//! `config.json` of a Hugging Face model, as far as the families built use it.

use super::LoadError;
use super::family::{Family, HF_NAMES};
use super::hf_rope::RopeFields;
use crate::compute::attention::Heads;
use crate::compute::rope::{Pairing, Scaling};
use crate::config::{Local, ModelConfig};
use serde::Deserialize;
use serde_json::Value;

/// Rotary base where a file does not state it, as those of the first Llama models.
const DEFAULT_THETA: f64 = 10_000.0;
/// The same in Gemma 3, for layers that see all positions.
const GEMMA_THETA: f64 = 1_000_000.0;

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
    hidden_activation: Option<String>,
    query_pre_attn_scalar: Option<f64>,
    rope_local_base_freq: Option<f64>,
    sliding_window_pattern: Option<usize>,
    attn_logit_softcapping: Option<f64>,
    final_logit_softcapping: Option<f64>,
    use_bidirectional_attention: Option<bool>,
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

fn default_eps() -> f64 {
    1e-6
}

impl HfConfig {
    /// Whether the embedding is the output head.
    pub(super) fn tied(&self) -> bool {
        let unless_said = Family::of_hf(&self.model_type).is_some_and(Family::hf_tied);
        self.tie_word_embeddings.unwrap_or(unless_said)
    }

    /// Positions attended over by layers that cannot be told to, where it is not all.
    pub(super) fn sliding_window(&self) -> Option<usize> {
        let family = Family::of_hf(&self.model_type);
        if family == Some(Family::Gemma3) {
            return None;
        }
        let unless_said = family.is_none_or(Family::window_by_width);
        self.sliding_window.filter(|_| self.use_sliding_window.unwrap_or(unless_said))
    }

    /// The common form, or the name of what the decoder does not have.
    pub(super) fn into_config(self) -> Result<ModelConfig, LoadError> {
        let family = self.family()?;
        self.refuse_the_unsupported(family)?;
        let query = self.num_attention_heads;
        let dim = match self.head_dim.or(family.hf_head_dim()) {
            Some(dim) => dim,
            None if query > 0 && self.hidden_size.is_multiple_of(query) => self.hidden_size / query,
            None => {
                let problem = format!("is {query}, which does not divide hidden_size {}", self.hidden_size);
                return Err(LoadError::field("num_attention_heads", problem));
            }
        };
        let local = self.local(family)?;
        let rope = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let rope = rope.map(|rope| rope.full_attention.as_deref().unwrap_or(rope));
        let scalar = self.query_pre_attn_scalar.filter(|_| family == Family::Gemma3).unwrap_or(dim as f64);
        let theta = rope.and_then(|rope| rope.rope_theta).or(self.rope_theta);
        let default_theta = if family == Family::Gemma3 { GEMMA_THETA } else { DEFAULT_THETA };
        let config = ModelConfig {
            layers: self.num_hidden_layers,
            hidden: self.hidden_size,
            feed_forward: self.intermediate_size,
            heads: Heads { query, key_value: self.num_key_value_heads.unwrap_or(query), dim },
            norm_eps: self.rms_norm_eps as f32,
            max_context: self.max_position_embeddings,
            pairing: Pairing::Halves,
            rope_dimensions: dim,
            rope_theta: theta.unwrap_or(default_theta),
            rope_scaling: rope
                .map_or(Ok(Scaling::None), |rope| rope.scaling(self.max_position_embeddings))?,
            biases: family.biases(),
            qk_norm: family.qk_norm(),
            embedding_scale: family.embedding_scale(self.hidden_size),
            attention_scale: 1.0 / (scalar as f32).sqrt(),
            gate: family.gate().0,
            post_norms: family.post_norms(),
            local,
        };
        config.check().map_err(|bad| LoadError::field(bad.field, bad.problem))?;
        Ok(config)
    }

    /// The family, or the name of what is none that is built.
    pub(super) fn family(&self) -> Result<Family, LoadError> {
        Family::of_hf(&self.model_type).ok_or_else(|| {
            let given = &self.model_type;
            LoadError::Unsupported(format!("model_type {given:?}; only {HF_NAMES} are built so far"))
        })
    }

    /// The layers that see the nearest positions only, of a family that has them.
    fn local(&self, family: Family) -> Result<Option<Local>, LoadError> {
        let Some(window) = self.sliding_window.filter(|_| family == Family::Gemma3) else { return Ok(None) };
        let full_every = match &self.layer_types {
            Some(kinds) => {
                let full = |kind: &String| kind == "full_attention";
                let every = kinds.iter().position(full).map_or(0, |first| first + 1);
                let pattern = |index: usize| every > 0 && (index + 1).is_multiple_of(every);
                if kinds.iter().enumerate().any(|(index, kind)| full(kind) != pattern(index)) {
                    return Err(LoadError::Unsupported(
                        "layer_types whose full_attention does not come at one distance".to_owned(),
                    ));
                }
                every
            }
            None => self.sliding_window_pattern.unwrap_or(family.full_every()),
        };
        let nested = self.rope_parameters.as_ref().and_then(|rope| rope.sliding_attention.as_deref());
        if let Some(kind) = nested.and_then(|rope| rope.rope_type.as_ref()).filter(|kind| *kind != "default")
        {
            return Err(LoadError::Unsupported(format!("rope scaling {kind:?} of sliding_attention layers")));
        }
        let theta = nested.and_then(|rope| rope.rope_theta).or(self.rope_local_base_freq);
        Ok(Some(Local { window, rope_theta: theta.unwrap_or(DEFAULT_THETA), full_every }))
    }

    fn refuse_the_unsupported(&self, family: Family) -> Result<(), LoadError> {
        let unsupported = |what: String| Err(LoadError::Unsupported(what));
        let act = family.gate().1;
        let given = [("hidden_act", &self.hidden_act), ("hidden_activation", &self.hidden_activation)];
        for (field, given) in given {
            if let Some(given) = given.as_deref().filter(|&given| given != act) {
                return unsupported(format!("{field} {given:?}, only {act:?} is in this family"));
            }
        }
        for (field, cap) in [
            ("attn_logit_softcapping", self.attn_logit_softcapping),
            ("final_logit_softcapping", self.final_logit_softcapping),
        ] {
            if let Some(cap) = cap {
                return unsupported(format!("{field} = {cap}"));
            }
        }
        for (field, set) in [
            // Not Qwen2's biases, which no field states: this one is on the output projection too.
            ("attention_bias", self.attention_bias),
            ("mlp_bias", self.mlp_bias),
            ("rope_interleaved", self.rope_interleaved),
            ("use_bidirectional_attention", self.use_bidirectional_attention),
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
        // Sliding layers of other families than Gemma are right as long as the window covers the context, which is
        // checked later.
        let window = self.sliding_window().is_some() || family == Family::Gemma3;
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
    fn gemma_has_layers_of_two_kinds() {
        let gemma = |changes: Value| {
            let mut all = json!({"model_type": "gemma3_text", "sliding_window": 512});
            all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            with(&all)
        };
        let silent = gemma(json!({})).unwrap();
        let local = |full_every| Some(Local { window: 512, rope_theta: 1e4, full_every });
        assert_eq!((silent.local, silent.rope_theta, silent.heads.dim), (local(6), 1e6, 256));
        assert_eq!((silent.attention_scale, silent.embedding_scale), (1.0 / 16.0, 8.0));
        let old =
            json!({"sliding_window_pattern": 2, "rope_local_base_freq": 1e4, "query_pre_attn_scalar": 4});
        let old = gemma(old).unwrap();
        assert_eq!((old.local, old.attention_scale), (local(2), 0.5));
        let kinds = |kinds: [&str; 3]| gemma(json!({"layer_types": kinds}));
        let (full, sliding) = ("full_attention", "sliding_attention");
        assert_eq!(kinds([sliding, full, sliding]).unwrap().local, local(2));
        assert_eq!(kinds([sliding; 3]).unwrap().local, local(0));
        assert!(kinds([full, sliding, full]).unwrap_err().to_string().contains("one distance"));
        for (changes, name) in [
            (json!({"final_logit_softcapping": 30.0}), "final_logit_softcapping"),
            (json!({"use_bidirectional_attention": true}), "use_bidirectional_attention"),
            (json!({"hidden_activation": "silu"}), "hidden_activation"),
            (json!({"rope_parameters": {"sliding_attention": {"rope_type": "yarn"}}}), "sliding_attention"),
        ] {
            let error = gemma(changes).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
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
            (json!({"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}), "longrope"),
            (json!({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}), "dynamic"),
            (json!({"rope_scaling": {"rope_type": "yarn"}}), "rope_scaling.factor"),
            (json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": false}}), "truncate"),
            (json!({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}), "low_freq_factor"),
            (json!({"num_attention_heads": 5}), "num_attention_heads"),
            (json!({"num_key_value_heads": 3}), "key-value heads"),
        ] {
            let error = with(&changes).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
    }
}
