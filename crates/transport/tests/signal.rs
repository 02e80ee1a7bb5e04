//! The ways in which a process is asked to end. Each is tried on a process of its own: this test binary, run again.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use foretoken_transport::shutdown_signal;

/// Far beyond what a loaded machine needs.
const LIMIT: Duration = Duration::from_secs(20);

/// What the child writes once its handlers are in place.
const READY: &str = "handlers are in place";

/// Set for the child, so that a run of all tests does not take this process for one.
const CHILD: &str = "FORETOKEN_SIGNAL_TEST_CHILD";

#[tokio::test]
#[ignore = "is run by the other tests, in a child process"]
async fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut signal = std::pin::pin!(shutdown_signal(true));
    // The first poll installs the handlers.
    assert!(tokio::time::timeout(Duration::ZERO, &mut signal).await.is_err());
    eprintln!("{READY}");
    signal.await;
}

/// A child that is ready and whose standard input is open.
fn ready_child() -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let ready = std::io::BufRead::lines(stderr).map_while(Result::ok).any(|line| line.contains(READY));
    assert!(ready, "the child ended early");
    assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
    child
}

fn ends(mut child: Child) -> ExitStatus {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("the child did not end");
}

#[test]
fn the_end_of_standard_input_ends_the_process() {
    let mut child = ready_child();
    drop(child.stdin.take());
    assert!(ends(child).success());
}

#[test]
fn signals_end_the_process_while_standard_input_is_open() {
    for signal in ["-TERM", "-INT"] {
        let child = ready_child();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert!(ends(child).success(), "{signal}");
    }
}
