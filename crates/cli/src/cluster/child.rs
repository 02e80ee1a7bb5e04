//! One service as a process of its own, which never outlives this one.
//!
//! The child's standard input is a pipe that this process holds and never writes to. However this process dies, the
//! system closes the pipe, and the child ends itself. Ending it in good order uses the same pipe; only a child that
//! does not end in time is killed. It has its own process group, so that Ctrl-C in a terminal reaches this process
//! alone and the services end in order.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::tail::Tail;

/// Variables of certificates and keys: the listener's, the orchestrator's and the client's.
pub(crate) const ACCESS_VARS: [&str; 10] = [
    "FORETOKEN_TLS_CERT",
    "FORETOKEN_TLS_KEY",
    "FORETOKEN_TLS_CLIENT_CA",
    "FORETOKEN_TLS_CA",
    "FORETOKEN_TLS_CLIENT_CERT",
    "FORETOKEN_TLS_CLIENT_KEY",
    "FORETOKEN_TLS_SERVER_NAME",
    "FORETOKEN_API_KEYS",
    "FORETOKEN_API_KEY_FILE",
    "FORETOKEN_API_KEY",
];

/// Longest wait for the last words of a child that has ended: whoever inherited its pipes could keep them open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// What people call this process.
    pub(crate) label: String,
    /// Full name of the service it must announce.
    pub(crate) service: &'static str,
    /// Its command line, behind the program.
    pub(crate) args: Vec<OsString>,
}

/// A started service that has announced its address.
#[derive(Debug)]
pub(crate) struct Child {
    label: String,
    address: SocketAddr,
    process: Process,
}

/// A running child, announced or not. Dropping it kills it: the way of panics and of interrupted starts.
#[derive(Debug)]
struct Process {
    inner: tokio::process::Child,
    /// Closing it asks the child to end.
    stdin: Option<ChildStdin>,
    tail: Tail,
    readers: Vec<JoinHandle<()>>,
}

/// The line that a service prints when it serves.
#[derive(Debug, Deserialize)]
struct Announcement {
    service: String,
    address: SocketAddr,
}

impl Child {
    /// Starts `program` and waits for its announcement. With `show_logs` its log lines go to standard error.
    pub(crate) async fn start(
        program: &Path,
        spec: Spec,
        show_logs: bool,
        timeout: Duration,
    ) -> Result<Self> {
        let Spec { label, service, args } = spec;
        let shown = show_logs.then(|| label.clone());
        let (mut process, stdout) = Process::spawn(program, &args, shown)
            .with_context(|| format!("cannot start the {label} process ({})", program.display()))?;

        match tokio::time::timeout(timeout, process.announcement(stdout)).await {
            Ok(Ok(Announcement { service: announced, address })) if announced == service => {
                Ok(Self { label, address, process })
            }
            Ok(Ok(Announcement { service: announced, .. })) => {
                bail!("the {label} process serves {announced} in place of {service}")
            }
            Ok(Err(error)) => Err(error.context(format!("the {label} did not start"))),
            Err(_) => bail!(
                "the {label} was not ready within {timeout:?}{}; allow it longer with --start-timeout",
                process.tail.quote()
            ),
        }
    }

    /// What people call it.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Where it serves.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has ended by itself, and says how. May be dropped and called again.
    pub(crate) async fn died(&mut self) -> String {
        let end = self.process.end().await;
        format!("the {} ended: {end}", self.label)
    }

    /// Asks it to end, and kills it if it has not after `patience`.
    pub(crate) async fn stop(mut self, patience: Duration) -> Result<()> {
        drop(self.process.stdin.take());
        if tokio::time::timeout(patience, self.process.inner.wait()).await.is_err() {
            tracing::warn!(service = %self.label, "it did not end within {patience:?} and is killed");
            self.process.inner.kill().await.with_context(|| format!("cannot kill the {}", self.label))?;
        }
        Ok(())
    }
}

impl Process {
    fn spawn(
        program: &Path,
        args: &[OsString],
        shown: Option<String>,
    ) -> Result<(Self, BufReader<ChildStdout>)> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        // One address cannot serve the metrics of several processes.
        command.env_remove(foretoken_telemetry::METRICS_LISTEN_VAR);
        // Meant for services that others run: these talk among themselves, and with this process, over the loopback.
        for variable in ACCESS_VARS {
            command.env_remove(variable);
        }
        #[cfg(unix)]
        command.process_group(0);
        let mut inner = command.spawn()?;

