//! Hugging Face folders: `config.json`, the tokenizer's files, and `safetensors` weights.

use super::hf_config::HfConfig;
use super::kinds::Layout;
use super::raw::{Entry, RawTensors, WeightsFile};
use super::{Found, LoadError, LoadOptions, LoadStage, Loaded, display_name, finish};
use crate::weights::{LayerPart, Part};
use foretoken_text::{HfFiles, Tokenizer};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Longest header believed: that of a model of 100,000 tensors is a tenth of it.
const MAX_HEADER: u64 = 100 << 20;
/// Bytes of the header's length, in front of it.
const LENGTH_BYTES: usize = 8;

/// Loads a folder, or the `safetensors` file at `path` with the other files beside it.
pub(super) fn load(
    path: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadStage),
) -> Result<Loaded, LoadError> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let config_path = folder.join("config.json");
    let config: HfConfig = parse(&config_path, &read(&config_path)?)?;
    let files = if path.is_dir() { weights_files(path)? } else { vec![path.to_owned()] };
    let tensors = open(&files)?;
    let (tied, sliding_window) = (config.tied(), config.sliding_window());
    let mut tensors = RawTensors::new(tensors.0, tensors.1, name_of);
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
        files,
    };
    for layer in 0..found.config.layers {
        // Computed from the configuration; old files store it too.
        tensors.ignore(&format!("model.layers.{layer}.self_attn.rotary_emb.inv_freq"));
    }
    finish(found, tensors, options, progress)
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
        LayerPart::FeedForwardNorm => "post_attention_layernorm.weight",
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

/// The weights of a folder: one file, or the shards of an index in the order of their names.
fn weights_files(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let single = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    if single.exists() || !index.exists() {
        return Ok(vec![single]);
    }
    let names = parse::<Index>(&index, &read(&index)?)?.weight_map.into_values().collect::<BTreeSet<_>>();
    if names.is_empty() {
        return Err(LoadError::format(&index, "its weight_map is empty"));
    }
    names
        .into_iter()
        .map(|name| {
            // An index must not reach outside its folder.
            if Path::new(&name).file_name() == Some(name.as_ref()) {
                return Ok(folder.join(name));
            }
            Err(LoadError::format(&index, format!("its weight_map names {name:?}, which is no file name")))
        })
        .collect()
}

/// Opens weights files and merges their tensor tables.
fn open(paths: &[PathBuf]) -> Result<(Vec<WeightsFile>, BTreeMap<String, Entry>), LoadError> {
    let mut files = Vec::new();
    let mut entries = BTreeMap::new();
    for (index, path) in paths.iter().enumerate() {
        let mut file = File::open(path).map_err(LoadError::io(path))?;
        let size = file.metadata().map_err(LoadError::io(path))?.len();
        let header = header(path, &mut file, size)?;
        let data_start = (LENGTH_BYTES + header.len()) as u64;
        let Header { tensors, .. } = parse(path, &header)?;
        for (name, info) in tensors {
            check_extent(&name, &info)?;
            let layout = match info.dtype {
                Dtype::F32 => Ok(Layout::F32),
                Dtype::F16 => Ok(Layout::F16),
                Dtype::BF16 => Ok(Layout::Bf16),
                other => Err(format!("{other:?}")),
            };
            let start = data_start.saturating_add(info.data_offsets.0 as u64);
            let entry = Entry { dims: info.shape, layout, file: index, start };
            if entries.contains_key(&name) {
                return Err(LoadError::format(path, format!("tensor {name} is in another file too")));
            }
            entries.insert(name, entry);
        }
        files.push(WeightsFile { file, size });
    }
    Ok((files, entries))
}

/// A header, read without the `safetensors` crate's own checks: those want the whole file in memory,
/// and do not name the tensor.
#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    _notes: Option<IgnoredAny>,
    #[serde(flatten)]
    tensors: BTreeMap<String, TensorInfo>,
}

/// The header's JSON; nothing of the data.
fn header(path: &Path, file: &mut File, size: u64) -> Result<Vec<u8>, LoadError> {
    let mut length = [0; LENGTH_BYTES];
    let Some(left) = size.checked_sub(LENGTH_BYTES as u64) else {
        return Err(LoadError::format(path, format!("it is only {size} bytes long")));
    };
    file.read_exact(&mut length).map_err(LoadError::io(path))?;
    let declared = u64::from_le_bytes(length);
    if declared > left || declared > MAX_HEADER {
        let problem = format!("its header should be {declared} bytes long, and {left} bytes are left");
        return Err(LoadError::format(path, problem));
    }
    let mut header = Vec::new();
    file.take(declared).read_to_end(&mut header).map_err(LoadError::io(path))?;
    Ok(header)
}

/// Refuses a tensor whose place in the file is not as long as its shape needs.
fn check_extent(name: &str, info: &TensorInfo) -> Result<(), LoadError> {
    let (start, end) = info.data_offsets;
    let values = info.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let bits = values.and_then(|n| n.checked_mul(info.dtype.bitsize()));
    if bits.map(|bits| bits / 8) == end.checked_sub(start) {
        return Ok(());
    }
    let problem =
        format!("has the shape {:?} and lies at bytes {start} to {end}, which do not fit", info.shape);
    Err(LoadError::tensor(name, problem))
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    fs::read(path).map_err(LoadError::io(path))
}

fn parse<T: for<'de> Deserialize<'de>>(path: &Path, json: &[u8]) -> Result<T, LoadError> {
    serde_json::from_slice(json).map_err(|error| LoadError::format(path, error.to_string()))
}
