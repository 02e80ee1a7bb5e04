//! A model in its runtime, with the tokenizer of its files.

use std::path::Path;

use foretoken_engine::LatticeShape;
use foretoken_engine::ledger::PassTime;
use foretoken_model::{LoadError, load};
use foretoken_proto::convert::narrow;
use foretoken_proto::{PROTOCOL_VERSION, v1};
use foretoken_runtime::decoder::Decoder;
use foretoken_runtime::{Runtime, RuntimeConfig, StartError};
use foretoken_text::Tokenizer;

use crate::args::ModelArgs;
use crate::warm_up::warm_up;

/// What a worker with a model serves.
#[derive(Debug, Clone)]
pub struct Host {
    /// The model at work.
    pub runtime: Runtime,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// What its passes took before it served.
    pass_times: Vec<PassTime>,
}

/// Why a model could not be put to work.
#[derive(Debug)]
pub enum HostError {
    /// The files.
    Load(LoadError),
    /// The memory, or a setting.
    Start(StartError),
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Load(error) => error.source(),
            Self::Start(error) => error.source(),
        }
    }
}

impl Host {
    /// Loads the model at `path` and starts its thread. Blocks while it reads the weights.
    ///
    /// `lattice` shapes the model's proposals if it drafts.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn load(path: &Path, args: &ModelArgs, lattice: LatticeShape) -> Result<Self, HostError> {
        let config = RuntimeConfig { lattice, ..args.runtime_config() };
        let mut step = None;
        let loaded = load(path, &args.load_options(), &mut |stage| {
            if step.replace(stage.step) != Some(stage.step) {
                tracing::info!(path = %path.display(), bytes = stage.total, "{}", stage.step);
            }
        })
        .map_err(HostError::Load)?;
        Self::start_warm(loaded.decoder, loaded.tokenizer, &config).map_err(HostError::Start)
    }

    /// Runs and times some passes of a decoder, then starts its thread.
    ///
    /// # Errors
    /// See [`start`](Self::start). A pass that fails is none: the first request will tell whoever asks.
    pub fn start_warm<D: Decoder>(
        mut decoder: D,
        tokenizer: Tokenizer,
        config: &RuntimeConfig,
    ) -> Result<Self, StartError> {
        let pass_times = warm_up(&mut decoder).unwrap_or_else(|error| {
            tracing::warn!(%error, "the first pass failed");
            Vec::new()
        });
        Ok(Self { pass_times, ..Self::start(decoder, tokenizer, config)? })
    }

    /// Starts a decoder's thread. What its passes take is not measured.
    ///
    /// # Errors
    /// If weights and KV cache do not fit the memory allowed, or a setting cannot work.
    pub fn start<D: Decoder>(
        decoder: D,
        tokenizer: Tokenizer,
        config: &RuntimeConfig,
    ) -> Result<Self, StartError> {
        let runtime = Runtime::start(decoder, config)?;
        let shape = runtime.shape();
        tracing::info!(
            model = shape.name,
            vocab_size = shape.vocab_size,
            max_context = shape.max_context,
            kv_tokens = runtime.kv_tokens(),
            device = shape.device,
            "model ready"
        );
        Ok(Self { runtime, tokenizer, pass_times: Vec::new() })
    }

    /// What Describe says.
    #[must_use]
    pub fn description(&self, max_message_bytes: usize) -> v1::WorkerDescription {
        let (shape, limits) = (self.runtime.shape(), self.runtime.limits());
        v1::WorkerDescription {
            model: shape.name.clone(),
            model_fingerprint: shape.fingerprint.clone(),
            tokenizer_fingerprint: self.tokenizer.fingerprint().to_owned(),
            vocab_size: narrow(shape.vocab_size),
            max_context: narrow(shape.max_context),
            device: shape.device.clone(),
            protocol_version: PROTOCOL_VERSION,
            limits: Some(v1::WorkerLimits {
                max_message_bytes: narrow(max_message_bytes),
                max_draft_len: narrow(limits.max_draft_len),
                max_window: narrow(limits.max_window),
                max_sessions: narrow(limits.max_sessions),
                kv_tokens: self.runtime.kv_tokens() as u64,
                max_grant: narrow(limits.max_grant),
            }),
            pass_times: self.pass_times.iter().copied().map(v1::PassTime::from).collect(),
        }
    }
}
