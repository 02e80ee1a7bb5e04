//! Hugging Face folders: `config.json`, the tokenizer's files, and `safetensors` weights.

use super::hf_config::HfConfig;
use super::raw::RawTensors;
use super::shards::Shards;
use super::{Found, LoadError, LoadOptions, LoadStage, Loaded, display_name, finish};
use crate::weights::{LayerPart, Part};
use foretoken_text::{HfFiles, Tokenizer};
use serde::Deserialize;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Loads a folder, or the `safetensors` file at `path` with the other files beside it.
pub(super) fn load(
    path: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadStage),
) -> Result<Loaded, LoadError> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let config_path = folder.join("config.json");
    let config: HfConfig = parse(&config_path, &read(&config_path)?)?;
    let shards = if path.is_dir() { Shards::of_folder(path)? } else { Shards::single(path.to_owned()) };
    let tensors = shards.open()?;
    let family = config.family()?;
    let name_of: fn(Part) -> String = if family.post_norms() { name_with_post_norms } else { name_of };
    let (tied, sliding_window) = (config.tied(), config.sliding_window());
    let tensors = RawTensors::new(tensors.0, tensors.1, name_of);
    let mut tensors = tensors.with_norm_offset(family.hf_norm_offset());
    if tied {
        // Some writers store the shared matrix under both names.
        tensors.ignore(&name_of(Part::Head));
    }
    let found = Found {
        name: display_name(path),
        config: config.into_config()?,
        sliding_window,
        tied,
        tokenizer: tokenizer(folder)?,
        files: shards.files,
    };
    for layer in 0..found.config.layers {
        // Computed from the configuration; old files store it too.
        tensors.ignore(&format!("model.layers.{layer}.self_attn.rotary_emb.inv_freq"));
    }
    finish(found, tensors, options, progress)
}

/// The names in models with four norms a layer, where one of Llama's has another meaning.
fn name_with_post_norms(part: Part) -> String {
    if let Part::Layer(layer, LayerPart::FeedForwardNorm) = part {
        return format!("model.layers.{layer}.pre_feedforward_layernorm.weight");
    }
    name_of(part)
}

fn name_of(part: Part) -> String {
    let (layer, part) = match part {
        Part::Embedding => return "model.embed_tokens.weight".to_owned(),
        Part::FinalNorm => return "model.norm.weight".to_owned(),
        Part::Head => return "lm_head.weight".to_owned(),
        Part::Layer(layer, part) => (layer, part),
    };
    let part = match part {
        LayerPart::AttentionNorm => "input_layernorm.weight",
        LayerPart::Query => "self_attn.q_proj.weight",
        LayerPart::Key => "self_attn.k_proj.weight",
        LayerPart::Value => "self_attn.v_proj.weight",
        LayerPart::QueryBias => "self_attn.q_proj.bias",
        LayerPart::KeyBias => "self_attn.k_proj.bias",
        LayerPart::ValueBias => "self_attn.v_proj.bias",
        LayerPart::QueryNorm => "self_attn.q_norm.weight",
        LayerPart::KeyNorm => "self_attn.k_norm.weight",
        LayerPart::AttentionOutput => "self_attn.o_proj.weight",
        LayerPart::FeedForwardNorm | LayerPart::PostAttentionNorm => "post_attention_layernorm.weight",
        LayerPart::PostFeedForwardNorm => "post_feedforward_layernorm.weight",
        LayerPart::Gate => "mlp.gate_proj.weight",
        LayerPart::Up => "mlp.up_proj.weight",
        LayerPart::Down => "mlp.down_proj.weight",
    };
    format!("model.layers.{layer}.{part}")
}

fn tokenizer(folder: &Path) -> Result<Tokenizer, LoadError> {
    let optional = |name: &str| -> Result<Option<Vec<u8>>, LoadError> {
        let path = folder.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LoadError::io(&path)(error)),
        }
    };
    let template = optional("chat_template.jinja")?.map(String::from_utf8).transpose();
    let template = template.map_err(|error| {
        LoadError::format(&folder.join("chat_template.jinja"), format!("it is not UTF-8: {error}"))
    })?;
    Ok(Tokenizer::from_hf(HfFiles {
        tokenizer_json: read(&folder.join("tokenizer.json"))?,
        tokenizer_config_json: optional("tokenizer_config.json")?,
        generation_config_json: optional("generation_config.json")?,
        chat_template_jinja: template,
    })?)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    fs::read(path).map_err(LoadError::io(path))
}

pub(super) fn parse<T: for<'de> Deserialize<'de>>(path: &Path, json: &[u8]) -> Result<T, LoadError> {
    serde_json::from_slice(json).map_err(|error| LoadError::format(path, error.to_string()))
}
