//! Gets the files of a repository with the `hf-hub` crate, into the cache that all tools of the hub share.
//!
//! What is whole in that cache is used without asking the network. Where the hub is, what it needs to let one in and where
//! the cache is are the hub's own settings: `HF_ENDPOINT`, `HF_HOME`, and the token that its tools keep there.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo};
use indicatif::{MultiProgress, ProgressBar};

use super::super::pull::bar_style;
use super::files::{Files, INDEX, choose, shards};
use super::{Catalogue, HubName};

/// How often a broken download is taken up again.
const RETRIES: usize = 3;

impl Catalogue {
    /// The folder or file of a repository's model, fetched if it is not whole in the cache, or if it is wanted `anew`.
    pub(crate) fn resolve_hub(&self, name: &HubName, anew: bool) -> Result<PathBuf> {
        resolve(name, anew, &Cache::from_env(), ApiBuilder::from_env, &self.progress)
    }
}

fn resolve(
    name: &HubName,
    anew: bool,
    cache: &Cache,
    builder: impl FnOnce() -> ApiBuilder,
    progress: &MultiProgress,
) -> Result<PathBuf> {
    let cache = cache.repo(Repo::model(name.repository.clone()));
    if let Some(path) = cached(&cache, name).filter(|_| !anew) {
        return Ok(path);
    }
    let api = builder().with_progress(false).with_retries(RETRIES).build().context("cannot use the hub");
    let fetched = api.and_then(|api| {
        let repo = api.model(name.repository.clone());
        Fetch { api, repo, cache, anew, progress }.model(name)
    });
    fetched.with_context(|| {
        format!(
            "could not fetch {name} from the Hugging Face hub; if this machine cannot reach it, set HF_ENDPOINT to a \
             mirror, HF_HOME to a cache that has it, or give the path of a file or folder; if the repository is not \
             public, log in with the hub's own tools first",
        )
    })
}

/// The model of a repository as the cache has it, if it has all of it.
fn cached(cache: &CacheRepo, name: &HubName) -> Option<PathBuf> {
    if let Some(file) = &name.file {
        return cache.get(file);
    }
    let config = cache.get("config.json")?;
    cache.get("tokenizer.json")?;
    let whole = match cache.get(INDEX) {
        Some(index) => shards(&fs::read(index).ok()?).ok()?.iter().all(|shard| cache.get(shard).is_some()),
        None => cache.get("model.safetensors").is_some(),
    };
    config.parent().filter(|_| whole).map(PathBuf::from)
}

/// A repository being fetched.
struct Fetch<'a> {
    api: Api,
    repo: ApiRepo,
    cache: CacheRepo,
    /// Whether to ask the hub for a newer state of files that are here.
    anew: bool,
    progress: &'a MultiProgress,
}

impl Fetch<'_> {
    /// The folder or file of the model, with all it needs.
    fn model(&self, name: &HubName) -> Result<PathBuf> {
        let has: Vec<String> = self.repo.info()?.siblings.into_iter().map(|file| file.rfilename).collect();
        match choose(name, &has)? {
            Files::Gguf(file) => self.file(&file),
            Files::Folder(files) => {
                let mut last = PathBuf::new();
                for file in files {
                    last = self.file(file)?;
                }
                if last.ends_with(INDEX) {
                    let index = fs::read(&last).with_context(|| format!("cannot read {}", last.display()))?;
                    for shard in shards(&index)? {
                        self.file(&shard)?;
                    }
                }
                Ok(last.parent().map(PathBuf::from).unwrap_or_default())
            }
        }
    }

    /// One file's place in the cache, fetched unless it is there.
    fn file(&self, file: &str) -> Result<PathBuf> {
        if let Some(here) = self.here(file)? {
            return Ok(here);
        }
        tracing::info!(url = self.repo.url(file), "downloading");
        let got = self.repo.download_with_progress(file, Bar::new(self.progress));
        got.with_context(|| format!("cannot fetch {file}"))
    }

    /// The file as the cache has it, if that will do.
    fn here(&self, file: &str) -> Result<Option<PathBuf>> {
        if !self.anew {
            return Ok(self.cache.get(file));
        }
        let now = self.api.metadata(&self.repo.url(file)).with_context(|| format!("cannot fetch {file}"))?;
        let path = self.cache.pointer_path(now.commit_hash()).join(file);
        Ok(Some(path).filter(|path| path.exists() && self.cache.blob_path(now.etag()).exists()))
    }
}

/// One file's progress.
struct Bar {
    bars: MultiProgress,
    bar: Option<ProgressBar>,
}

impl Bar {
    fn new(bars: &MultiProgress) -> Self {
        Self { bars: bars.clone(), bar: None }
    }
}

impl Progress for Bar {
    fn init(&mut self, size: usize, filename: &str) {
        let bar = self.bars.add(ProgressBar::new(size as u64));
        bar.set_style(bar_style());
        bar.set_prefix(format!("downloading {filename}"));
        bar.enable_steady_tick(Duration::from_millis(200));
        self.bar = Some(bar);
    }

    fn update(&mut self, size: usize) {
        if let Some(bar) = &self.bar {
            bar.inc(size as u64);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            self.bars.remove(&bar);
        }
    }
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
