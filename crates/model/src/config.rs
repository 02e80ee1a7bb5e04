//! What a model of a supported family is, in one form for both file formats, and the checks both share.

use crate::compute::attention::Heads;
use crate::compute::rope::{Pairing, Scaling};
use foretoken_kernels::Gate;

/// The hyperparameters of a decoder. All families are one architecture with switches.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelConfig {
    /// Decoder layers.
    pub(crate) layers: usize,
    /// Width of the residual stream.
    pub(crate) hidden: usize,
    /// Width between the feed-forward projections.
    pub(crate) feed_forward: usize,
    /// Attention heads.
    pub(crate) heads: Heads,
    /// Added to the mean square in every norm.
    pub(crate) norm_eps: f32,
    /// Positions the model was made for.
    pub(crate) max_context: usize,
    /// Which components of a head are rotated together.
    pub(crate) pairing: Pairing,
    /// Components of a head that are rotated.
    pub(crate) rope_dimensions: usize,
    /// Base of the rotary frequencies.
    pub(crate) rope_theta: f64,
    /// How they are stretched.
    pub(crate) rope_scaling: Scaling,
    /// Whether the query, key and value projections each add a bias vector to their outputs, before
    /// any norm and before the rotation (Qwen2). The output projection and the feed-forward layers
    /// never do.
    pub(crate) biases: bool,
    /// Whether every head of the queries and of the keys is scaled to unit RMS and by one weight
    /// vector of the head's size, which all heads of a layer share, before the rotation (Qwen3).
    pub(crate) qk_norm: bool,
    /// What embeddings are multiplied by before the first layer (Gemma; 1 elsewhere).
    pub(crate) embedding_scale: f32,
    /// What the inner product of a query and a key is multiplied by.
    pub(crate) attention_scale: f32,
    /// What the gate of a feed-forward layer is put through.
    pub(crate) gate: Gate,
    /// Whether what attention and feed-forward give is normed before it is added (Gemma).
    pub(crate) post_norms: bool,
    /// Layers that see the nearest positions only, if there are any (Gemma).
    pub(crate) local: Option<Local>,
}

/// Layers that see the nearest positions only.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Local {
    /// Positions that a row sees there, its own among them.
    pub(crate) window: usize,
    /// Base of the rotary frequencies there, which are not stretched.
    pub(crate) rope_theta: f64,
    /// Of so many layers the last one sees all positions; of 0, none does.
    pub(crate) full_every: usize,
}

/// A value that no model has: the field's name, what it is, what it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadField {
    /// What the field is called in [`ModelConfig::check`]'s own words.
    pub(crate) field: &'static str,
    /// Its value and the limit.
    pub(crate) problem: String,
}

/// Above every real model; keeps products of two sizes far from overflow on 64-bit machines.
const MAX_SIZE: usize = 1 << 24;

impl ModelConfig {
    /// Positions that a row of a layer sees, where it is not all before it.
    pub(crate) fn window(&self, layer: usize) -> Option<usize> {
        let full = |local: &&Local| local.full_every > 0 && (layer + 1).is_multiple_of(local.full_every);
        self.local.as_ref().filter(|local| !full(local)).map(|local| local.window)
    }

    /// Refuses sizes that are zero, absurd, or do not divide as the layers need them to.
    pub(crate) fn check(&self) -> Result<(), BadField> {
        let sizes = [
            ("layer count", self.layers),
            ("hidden size", self.hidden),
            ("feed-forward size", self.feed_forward),
            ("attention head count", self.heads.query),
            ("key-value head count", self.heads.key_value),
            ("head size", self.heads.dim),
            ("context length", self.max_context),
            ("rotary dimension", self.rope_dimensions),
        ];
        let window = self.local.iter().map(|local| ("sliding window", local.window));
        for (field, value) in sizes.into_iter().chain(window) {
            if value == 0 || value > MAX_SIZE {
                return Err(BadField { field, problem: format!("is {value}, outside 1 to {MAX_SIZE}") });
            }
        }
        let Heads { query, key_value, dim } = self.heads;
        if !query.is_multiple_of(key_value) {
            let problem = format!("is {query}, which is no multiple of the {key_value} key-value heads");
            return Err(BadField { field: "attention head count", problem });
        }
        if !self.rope_dimensions.is_multiple_of(2) || self.rope_dimensions > dim {
            let problem =
                format!("is {}, which must be even and at most the head size {dim}", self.rope_dimensions);
            return Err(BadField { field: "rotary dimension", problem });
        }
        if !(self.norm_eps.is_finite() && self.norm_eps >= 0.0) {
            let problem = format!("is {}, which must be a small positive number", self.norm_eps);
            return Err(BadField { field: "norm epsilon", problem });
        }
        let bases = self.local.iter().map(|local| local.rope_theta).chain([self.rope_theta]);
        if let Some(theta) = bases.into_iter().find(|theta| !(theta.is_finite() && *theta > 1.0)) {
            let problem = format!("is {theta}, which must be above 1");
            return Err(BadField { field: "rotary base", problem });
        }
        if !(self.attention_scale.is_finite() && self.attention_scale > 0.0) {
            let problem = format!("is {}, which must be positive", self.attention_scale);
            return Err(BadField { field: "attention scale", problem });
        }
        self.check_scaling()
    }

