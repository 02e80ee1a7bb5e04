//! Reading a model from disk: GGUF files and Hugging Face folders with `safetensors` weights.
//!
//! Loading refuses what it does not know. An architecture, a rope scaling, a bias or any other
//! tensor that the decoder would leave out makes an error that names it, never a model that
//! answers slightly wrong.

mod container;
mod error;
mod family;
mod fingerprint;
mod gguf;
mod hf;
mod hf_config;
mod hf_rope;
mod kinds;
mod metadata;
mod raw;
mod shards;

pub use error::LoadError;

use crate::compute::rope::Ropes;
use crate::config::ModelConfig;
use crate::decoder::LlamaDecoder;
use crate::device::Device;
use crate::engine::{Engine, ModelDecoder};
use crate::fused::{FusedDecoder, FusedWeights};
use crate::graph::GraphDecoder;
use crate::weights::Weights;
use fingerprint::fingerprint;
use foretoken_kernels::{Cache, Precision, Team, Tier};
use foretoken_runtime::decoder::{Decoder, ModelShape};
use foretoken_text::Tokenizer;
use raw::RawTensors;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// What a caller may choose when loading a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Longest context to allow, where it is below the model's own.
    pub max_context: Option<usize>,
    /// Threads a pass may use; all processors where it is not set. Not for the graph engine, whose
    /// threads candle chooses.
    pub threads: Option<usize>,
    /// Where the model runs.
    pub device: Device,
    /// What runs it.
    pub engine: Engine,
    /// Instructions of the fused engine; the fastest of this machine where it is not set.
    pub tier: Option<Tier>,
    /// How keys and values are kept; halves only by the fused engine.
    pub kv_type: Precision,
}

/// A model ready to run, and the tokenizer from the same files.
#[derive(Debug)]
pub struct Loaded {
    /// The decoder.
    pub decoder: ModelDecoder,
    /// The tokenizer.
    pub tokenizer: Tokenizer,
}

/// How far loading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadStage {
    /// What is being done.
    pub step: LoadStep,
    /// Bytes of the step done.
    pub done: u64,
    /// Bytes of the step in all.
    pub total: u64,
}

/// The steps of loading that take time, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadStep {
    /// Hashing the weights file.
    Fingerprint,
    /// Reading the weights into memory.
    Weights,
}

impl fmt::Display for LoadStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fingerprint => "checking the weights",
            Self::Weights => "reading the weights",
        })
    }
}

/// Loads the model at `path`.
///
/// `path` is a `.gguf` file; a `.safetensors` file with `config.json` and `tokenizer.json` beside
/// it; or a folder that holds those two and `model.safetensors` or its shards with their index.
///
/// # Errors
/// If a file cannot be read, is damaged, holds a model this decoder would compute wrongly, or if
/// an option cannot be met, such as a device this build or this machine does not have.
pub fn load(
    path: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadStage),
) -> Result<Loaded, LoadError> {
    // Refused before the weights are read, which takes long.
    options.open_device()?;
    if is_gguf(path)? { gguf::load(path, options, progress) } else { hf::load(path, options, progress) }
}

/// What a format's loader has found before the large reads.
struct Found {
    name: String,
    config: ModelConfig,
    /// Attention beyond this many positions would be wrong.
    sliding_window: Option<usize>,
    tied: bool,
    tokenizer: Tokenizer,
    /// Files of the weights, in the order they are hashed.
    files: Vec<PathBuf>,
}

/// The checks and the work that do not depend on the format.
fn finish(
    found: Found,
    mut source: RawTensors,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadStage),
) -> Result<Loaded, LoadError> {
    let Found { name, config, sliding_window, tied, tokenizer, files } = found;
    let max_context = max_context(config.max_context, sliding_window, options)?;
    let threads = options.thread_count()?;
    let vocab_size = tokenizer.vocab_size();
    let rows = source.embedding_rows()?;
    if vocab_size > rows {
        return Err(LoadError::Vocabulary { tokens: vocab_size, rows });
    }
    let fingerprint = fingerprint(&files, progress)?;
    let (engine, device) = options.target(&source)?;
    let ropes = Ropes::new(&config);
    let mut shape = ModelShape {
        name,
        fingerprint,
        vocab_size,
        max_context,
        weight_bytes: 0,
        kv_bytes_per_token: config.kv_bytes_per_token(),
        device: options.device.to_string(),
    };
    let layers = config.layers;
    let decoder =
        if engine == Engine::Fused {
            let weights = source.take_all(|source| FusedWeights::take(source, config, tied), progress)?;
            shape.weight_bytes = weights.bytes();
            let cache = weights.cache_shape(options.kv_type);
            shape.kv_bytes_per_token = cache.position_bytes() as u64;
            let team = Team::new(options.tier.unwrap_or_else(Tier::detect), threads);
            let team = team.map_err(|error| threads_refused(threads, error.to_string()))?;
            ModelDecoder::Fused(FusedDecoder::new(shape, weights, ropes, team, Cache::new(cache)))
        } else {
            let weights = source.take_all(|source| Weights::take(source, config, tied), progress)?;
            shape.weight_bytes = weights.bytes();
            if engine == Engine::Graph {
                let uploaded = GraphDecoder::new(shape, weights, ropes, &device);
                ModelDecoder::Graph(uploaded.map_err(|error| {
                    options.device.refused(format!("could not take the weights: {error}"))
                })?)
            } else {
                ModelDecoder::Reference(LlamaDecoder::new(shape, weights, ropes, thread_pool(threads)?))
            }
        };
    let shape = decoder.shape();
    tracing::debug!(
        name = %shape.name,
        layers,
        max_context,
        device = %options.device,
        ?engine,
        "model loaded"
    );
    Ok(Loaded { decoder, tokenizer })
}

