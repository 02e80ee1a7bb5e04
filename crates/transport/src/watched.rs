//! Values that are made of files and made again when the files change: certificates, keys, lists of API keys.
//!
//! Contents are compared, not times: a Kubernetes Secret changes by a symbolic link, and a file system may have coarse
//! clocks. A value that cannot be made leaves the old one in use: a slip in a rotation must not end a service.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use crate::error::TransportError;

/// How often files are looked at unless told otherwise.
pub(crate) const RELOAD_PERIOD: Duration = Duration::from_secs(30);

/// Nobody looks more often, whatever is asked for.
const SHORTEST_PERIOD: Duration = Duration::from_millis(1);

/// Largest file that is read: a bundle of all public CAs is a quarter of it.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file, and the flag that named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedFile {
    /// For messages, e.g. `--tls-cert`.
    pub flag: &'static str,
    /// Where it is.
    pub path: PathBuf,
}

impl WatchedFile {
    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self, reason: impl Into<String>) -> TransportError {
        TransportError::File { flag: self.flag, path: self.path.clone(), reason: reason.into() }
    }

    fn read(&self) -> Result<Vec<u8>, TransportError> {
        read(&self.path).map_err(|reason| self.problem(reason))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("it cannot be read: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut contents = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut contents).map_err(cannot)?;
    if contents.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it is larger than {MAX_FILE_BYTES} bytes; is it the right file?"));
    }
    Ok(contents)
}

/// A value and the files it is made of. Clones are handles to the same value; the files are followed until the last is
/// dropped.
pub struct Watched<T>(Arc<Inner<T>>);

struct Inner<T> {
    /// What it is, for the log.
    what: &'static str,
    files: Vec<WatchedFile>,
    current: RwLock<Arc<T>>,
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Without the value: it may be a secret.
impl<T> std::fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("what", &self.0.what).field("files", &self.0.files).finish()
    }
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Makes `what` of the files, in their order, and again whenever one of them has other contents, looking every
    /// `period`. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// If a file cannot be read, or what `make` says.
    pub fn load<F>(
        what: &'static str,
        files: Vec<WatchedFile>,
        period: Duration,
        make: F,
    ) -> Result<Self, TransportError>
    where
        F: Fn(&[Vec<u8>]) -> Result<T, TransportError> + Send + Sync + 'static,
    {
        let contents = contents(&files)?;
        let current = RwLock::new(Arc::new(make(&contents)?));
        let inner = Arc::new(Inner { what, files, current });
        tokio::spawn(follow(Arc::downgrade(&inner), contents, period, make));
        Ok(Self(inner))
    }

    /// The newest value that could be made.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.0.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn contents(files: &[WatchedFile]) -> Result<Vec<Vec<u8>>, TransportError> {
    files.iter().map(WatchedFile::read).collect()
}

/// Reads twice, so that a pair of files is not taken from both sides of a rotation.
fn settled_contents(files: &[WatchedFile]) -> Option<Result<Vec<Vec<u8>>, TransportError>> {
    match (contents(files), contents(files)) {
        (Ok(first), Ok(second)) => (first == second).then_some(Ok(second)),
        (_, Err(error)) => Some(Err(error)),
        (Err(_), Ok(_)) => None,
    }
}

async fn follow<T, F>(watched: Weak<Inner<T>>, mut known: Vec<Vec<u8>>, period: Duration, make: F)
where
    T: Send + Sync + 'static,
    F: Fn(&[Vec<u8>]) -> Result<T, TransportError> + Send + Sync + 'static,
{
    let mut trouble = String::new();
    loop {
        tokio::time::sleep(period.max(SHORTEST_PERIOD)).await;
        let Some(inner) = watched.upgrade() else { return };
        let files = inner.files.clone();
        // A network file system may take its time.
        let Ok(Some(read)) = tokio::task::spawn_blocking(move || settled_contents(&files)).await else {
            continue;
        };
        let problem = match read {
            Ok(read) if read == known => {
                trouble.clear();
                continue;
            }
            Ok(read) => match make(&read) {
                Ok(value) => {
                    *inner.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                    known = read;
                    trouble.clear();
                    tracing::info!(what = inner.what, "files have changed: new ones are in use");
                    continue;
                }
                Err(problem) => problem,
            },
            Err(problem) => problem,
        };
        let problem = problem.to_string();
        if trouble != problem {
            tracing::warn!(
                what = inner.what,
                problem,
                "changed files cannot be used: the old ones stay in use"
            );
            trouble = problem;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const PERIOD: Duration = Duration::from_millis(5);

    fn number(contents: &[Vec<u8>]) -> Result<u32, TransportError> {
        let text = String::from_utf8_lossy(&contents[0]).into_owned();
        let file = WatchedFile { flag: "--number", path: "number".into() };
        text.trim().parse().map_err(|_| file.problem("it holds no number"))
    }

    async fn until(watched: &Watched<u32>, value: u32) {
        let begun = Instant::now();
        while *watched.current() != value {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} is not {value}", watched.current());
            tokio::time::sleep(PERIOD).await;
        }
    }

    #[tokio::test]
    async fn a_value_follows_its_file_and_outlives_a_bad_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        let file = WatchedFile { flag: "--number", path: path.clone() };
        let load = || Watched::load("a number", vec![file.clone()], PERIOD, number);
        let error = load().unwrap_err().to_string();
        assert!(error.starts_with("--number ") && error.contains("cannot be read"), "{error}");
        std::fs::write(&path, "x").unwrap();
        assert!(load().unwrap_err().to_string().ends_with("it holds no number"));

        std::fs::write(&path, "1").unwrap();
        let watched = load().unwrap();
        assert_eq!(*watched.current(), 1);
        std::fs::write(&path, "2").unwrap();
        until(&watched, 2).await;
        for bad in [Some("broken"), None] {
            match bad {
                Some(bad) => std::fs::write(&path, bad).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            tokio::time::sleep(PERIOD * 10).await;
            assert_eq!(*watched.current(), 2);
        }
        std::fs::write(&path, "3").unwrap();
        until(&watched, 3).await;
    }

    #[test]
    fn a_file_that_is_far_too_large_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        std::fs::write(&path, vec![0; 1 + MAX_FILE_BYTES as usize]).unwrap();
        assert!(read(&path).unwrap_err().contains("larger than 1048576 bytes"));
    }
}
