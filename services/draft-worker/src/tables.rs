//! Tables of n-grams: those that come with this program, by the name of the model they were counted for, and files.
//!
//! How the shipped ones were made is told beside them, in `tables/README.md`.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use foretoken_engine::ngram::Table;

/// Larger files are no tables but mistakes.
const MAX_BYTES: u64 = 1 << 32;

/// Models whose tables come with this program, and these.
const SHIPPED: [(&str, &[u8]); 1] =
    [("SmolLM2-135M-Instruct", include_bytes!("../tables/SmolLM2-135M-Instruct.ngram"))];

/// The models whose tables come with this program.
pub fn shipped() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// The table that a name or a path stands for. A file goes before a name.
///
/// # Errors
/// If there is neither, or it is no whole, undamaged table of this version.
pub fn load(name_or_path: &str) -> Result<Arc<Table>> {
    let path = Path::new(name_or_path);
    let bytes = match SHIPPED.iter().find(|(name, _)| name.eq_ignore_ascii_case(name_or_path)) {
        Some((_, bytes)) if !path.exists() => Cow::Borrowed(*bytes),
        _ => Cow::Owned(read(path)?),
    };
    let table = Table::read(bytes).with_context(|| format!("cannot use the n-gram table {name_or_path}"))?;
    Ok(Arc::new(table))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let names = || shipped().collect::<Vec<_>>().join(", ");
    let failed = || {
        format!(
            "cannot read the n-gram table {}; tables that come with this program: {}",
            path.display(),
            names()
        )
    };
    let bytes = std::fs::metadata(path).with_context(failed)?.len();
    if bytes > MAX_BYTES {
        bail!("{} has {bytes} bytes; a table has at most {MAX_BYTES}", path.display());
    }
    std::fs::read(path).with_context(failed)
}
