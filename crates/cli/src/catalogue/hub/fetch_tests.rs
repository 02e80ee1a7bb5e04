//! Fetching from a small server that answers as the hub does: the hub itself is out of reach of tests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use indicatif::ProgressDrawTarget;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with one repository, `org/name`.
struct Hub {
    endpoint: String,
    /// Bytes sent for each request.
    asked: Arc<Mutex<Vec<usize>>>,
}

impl Hub {
    fn start(files: &[(&str, &[u8])]) -> Self {
        let files: BTreeMap<String, Vec<u8>> =
            files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let (files, log) = (files.clone(), log.clone());
                std::thread::spawn(move || while answer(&stream, &files, &log).is_some() {});
            }
        });
        Self { endpoint, asked }
    }

    fn requests(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Bytes sent as bodies.
    fn bytes(&self) -> usize {
        self.asked.lock().unwrap().iter().sum()
    }
}

/// Answers one request; `None` at the connection's end.
fn answer(mut stream: &TcpStream, files: &BTreeMap<String, Vec<u8>>, log: &Mutex<Vec<usize>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut range = None;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let header = line.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some((first, last)) = header.strip_prefix("range: bytes=").and_then(|r| r.split_once('-')) {
            range = Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()));
        }
    }
    let (head, body) = match path.strip_prefix("/org/name/resolve/main/").map(|file| files.get(file)) {
        Some(Some(bytes)) => file(bytes, range),
        None if path.starts_with("/api/models/org/name") => {
            let siblings: Vec<_> = files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
            let info = serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
            ("200 OK\r\ncontent-type: application/json".to_owned(), info.into_bytes())
        }
        _ => ("404 Not Found".to_owned(), b"Repository not found".to_vec()),
    };
    log.lock().unwrap().push(body.len());
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).ok()
}

fn file(bytes: &[u8], range: Option<(usize, Option<usize>)>) -> (String, Vec<u8>) {
    let etag: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let common = format!("etag: \"{etag}\"\r\nx-repo-commit: {COMMIT}\r\naccept-ranges: bytes");
    match range {
        None => (format!("200 OK\r\n{common}"), bytes.to_vec()),
        Some((first, last)) => {
            let end = last.map_or(bytes.len(), |last| bytes.len().min(last + 1));
            let content_range = format!("content-range: bytes {first}-{}/{}", end.max(1) - 1, bytes.len());
            (
                format!("206 Partial Content\r\n{common}\r\n{content_range}"),
                bytes[first.min(end)..end].to_vec(),
            )
        }
    }
}

struct Fetched {
    folder: TempDir,
    hub: Hub,
}

impl Fetched {
    fn new(files: &[(&str, &[u8])]) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), hub: Hub::start(files) }
    }

    fn get(&self, name: &str, anew: bool) -> Result<PathBuf> {
        self.get_from(&self.hub.endpoint, name, anew)
    }

    fn get_from(&self, endpoint: &str, name: &str, anew: bool) -> Result<PathBuf> {
        let cache = Cache::new(self.folder.path().to_owned());
        let builder = || {
            ApiBuilder::from_cache(Cache::new(self.folder.path().to_owned()))
                .with_endpoint(endpoint.to_owned())
                .with_token(None)
        };
        let progress = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        resolve(&HubName::parse(name).unwrap(), anew, &cache, builder, &progress)
    }
}

fn read(folder: &Path, file: &str) -> Vec<u8> {
    fs::read(folder.join(file)).unwrap()
}

#[test]
fn a_folder_of_shards_is_fetched_once_and_used_again_without_the_hub() {
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let weights = vec![7u8; 300_000];
    let fetched = Fetched::new(&[
        ("README.md", b"about"),
        ("config.json", b"{}"),
        ("tokenizer.json", b"{\"a\": 1}"),
        (INDEX, index),
        ("model-1.safetensors", &weights),
        ("model-2.safetensors", b"two"),
    ]);
    let folder = fetched.get("org/name", false).unwrap();
    assert_eq!(read(&folder, "tokenizer.json"), b"{\"a\": 1}");
    assert_eq!(read(&folder, "model-1.safetensors"), weights);
    assert_eq!(read(&folder, "model-2.safetensors"), b"two");
    assert!(!folder.join("README.md").exists(), "only what a model needs");
    let asked = fetched.hub.requests();
    assert_eq!(fetched.get_from("http://127.0.0.1:1", "org/name", false).unwrap(), folder);
    assert_eq!(fetched.hub.requests(), asked, "the hub was not asked again");
    // A shard that is gone is fetched again.
    fs::remove_file(folder.join("model-2.safetensors")).unwrap();
    assert_eq!(fetched.get("org/name", false).unwrap(), folder);
    assert_eq!(read(&folder, "model-2.safetensors"), b"two");
    // An explicit pull asks about every file and downloads none that has not changed.
    let before = fetched.hub.bytes();
    assert_eq!(fetched.get("org/name", true).unwrap(), folder);
    assert!(fetched.hub.bytes() - before < 2_000, "{}", fetched.hub.bytes() - before);
    fs::remove_file(folder.join("model-1.safetensors")).unwrap();
    assert_eq!(fetched.get("org/name", true).unwrap(), folder);
    assert_eq!(read(&folder, "model-1.safetensors"), weights);
}

#[test]
fn a_gguf_file_is_fetched_by_name_or_as_the_only_one() {
    let fetched = Fetched::new(&[("model.Q4_0.gguf", b"GGUF"), ("README.md", b"")]);
    let path = fetched.get("org/name", false).unwrap();
    assert!(path.ends_with("model.Q4_0.gguf"), "{}", path.display());
    assert_eq!(fs::read(&path).unwrap(), b"GGUF");
    let offline = "http://127.0.0.1:1";
    assert_eq!(fetched.get_from(offline, "org/name/model.Q4_0.gguf", false).unwrap(), path);
    let error = fetched.get("org/name/other.gguf", false).unwrap_err();
    assert!(format!("{error:#}").contains("no file other.gguf; it has model.Q4_0.gguf"), "{error:#}");
}

#[test]
fn what_the_hub_does_not_have_or_where_it_is_not_reached_is_said() {
    let fetched = Fetched::new(&[("config.json", b"{}")]);
    let error = format!("{:#}", fetched.get("other/name", false).unwrap_err());
    assert!(error.contains("could not fetch other/name") && error.contains("404"), "{error}");
    let error = format!("{:#}", fetched.get_from("http://127.0.0.1:1", "org/name", false).unwrap_err());
    assert!(error.contains("HF_ENDPOINT") && error.contains("refused"), "{error}");
    let error = format!("{:#}", fetched.get("org/name", false).unwrap_err());
    assert!(error.contains("neither model.safetensors nor"), "{error}");
}
