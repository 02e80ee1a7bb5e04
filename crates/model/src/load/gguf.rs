//! GGUF files: hyperparameters from the metadata, names of the tensors.

use super::container::{Container, ContainerError, Value};
use super::family::{Family, GGUF_NAMES};
use super::kinds::Layout;
use super::metadata::Metadata;
use super::raw::{Entry, RawTensors, WeightsFile};
use super::{Found, LoadError, LoadOptions, LoadStage, Loaded, display_name, finish};
use crate::compute::attention::Heads;
use crate::compute::rope::{Scaling, yarn_magnitude};
use crate::config::{Local, ModelConfig};
use crate::weights::{LayerPart, Part};
use foretoken_text::Tokenizer;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Layers of the one Gemma 3 that scales its queries in another way.
const GEMMA3_27B_LAYERS: usize = 62;
/// One divisor per rotary pair, in the files of Llama 3.
const ROPE_DIVISORS: &str = "rope_freqs.weight";

/// Loads the GGUF file at `path`.
pub(super) fn load(
    path: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadStage),
) -> Result<Loaded, LoadError> {
    let file = File::open(path).map_err(LoadError::io(path))?;
    let size = file.metadata().map_err(LoadError::io(path))?.len();
    let container = Container::read(BufReader::new(&file), size).map_err(|error| match error {
        ContainerError::Io(source) => LoadError::io(path)(source),
        ContainerError::Damaged(problem) => LoadError::format(path, problem),
    })?;
    let Container { metadata, tensors, data_start } = container;
    let mut metadata = Metadata(metadata);
    let (family, prefix) = metadata.family()?;
    metadata.refuse_the_unsupported(&prefix)?;
    let entries = tensors
        .into_iter()
        .map(|(name, entry)| {
            let start = data_start.saturating_add(entry.offset);
            let layout = Layout::of(entry.kind);
            (name, Entry { dims: entry.dims, layout, file: 0, start })
        })
        .collect();
    let mut tensors = RawTensors::new(vec![WeightsFile { file, size }], entries, name_of);
    let mut config = metadata.config(family, &prefix)?;
    if let Some(divisors) = tensors.named_vector(ROPE_DIVISORS)? {
        config.rope_scaling = match config.rope_scaling {
            Scaling::None => Scaling::Divisors(divisors),
            other => {
                let both = format!("{ROPE_DIVISORS} together with the rope scaling {other:?}");
                return Err(LoadError::Unsupported(both));
            }
        };
    }
    config.check().map_err(|bad| LoadError::field(bad.field, bad.problem))?;
    let found = Found {
        name: display_name(path),
        config,
        sliding_window: metadata.sliding_window(&prefix)?.filter(|_| family != Family::Gemma3),
        tied: !tensors.has(Part::Head),
        tokenizer: Tokenizer::from_gguf(metadata.vocabulary()?)?,
        files: vec![path.to_owned()],
    };
    finish(found, tensors, options, progress)
}

fn name_of(part: Part) -> String {
    let (layer, part) = match part {
        Part::Embedding => return "token_embd.weight".to_owned(),
        Part::FinalNorm => return "output_norm.weight".to_owned(),
        Part::Head => return "output.weight".to_owned(),
        Part::Layer(layer, part) => (layer, part),
    };
    let part = match part {
        LayerPart::AttentionNorm => "attn_norm.weight",
        LayerPart::Query => "attn_q.weight",
        LayerPart::Key => "attn_k.weight",
        LayerPart::Value => "attn_v.weight",
        LayerPart::QueryBias => "attn_q.bias",
        LayerPart::KeyBias => "attn_k.bias",
        LayerPart::ValueBias => "attn_v.bias",
        LayerPart::QueryNorm => "attn_q_norm.weight",
        LayerPart::KeyNorm => "attn_k_norm.weight",
        LayerPart::AttentionOutput => "attn_output.weight",
        LayerPart::PostAttentionNorm => "post_attention_norm.weight",
        LayerPart::PostFeedForwardNorm => "post_ffw_norm.weight",
        LayerPart::FeedForwardNorm => "ffn_norm.weight",
        LayerPart::Gate => "ffn_gate.weight",
        LayerPart::Up => "ffn_up.weight",
        LayerPart::Down => "ffn_down.weight",
    };
    format!("blk.{layer}.{part}")
}

impl Metadata {
    /// The family, and the prefix of the keys that are its own.
    fn family(&self) -> Result<(Family, String), LoadError> {
        let architecture = self.text("general.architecture")?;
        match Family::of_gguf(architecture) {
            Some(family) => Ok((family, architecture.to_owned())),
            None => Err(LoadError::Unsupported(format!(
                "architecture {architecture:?}; only {GGUF_NAMES} are built so far"
            ))),
        }
    }

    fn refuse_the_unsupported(&self, prefix: &str) -> Result<(), LoadError> {
        if self.size_or_none("split.count")?.is_some_and(|count| count > 1) {
            return Err(LoadError::Unsupported("a GGUF file split in parts; merge them first".to_owned()));
        }
        let experts = format!("{prefix}.expert_count");
        if self.size_or_none(&experts)?.is_some_and(|count| count > 0) {
            return Err(LoadError::Unsupported(format!("a mixture of experts ({experts})")));
        }
        // Each changes the arithmetic in a way the decoder does not have.
        for (key, neutral) in [
            ("attention.scale", 0.0),
            ("attention.clamp_kqv", 0.0),
            ("attention.max_alibi_bias", 0.0),
            ("logit_scale", 1.0),
            ("residual_scale", 1.0),
            ("embedding_scale", 1.0),
            ("attn_logit_softcapping", 0.0),
            ("final_logit_softcapping", 0.0),
            ("rope.scaling.attn_factor", 1.0),
            ("rope.scaling.yarn_attn_factor", 1.0),
            ("rope.scaling.yarn_log_multiplier", 0.0),
        ] {
            let key = format!("{prefix}.{key}");
            if let Some(value) = self.number(&key)?.filter(|&value| value != neutral && value != 0.0) {
                return Err(LoadError::Unsupported(format!("{key} of {value}")));
            }
        }
        for (key, plain) in [("use_parallel_residual", false), ("attention.causal", true)] {
            let key = format!("{prefix}.{key}");
            if self.0.get(&key).is_some_and(|value| *value != Value::Bool(plain)) {
                return Err(LoadError::Unsupported(format!("{key} other than {plain}")));
            }
        }
        Ok(())
    }

