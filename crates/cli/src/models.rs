//! `foretoken models` and `foretoken pull`: what can be used by name, and getting it here.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::catalogue::{Catalogue, DEFAULT_TARGET, Entry, Status, entries};
use crate::cli::{ModelsArgs, PullArgs};
use crate::terminal::{note, print, progress};
use crate::up::table;

/// One model in the JSON array.
#[derive(Debug, Serialize)]
struct ModelRecord {
    name: &'static str,
    role: String,
    default: bool,
    description: &'static str,
    licence: &'static str,
    source: String,
    bytes: u64,
    sha256: &'static str,
    /// `present`, `absent`, or `foreign`: a file of another size stands in its place.
    status: &'static str,
    path: String,
}

/// Lists the models that have a name.
pub(crate) fn list(args: &ModelsArgs) -> Result<ExitCode> {
    let catalogue = Catalogue::open(progress(false))?;
    let records = entries().iter().map(|entry| record(&catalogue, entry)).collect::<Result<Vec<_>>>()?;
    let text = if args.json {
        serde_json::to_string_pretty(&records).context("cannot write the list")? + "\n"
    } else {
        format!("{}\nmodels are kept in {}\n", listing(&records), catalogue.folder().display())
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Fetches a model, or checks the one that is here; its path goes to standard output.
pub(crate) fn pull(args: &PullArgs) -> Result<ExitCode> {
    let catalogue = Catalogue::open(progress(true))?;
    let (path, fetched) = catalogue.pull_named(&args.model)?;
    if !fetched {
        note("it was here already, and its checksum is right\n");
    }
    print(&format!("{}\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn record(catalogue: &Catalogue, entry: &Entry) -> Result<ModelRecord> {
    Ok(ModelRecord {
        name: entry.name,
        role: entry.role.to_string(),
        default: entry.name == DEFAULT_TARGET,
        description: entry.description,
        licence: entry.licence,
        source: entry.source.to_string(),
        bytes: entry.bytes,
        sha256: entry.sha256,
        status: match catalogue.status(entry)? {
            Status::Present => "present",
            Status::Absent => "absent",
            Status::Foreign { .. } => "foreign",
        },
        path: catalogue.path(entry).display().to_string(),
    })
}

fn listing(records: &[ModelRecord]) -> String {
    let rows: Vec<_> = records
        .iter()
        .map(|record| {
            let role =
                if record.default { format!("{} (default)", record.role) } else { record.role.clone() };
            let size = format!("{:.1} MB", record.bytes as f64 / 1e6);
            [record.name, &role, &size, record.status, record.licence, &record.source, record.description]
                .map(str::to_owned)
                .to_vec()
        })
        .collect();
    table(&["NAME", "ROLE", "SIZE", "STATUS", "LICENCE", "SOURCE", "DESCRIPTION"], &rows)
}