        let missing = || anyhow!("a pipe to the process is missing");
        let stdin = inner.stdin.take().ok_or_else(missing)?;
        let stdout = inner.stdout.take().ok_or_else(missing)?;
        let stderr = inner.stderr.take().ok_or_else(missing)?;
        let tail = Tail::default();
        let readers = vec![tokio::spawn(tail.clone().follow(stderr, shown))];
        Ok((Self { inner, stdin: Some(stdin), tail, readers }, BufReader::new(stdout)))
    }

    /// Reads standard output up to the announcement; the rest of it, if any, joins the log lines.
    async fn announcement(&mut self, mut stdout: BufReader<ChildStdout>) -> Result<Announcement> {
        let mut line = String::new();
        loop {
            line.clear();
            if stdout.read_line(&mut line).await.context("cannot read its standard output")? == 0 {
                bail!("{}", self.end().await);
            }
            match serde_json::from_str(&line) {
                Ok(announcement) => {
                    self.readers.push(tokio::spawn(self.tail.clone().follow(stdout, None)));
                    return Ok(announcement);
                }
                Err(_) => self.tail.push(line.trim_end(), None),
            }
        }
    }

    /// Waits for the end, and says how it came and what was logged before.
    async fn end(&mut self) -> String {
        let status = match self.inner.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => format!("its exit status is not known ({error})"),
        };
        for reader in self.readers.drain(..) {
            // Either way the lines so far are there.
            let _ = tokio::time::timeout(LAST_WORDS, reader).await;
        }
        format!("{status}{}", self.tail.quote())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::time::Instant;

    const SERVICE: &str = "test.v1.Test";
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A shell in place of a service.
    fn spec(script: &str) -> Spec {
        Spec { label: "stand-in".to_owned(), service: SERVICE, args: vec!["-c".into(), script.into()] }
    }

    async fn start(script: &str) -> Result<Child> {
        Child::start(Path::new("/bin/sh"), spec(script), false, PATIENCE).await
    }

    #[test]
    fn no_variable_of_certificates_or_keys_is_forgotten() {
        use clap::CommandFactory;
        let command = crate::cli::Cli::command();
        let arguments = command.get_subcommands().flat_map(clap::Command::get_arguments);
        let variables: Vec<_> = arguments.filter_map(|argument| argument.get_env()?.to_str()).collect();
        let about = |variable: &&&str| {
            variable.starts_with("FORETOKEN_TLS_") || variable.starts_with("FORETOKEN_API_KEY")
        };
        for variable in variables.iter().filter(about) {
            assert!(ACCESS_VARS.contains(variable), "{variable}");
        }
        for variable in ACCESS_VARS {
            assert!(variables.contains(&variable), "{variable}");
        }
    }

    fn announcing(rest: &str) -> String {
        format!(r#"echo '{{"service":"{SERVICE}","address":"127.0.0.1:7"}}'; {rest}"#)
    }

    fn alive(pid: u32) -> bool {
        // A killed child stays a zombie until it is waited for.
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[tokio::test]
    async fn closing_standard_input_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("ended");
        let child =
            start(&announcing(&format!("cat >/dev/null; echo ok > {}", mark.display()))).await.unwrap();
        assert_eq!(child.address(), SocketAddr::from(([127, 0, 0, 1], 7)));
        child.stop(PATIENCE).await.unwrap();
        assert!(mark.exists(), "it was killed before it had ended in order");
    }

    #[tokio::test]
    async fn one_that_does_not_end_is_killed() {
        let child = start(&announcing("trap '' TERM INT; while :; do sleep 0.05; done")).await.unwrap();
        let pid = child.process.inner.id().unwrap();
        let begun = Instant::now();
        child.stop(Duration::from_millis(100)).await.unwrap();
        assert!(begun.elapsed() < PATIENCE && !alive(pid));
    }

    #[tokio::test]
    async fn dropping_kills() {
        let child = start(&announcing("exec sleep 600")).await.unwrap();
        let pid = child.process.inner.id().unwrap();
        drop(child);
        let deadline = Instant::now() + PATIENCE;
        while alive(pid) {
            assert!(Instant::now() < deadline, "process {pid} lives on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn one_that_dies_at_its_start_is_quoted() {
        let error = start("echo warming up; echo 'error: no such model' >&2; exit 3").await.unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.starts_with("the stand-in did not start: exit status: 3; its last log lines:\n"),
            "{text}"
        );
        assert!(text.contains("\n  | error: no such model") && text.contains("\n  | warming up"), "{text}");
    }

    #[tokio::test]
    async fn one_that_dies_later_is_noticed_and_quoted() {
        let mut child = start(&announcing("echo alive >&2; read line; exit 5")).await.unwrap();
        drop(child.process.stdin.take());
        let end = child.died().await;
        assert_eq!(end, "the stand-in ended: exit status: 5; its last log lines:\n  | alive");
    }

    #[tokio::test]
    async fn one_that_never_gets_ready_or_is_another_is_refused() {
        let slow =
            Child::start(Path::new("/bin/sh"), spec("sleep 600"), false, Duration::from_millis(100)).await;
        let text = slow.unwrap_err().to_string();
        assert!(text.contains("not ready within 100ms") && text.contains("--start-timeout"), "{text}");

        let other =
            start(r#"echo '{"service":"other.v1.Other","address":"127.0.0.1:7"}'; cat"#).await.unwrap_err();
        assert_eq!(other.to_string(), "the stand-in process serves other.v1.Other in place of test.v1.Test");

        let missing = Child::start(Path::new("/no/such/program"), spec(""), false, PATIENCE).await;
        let text = format!("{:#}", missing.unwrap_err());
        assert!(text.starts_with("cannot start the stand-in process (/no/such/program): "), "{text}");
    }
}
