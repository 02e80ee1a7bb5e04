//! The fingerprint of a model: SHA-256 over its weights files, streamed.

use super::{LoadError, LoadStage, LoadStep};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Bytes hashed between two reports.
const CHUNK: usize = 1 << 20;

/// Lower-case hex SHA-256 over the bytes of all files, one behind the other.
pub(super) fn fingerprint(
    files: &[PathBuf],
    progress: &mut dyn FnMut(LoadStage),
) -> Result<String, LoadError> {
    let mut total = 0;
    for path in files {
        total += path.metadata().map_err(LoadError::io(path))?.len();
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut done = 0;
    for path in files {
        let mut file = File::open(path).map_err(LoadError::io(path))?;
        loop {
            let read = file.read(&mut buffer).map_err(LoadError::io(path))?;
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
            done += read as u64;
            progress(LoadStage { step: LoadStep::Fingerprint, done, total });
        }
    }
    let mut hex = String::with_capacity(64);
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_hashed_as_one() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&a, "ab").unwrap();
        std::fs::write(&b, "c").unwrap();
        let mut last = None;
        let hex = fingerprint(&[a, b], &mut |stage| last = Some(stage)).unwrap();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(last, Some(LoadStage { step: LoadStep::Fingerprint, done: 3, total: 3 }));
    }
}