impl LoadOptions {
    /// The engine meant for these weights, and its device.
    fn target(&self, source: &RawTensors) -> Result<(Engine, candle_core::Device), LoadError> {
        let device = self.open_device()?;
        let engine = match (self.engine, self.device) {
            (Engine::Auto, Device::Cpu) if source.all_have_kernels() => Engine::Fused,
            (Engine::Auto, Device::Cpu) => Engine::Reference,
            (Engine::Auto, _) => Engine::Graph,
            (engine, _) => engine,
        };
        if engine != Engine::Fused && self.kv_type != Precision::F32 {
            return Err(LoadError::KvType { kv_type: self.kv_type, engine });
        }
        Ok((engine, device))
    }

    /// The device, unless the engine is not for it.
    fn open_device(&self) -> Result<candle_core::Device, LoadError> {
        let host_only = matches!(self.engine, Engine::Fused | Engine::Reference);
        if host_only && self.device != Device::Cpu {
            return Err(self.device.refused("is run by the engines auto and graph only".to_owned()));
        }
        self.device.open()
    }

    fn thread_count(&self) -> Result<usize, LoadError> {
        let threads = self.threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get));
        if threads == 0 {
            return Err(threads_refused(threads, "it must be at least 1".to_owned()));
        }
        Ok(threads)
    }
}

fn max_context(model: usize, window: Option<usize>, options: &LoadOptions) -> Result<usize, LoadError> {
    let chosen = match options.max_context {
        Some(0) => {
            let problem = "it must be at least 1".to_owned();
            return Err(LoadError::Option { option: "max_context", value: 0, problem });
        }
        Some(limit) => model.min(limit),
        None => model,
    };
    match window {
        Some(window) if window < chosen => Err(LoadError::Unsupported(format!(
            "a sliding attention window of {window} positions, below the context of {chosen}; set the context to {window} or less"
        ))),
        _ => Ok(chosen),
    }
}

fn threads_refused(threads: usize, problem: String) -> LoadError {
    LoadError::Option { option: "threads", value: threads, problem }
}

fn thread_pool(threads: usize) -> Result<ThreadPool, LoadError> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("model-{index}"))
        .build()
        .map_err(|error| threads_refused(threads, error.to_string()))
}

/// Whether `path` is a file that starts as GGUF files do or is named as one.
fn is_gguf(path: &Path) -> Result<bool, LoadError> {
    if path.is_dir() {
        return Ok(false);
    }
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
        return Ok(true);
    }
    let mut magic = Vec::new();
    let file = File::open(path).map_err(LoadError::io(path))?;
    file.take(4).read_to_end(&mut magic).map_err(LoadError::io(path))?;
    Ok(magic == b"GGUF")
}

/// The file's own name without the extension, or the folder's; of a folder in the Hugging Face hub's cache the
/// repository's, for its own is a number.
fn display_name(path: &Path) -> String {
    if !path.is_dir() {
        let name = path.file_stem();
        return name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned());
    }
    // A folder may be given as a dot.
    let resolved = path.canonicalize();
    let path = resolved.as_deref().unwrap_or(path);
    let own = || path.file_name().map(|name| name.to_string_lossy().into_owned());
    hub_repository(path).or_else(own).unwrap_or_else(|| "model".to_owned())
}

/// `org/name` of `models--org--name/snapshots/COMMIT`.
fn hub_repository(snapshot: &Path) -> Option<String> {
    let snapshots = snapshot.parent().filter(|parent| parent.ends_with("snapshots"))?;
    let repository = snapshots.parent()?.file_name()?.to_str()?;
    Some(repository.strip_prefix("models--")?.replacen("--", "/", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_called_by_their_file_folder_or_repository() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("models--org--a--b").join("snapshots").join("0123");
        std::fs::create_dir_all(&snapshot).unwrap();
        assert_eq!(display_name(&snapshot), "org/a--b");
        assert_eq!(display_name(&snapshot.join("..")), "snapshots");
        assert_eq!(display_name(&snapshot.join("tiny.Q4_0.gguf")), "tiny.Q4_0");
    }

    #[test]
    fn the_context_is_the_smaller_of_both_and_within_the_window() {
        let with = |max_context| LoadOptions { max_context, ..LoadOptions::default() };
        assert_eq!(max_context(100, None, &with(None)).unwrap(), 100);
        assert_eq!(max_context(100, None, &with(Some(40))).unwrap(), 40);
        assert_eq!(max_context(100, None, &with(Some(400))).unwrap(), 100);
        assert_eq!(max_context(100, Some(40), &with(Some(40))).unwrap(), 40);
        assert!(max_context(100, None, &with(Some(0))).is_err());
        let refused = max_context(100, Some(40), &with(None)).unwrap_err().to_string();
        assert!(refused.contains("window of 40") && refused.contains("context of 100"), "{refused}");
    }
}
