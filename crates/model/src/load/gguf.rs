//! GGUF files: hyperparameters and vocabulary from the metadata, names of the tensors.

use super::container::{Container, ContainerError, Value};
use super::family::Family;
use super::kinds::Layout;
use super::raw::{Entry, RawTensors, WeightsFile};
use super::{Found, LoadError, LoadOptions, LoadStage, Loaded, display_name, finish};
use crate::compute::attention::Heads;
use crate::compute::rope::Scaling;
use crate::config::ModelConfig;
use crate::weights::{LayerPart, Part};
use foretoken_text::{GgufVocab, Tokenizer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

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
        sliding_window: metadata
            .size_or_none(&format!("{prefix}.attention.sliding_window"))?
            .filter(|&w| w > 0),
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
        LayerPart::FeedForwardNorm => "ffn_norm.weight",
        LayerPart::Gate => "ffn_gate.weight",
        LayerPart::Up => "ffn_up.weight",
        LayerPart::Down => "ffn_down.weight",
    };
    format!("blk.{layer}.{part}")
}

/// Typed access to metadata; errors name the key.
struct Metadata(BTreeMap<String, Value>);

impl Metadata {
    /// The family, and the prefix of the keys that are its own.
    fn family(&self) -> Result<(Family, String), LoadError> {
        let architecture = self.text("general.architecture")?;
        match Family::of_gguf(architecture) {
            Some(family) => Ok((family, architecture.to_owned())),
            None => Err(LoadError::Unsupported(format!(
                "architecture {architecture:?}; only \"llama\", \"qwen2\" and \"qwen3\" are built so far"
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
            ("rope.scaling.attn_factor", 1.0),
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
        Ok(ModelConfig {
            layers: self.size(&key("block_count"))?,
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
        })
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
            (other, _) => Err(LoadError::Unsupported(format!("rope scaling {other:?}"))),
        }
    }

    /// The tokenizer's part; its long lists are moved out.
    fn vocabulary(&mut self) -> Result<GgufVocab, LoadError> {
        let id = |key: &str| -> Result<Option<u32>, LoadError> {
            let Some(id) = self.size_or_none(key)? else { return Ok(None) };
            match u32::try_from(id) {
                // The writer's "none".
                Ok(u32::MAX) => Ok(None),
                Ok(id) => Ok(Some(id)),
                Err(_) => Err(LoadError::field(key, format!("is {id}, which is no token id"))),
            }
        };
        let (bos, eos) = (id("tokenizer.ggml.bos_token_id")?, id("tokenizer.ggml.eos_token_id")?);
        let eot = id("tokenizer.ggml.eot_token_id")?;
        let (unknown, padding) =
            (id("tokenizer.ggml.unknown_token_id")?, id("tokenizer.ggml.padding_token_id")?);
        let add_bos = match self.0.get("tokenizer.ggml.add_bos_token") {
            None => None,
            Some(Value::Bool(add)) => Some(*add),
            Some(other) => {
                return Err(LoadError::field(
                    "tokenizer.ggml.add_bos_token",
                    format!("is {other:?}, not a boolean"),
                ));
            }
        };
        let optional_text = |key: &str| self.0.contains_key(key).then(|| self.text(key)).transpose();
        let model = self.text("tokenizer.ggml.model")?.to_owned();
        let pre = optional_text("tokenizer.ggml.pre")?.map(str::to_owned);
        let chat_template = optional_text("tokenizer.chat_template")?.map(str::to_owned);
        let token_types = match self.0.remove("tokenizer.ggml.token_type") {
            None => Vec::new(),
            Some(Value::Integers(types)) => {
                types.into_iter().map(|t| i32::try_from(t).unwrap_or(0)).collect()
            }
            Some(_) => {
                return Err(LoadError::field("tokenizer.ggml.token_type", "is not a list of integers"));
            }
        };
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let merges = self.texts("tokenizer.ggml.merges")?;
        Ok(GgufVocab {
            model,
            pre,
            tokens,
            token_types,
            merges,
            bos,
            eos,
            eot,
            unknown,
            padding,
            add_bos,
            chat_template,
        })
    }

    /// Moves a list of texts out; absent is empty.
    fn texts(&mut self, key: &str) -> Result<Vec<String>, LoadError> {
        match self.0.remove(key) {
            None => Ok(Vec::new()),
            Some(Value::Texts(texts)) => Ok(texts),
            // Writers type an empty list as they like.
            Some(Value::Integers(list)) if list.is_empty() => Ok(Vec::new()),
            Some(_) => Err(LoadError::field(key, "is not a list of texts")),
        }
    }

    fn text(&self, key: &str) -> Result<&str, LoadError> {
        match self.0.get(key) {
            Some(Value::Text(text)) => Ok(text),
            Some(other) => Err(LoadError::field(key, format!("is {other:?}, not a text"))),
            None => Err(LoadError::field(key, "is missing")),
        }
    }

    fn size(&self, key: &str) -> Result<usize, LoadError> {
        self.size_or_none(key)?.ok_or_else(|| LoadError::field(key, "is missing"))
    }

    fn size_or_none(&self, key: &str) -> Result<Option<usize>, LoadError> {
        let size = match self.0.get(key) {
            None => return Ok(None),
            Some(Value::Unsigned(v)) => usize::try_from(*v).ok(),
            Some(Value::Signed(v)) => usize::try_from(*v).ok(),
            Some(_) => None,
        };
        size.map(Some).ok_or_else(|| LoadError::field(key, "is not a whole number from 0"))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Float(v)) => Ok(Some(*v)),
            Some(Value::Unsigned(v)) => Ok(Some(*v as f64)),
            Some(Value::Signed(v)) => Ok(Some(*v as f64)),
            Some(_) => Err(LoadError::field(key, "is not a number")),
        }
    }

    fn required_number(&self, key: &str) -> Result<f64, LoadError> {
        self.number(key)?.ok_or_else(|| LoadError::field(key, "is missing"))
    }
}