    fn check_scaling(&self) -> Result<(), BadField> {
        let fits = match &self.rope_scaling {
            Scaling::None => true,
            Scaling::Linear { factor } => factor.is_finite() && *factor > 0.0,
            Scaling::Llama3 { factor, low, high, original_context } => {
                let all = [*factor, *low, *high, *original_context];
                all.iter().all(|v| v.is_finite() && *v > 0.0) && high > low
            }
            Scaling::Yarn { factor, fast, slow, original_context, magnitude } => {
                let all = [*factor, *fast, *slow, *original_context, *magnitude];
                all.iter().all(|v| v.is_finite() && *v > 0.0) && fast > slow
            }
            Scaling::Divisors(divisors) => {
                divisors.len() == self.rope_dimensions / 2
                    && divisors.iter().all(|d| d.is_finite() && *d > 0.0)
            }
        };
        if fits {
            return Ok(());
        }
        let problem =
            format!("is {:?}, whose numbers must be positive and fit the head size", self.rope_scaling);
        Err(BadField { field: "rotary scaling", problem })
    }

    /// Bytes that one position costs in the cache, over all layers.
    pub(crate) fn kv_bytes_per_token(&self) -> u64 {
        let floats = 2 * self.layers * self.heads.key_value_width();
        (floats * size_of::<f32>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ModelConfig {
        ModelConfig {
            layers: 2,
            hidden: 32,
            feed_forward: 64,
            heads: Heads { query: 4, key_value: 2, dim: 8 },
            norm_eps: 1e-5,
            max_context: 64,
            pairing: Pairing::Halves,
            rope_dimensions: 8,
            rope_theta: 1e4,
            rope_scaling: Scaling::None,
            biases: false,
            qk_norm: false,
            embedding_scale: 1.0,
            attention_scale: 0.35,
            gate: Gate::Silu,
            post_norms: false,
            local: None,
        }
    }

    #[test]
    fn a_sound_configuration_passes() {
        assert_eq!(config().check(), Ok(()));
        assert_eq!(config().kv_bytes_per_token(), 2 * 2 * 16 * 4);
    }

    fn local(window: usize, rope_theta: f64) -> Local {
        Local { window, rope_theta, full_every: 3 }
    }

    #[test]
    fn every_third_layer_sees_all_or_none_does() {
        let windows = |config: &ModelConfig| (0..6).map(|l| config.window(l)).collect::<Vec<_>>();
        let some = ModelConfig { local: Some(local(8, 1e4)), ..config() };
        assert_eq!(windows(&some), [Some(8), Some(8), None, Some(8), Some(8), None]);
        let all = ModelConfig { local: Some(Local { full_every: 0, ..local(8, 1e4) }), ..config() };
        assert_eq!(windows(&all), [Some(8); 6]);
        assert_eq!(windows(&config()), [None; 6]);
    }

    #[test]
    fn each_unsound_field_is_named() {
        let heads = Heads { query: 4, key_value: 2, dim: 8 };
        let cases = [
            (ModelConfig { layers: 0, ..config() }, "layer count"),
            (ModelConfig { hidden: usize::MAX, ..config() }, "hidden size"),
            (ModelConfig { heads: Heads { key_value: 3, ..heads }, ..config() }, "attention head count"),
            (ModelConfig { rope_dimensions: 7, ..config() }, "rotary dimension"),
            (ModelConfig { rope_dimensions: 10, ..config() }, "rotary dimension"),
            (ModelConfig { norm_eps: f32::NAN, ..config() }, "norm epsilon"),
            (ModelConfig { rope_theta: 0.0, ..config() }, "rotary base"),
            (ModelConfig { rope_scaling: Scaling::Divisors(vec![1.0]), ..config() }, "rotary scaling"),
            (ModelConfig { attention_scale: f32::INFINITY, ..config() }, "attention scale"),
            (ModelConfig { local: Some(local(0, 1e4)), ..config() }, "sliding window"),
            (ModelConfig { local: Some(local(8, 0.5)), ..config() }, "rotary base"),
        ];
        for (config, field) in cases {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }
}
