//! Where drafts come from: one interface over a model and over n-grams.

use anyhow::{Context, bail};
use foretoken_engine::LatticeShape;
use foretoken_engine::ngram::NgramConfig;
use foretoken_proto::convert::narrow;
use foretoken_proto::{PROTOCOL_VERSION, v1};
use foretoken_runtime::Limits;
use foretoken_worker::Host;

use crate::args::{Args, DraftModel};
use crate::ngram::Ngram;
use crate::tables;

/// A kind of drafter, ready to open sessions.
#[derive(Debug, Clone)]
pub enum Source {
    /// A draft model in its runtime.
    Model(Host),
    /// Look-up in the text, and a table.
    Ngram(Ngram),
}

impl Source {
    /// The drafter that the flags ask for.
    pub(crate) async fn load(args: &Args) -> anyhow::Result<Self> {
        let (min_match, max_match) = (args.ngram_min_match, args.ngram_max_match);
        if min_match == 0 || min_match > max_match {
            bail!(
                "--ngram-min-match is {min_match}; it must be at least 1 and at most --ngram-max-match, {max_match}"
            );
        }
        let lattice =
            LatticeShape::new(args.lattice_k, args.lattice_n).context("--lattice-k and --lattice-n")?;
        match &args.model {
            DraftModel::Ngram => Ok(Self::Ngram(Ngram {
                config: NgramConfig { max_match, min_match, ..NgramConfig::default() },
                table: args
                    .ngram_table
                    .as_deref()
                    .filter(|name| !name.is_empty())
                    .map(tables::load)
                    .transpose()?,
                lattice,
                limits: Limits {
                    max_draft_len: args.model_args.max_draft_len,
                    max_sessions: args.model_args.max_sessions,
                    ..Limits::default()
                },
            })),
            DraftModel::Path(path) => {
                let (path, model) = (path.clone(), args.model_args.clone());
                let loading = tokio::task::spawn_blocking(move || Host::load(&path, &model, lattice));
                Ok(Self::Model(loading.await.context("the model's loader panicked")??))
            }
        }
    }

    /// What Describe says.
    #[must_use]
    pub fn description(&self, max_message_bytes: usize) -> v1::WorkerDescription {
        match self {
            Self::Model(host) => host.description(max_message_bytes),
            Self::Ngram(ngram) => v1::WorkerDescription {
                model: ngram.name().into(),
                tokenizer_fingerprint: ngram.tokenizer_fingerprint().into(),
                vocab_size: ngram.table.as_ref().map_or(0, |table| table.head().vocab_size),
                max_context: u32::MAX,
                device: "cpu".into(),
                protocol_version: PROTOCOL_VERSION,
                limits: Some(v1::WorkerLimits {
                    max_message_bytes: narrow(max_message_bytes),
                    max_draft_len: narrow(ngram.limits.max_draft_len),
                    max_window: narrow(ngram.limits.max_window),
                    max_sessions: narrow(ngram.limits.max_sessions),
                    ..v1::WorkerLimits::default()
                }),
                ..v1::WorkerDescription::default()
            },
        }
    }
}
