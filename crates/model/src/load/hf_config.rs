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
        if family != Family::Gemma3 {
            return Ok(None);
        }
        let missing = || LoadError::field("sliding_window", "is missing");
        let window = self.sliding_window.ok_or_else(missing)?;
        let full_every = match &self.layer_types {
            Some(kinds) => {
                let (given, layers) = (kinds.len(), self.num_hidden_layers);
                if given != layers {
                    let problem = format!("has {given} entries for {layers} layers");
                    return Err(LoadError::field("layer_types", problem));
                }
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
        if let Some(kind) = nested.and_then(RopeFields::kind).filter(|&kind| kind != "default") {
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
mod tests;
