//! Services as processes of their own, as operators run them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use foretoken_proto::service_name;
use foretoken_testkit::client::describe_at;
use foretoken_transport::{ChannelConfig, channel, wait_healthy};
use tonic::transport::Channel;

/// The `foretoken` binary that was built beside the running test.
///
/// # Panics
/// If it was not built: `cargo build --package foretoken`.
#[must_use]
pub fn foretoken() -> PathBuf {
    let mut path = std::env::current_exe().expect("a test has a path");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.push(format!("foretoken{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is missing; run `cargo build --package foretoken` first", path.display());
    path
}

/// The default target's file.
///
/// # Panics
/// If FORETOKEN_TEST_MODEL does not name it; `tests/run` sets it.
#[must_use]
pub fn test_model() -> PathBuf {
    let path = std::env::var_os("FORETOKEN_TEST_MODEL")
        .expect("FORETOKEN_TEST_MODEL names the default model's file");
    PathBuf::from(path)
}

/// Whether `tests/run --full` is running.
#[must_use]
pub fn full() -> bool {
    std::env::var("FORETOKEN_TEST_FULL").is_ok_and(|value| value == "1")
}

/// A service process that announced its address. Dropping it kills it.
#[derive(Debug)]
pub struct Service {
    child: Child,
    /// Where it listens.
    pub address: String,
}

impl Service {
    /// Starts `foretoken KIND ARGS` on a free port and waits until it serves.
    ///
    /// # Panics
    /// If it ends before it serves.
    #[must_use]
    pub fn start(kind: &str, args: &[&str]) -> Self {
        Self::start_at(kind, "127.0.0.1:0", args)
    }

    /// Starts `foretoken KIND ARGS` at an address.
    ///
    /// # Panics
    /// If it ends before it serves.
    #[must_use]
    pub fn start_at(kind: &str, listen: &str, args: &[&str]) -> Self {
        let mut command = Command::new(foretoken());
        command.arg(kind).args(["--listen", listen, "--log-filter", "warn"]).args(args);
        Self::spawn(kind, command)
    }

    /// Starts `foretoken KIND ARGS` on a free port with a log, as it is by default, in a file.
    ///
    /// # Panics
    /// If it ends before it serves.
    #[must_use]
    pub fn start_logging(kind: &str, args: &[&str], log: &Path) -> Self {
        let mut command = Command::new(foretoken());
        command.arg(kind).args(["--listen", "127.0.0.1:0"]).args(args);
        command.stderr(std::fs::File::create(log).expect("a file for the log"));
        Self::spawn(kind, command)
    }

    fn spawn(kind: &str, mut command: Command) -> Self {
        command.arg("--announce").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the foretoken binary starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let line = BufReader::new(stdout).lines().next();
        let Some(Ok(line)) = line else {
            panic!("{kind} ended before it served: {:?}", child.wait());
        };
        let announced: serde_json::Value = serde_json::from_str(&line).expect("the announcement is JSON");
        let address = announced["address"].as_str().expect("it names the address").to_owned();
        Self { child, address }
    }

    /// A verifier of the default model.
    #[must_use]
    pub fn verifier() -> Self {
        Self::verifier_with(&[])
    }

    /// A verifier of the default model, with further arguments.
    #[must_use]
    pub fn verifier_with(args: &[&str]) -> Self {
        let model = test_model();
        let model = model.to_string_lossy();
        Self::start("target-verifier", &[&["--model", &*model, "--kv-tokens", "8192"], args].concat())
    }

    /// A draft worker: `ngram`, or a model's path.
    #[must_use]
    pub fn draft_worker(model: &str) -> Self {
        Self::draft_worker_with(model, &[])
    }

    /// A draft worker with further arguments.
    #[must_use]
    pub fn draft_worker_with(model: &str, args: &[&str]) -> Self {
        Self::start("draft-worker", &[&["--model", model, "--kv-tokens", "8192"], args].concat())
    }

    /// An orchestrator over these.
    #[must_use]
    pub fn orchestrator(verifier: &Self, draft_workers: &[&Self], args: &[&str]) -> Self {
        let drafts: Vec<_> = draft_workers.iter().map(|worker| worker.address.as_str()).collect();
        let drafts = drafts.join(",");
        let mut all = vec!["--verifiers", &verifier.address, "--draft-workers", &drafts];
        all.extend(args);
        Self::start("orchestrator", &all)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }

    /// Sends a signal by name, e.g. `TERM`.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn wait(&mut self, timeout: Duration) -> ExitStatus {
        wait(&mut self.child, timeout)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A channel to an orchestrator, once it serves and so many draft workers are ready.
///
/// # Panics
/// If they do not become ready in time.
pub async fn ready(orchestrator: &Service, draft_workers: usize) -> Channel {
    let channel =
        channel(&orchestrator.address, &ChannelConfig::default()).expect("a service announces an address");
    wait_healthy(channel.clone(), service_name::ORCHESTRATOR, Duration::from_secs(60))
        .await
        .expect("the orchestrator becomes healthy");
    for _ in 0..600 {
        let description = describe_at(channel.clone()).await;
        if description.draft_workers.iter().filter(|worker| worker.ready).count() == draft_workers {
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the draft workers did not become ready");
}

/// Sends a signal to a process.
///
/// # Panics
/// If there is no `kill` command.
pub fn signal(pid: u32, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().expect("kill runs");
}

/// Whether a process is there and no zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

/// Processes whose parent is `pid`.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|candidate: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{candidate}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            after_name.split_whitespace().nth(1) == Some(&pid.to_string())
        })
        .collect()
}

/// Waits for a child's end.
///
/// # Panics
/// If it does not end in time.
pub fn wait(child: &mut Child, timeout: Duration) -> ExitStatus {
    let mut status = None;
    let ended = until(timeout, || {
        status = child.try_wait().expect("a child can be waited for");
        status.is_some()
    });
    assert!(ended, "process {} did not end within {timeout:?}", child.id());
    status.expect("it ended")
}

/// Polls until `done`, or false after `timeout`.
pub fn until(timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