    fn config(&self, family: Family, prefix: &str) -> Result<ModelConfig, LoadError> {
        let key = |name: &str| format!("{prefix}.{name}");
        let hidden = self.size(&key("embedding_length"))?;
        let query = self.size(&key("attention.head_count"))?;
        let dim = match self.size_or_none(&key("attention.key_length"))? {
            Some(dim) => dim,
            None if query > 0 && hidden.is_multiple_of(query) => hidden / query,
            None => {
                let problem = format!("is {query}, which does not divide {prefix}.embedding_length {hidden}");
                return Err(LoadError::field(key("attention.head_count"), problem));
            }
        };
        if let Some(value) = self.size_or_none(&key("attention.value_length"))?.filter(|&v| v != dim) {
            return Err(LoadError::Unsupported(format!("values of {value} components beside keys of {dim}")));
        }
        let layers = self.size(&key("block_count"))?;
        // The largest Gemma 3 divides by the width of the stream a head, which its files do not say.
        let by_width = family == Family::Gemma3 && layers == GEMMA3_27B_LAYERS;
        let scalar = if by_width { hidden.checked_div(query).unwrap_or(dim) } else { dim };
        Ok(ModelConfig {
            layers,
            hidden,
            feed_forward: self.size(&key("feed_forward_length"))?,
            heads: Heads {
                query,
                key_value: self.size_or_none(&key("attention.head_count_kv"))?.unwrap_or(query),
                dim,
            },
            norm_eps: self.required_number(&key("attention.layer_norm_rms_epsilon"))? as f32,
            max_context: self.size(&key("context_length"))?,
            pairing: family.gguf_pairing(),
            rope_dimensions: self.size_or_none(&key("rope.dimension_count"))?.unwrap_or(dim),
            rope_theta: self.number(&key("rope.freq_base"))?.unwrap_or(10_000.0),
            rope_scaling: self.rope_scaling(prefix)?,
            biases: family.biases(),
            qk_norm: family.qk_norm(),
            embedding_scale: family.embedding_scale(hidden),
            attention_scale: 1.0 / (scalar as f32).sqrt(),
            gate: family.gate().0,
            post_norms: family.post_norms(),
            local: self.local(family, prefix)?,
        })
    }

    /// The window of attention, in families whose layers all have it or all see everything.
    fn sliding_window(&self, prefix: &str) -> Result<Option<usize>, LoadError> {
        let window = self.size_or_none(&format!("{prefix}.attention.sliding_window"))?;
        Ok(window.filter(|&window| window > 0))
    }

    /// The layers that see the nearest positions only, of a family that has them.
    fn local(&self, family: Family, prefix: &str) -> Result<Option<Local>, LoadError> {
        if family != Family::Gemma3 {
            return Ok(None);
        }
        let window = self.size(&format!("{prefix}.attention.sliding_window"))?;
        let key = |name: &str| format!("{prefix}.{name}");
        let full_every = self.size_or_none(&key("attention.sliding_window_pattern"))?;
        let rope_theta = self.number(&key("rope.freq_base_swa"))?;
        Ok(Some(Local {
            window,
            rope_theta: rope_theta.unwrap_or(10_000.0),
            full_every: full_every.unwrap_or(family.full_every()),
        }))
    }

    fn rope_scaling(&self, prefix: &str) -> Result<Scaling, LoadError> {
        let key = |name: &str| format!("{prefix}.rope.{name}");
        let factor = match self.number(&key("scaling.factor"))? {
            Some(factor) => Some(factor),
            None => self.number(&key("scale_linear"))?,
        };
        let kind = match self.0.get(&key("scaling.type")) {
            Some(_) => self.text(&key("scaling.type"))?,
            None if factor.is_some() => "linear",
            None => "none",
        };
        match (kind, factor) {
            ("none", _) | ("linear", None) => Ok(Scaling::None),
            // Files write a factor of 0 or 1 for none.
            ("linear", Some(factor)) if factor == 0.0 || factor == 1.0 => Ok(Scaling::None),
            ("linear", Some(factor)) => Ok(Scaling::Linear { factor }),
            ("yarn", Some(factor)) => {
                if let Some(mix) = self.number(&key("scaling.yarn_ext_factor"))?.filter(|&mix| mix != 1.0) {
                    let name = key("scaling.yarn_ext_factor");
                    return Err(LoadError::Unsupported(format!("{name} of {mix}")));
                }
                let context = match self.number(&key("scaling.original_context_length"))? {
                    Some(context) => context,
                    None => self.size(&format!("{prefix}.context_length"))? as f64,
                };
                Ok(Scaling::Yarn {
                    factor,
                    fast: self.number(&key("scaling.yarn_beta_fast"))?.unwrap_or(32.0),
                    slow: self.number(&key("scaling.yarn_beta_slow"))?.unwrap_or(1.0),
                    original_context: context,
                    magnitude: yarn_magnitude(factor, 1.0),
                })
            }
            (other, _) => Err(LoadError::Unsupported(format!("rope scaling {other:?}"))),
        }
    }
}
