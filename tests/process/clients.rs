//! Clients in other languages, over nothing but what the services say of themselves.

use std::path::Path;
use std::process::{Command, Output};

use foretoken_tests::process::Service;

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL, FORETOKEN_TEST_VENV and the foretoken binary"]
fn python_lists_and_calls_everything_by_reflection() {
    let verifier = Service::verifier();
    let draft_worker = Service::draft_worker("ngram");
    let orchestrator = Service::orchestrator(&verifier, &[&draft_worker], &[]);
    let output = python([&orchestrator.address, &verifier.address, &draft_worker.address], &[]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("8 methods called"), "{stdout}");
}

/// The client at these addresses: orchestrator, verifier, draft worker.
pub(crate) fn python(addresses: [&str; 3], variables: &[(&str, &str)]) -> Output {
    let venv =
        std::env::var("FORETOKEN_TEST_VENV").expect("FORETOKEN_TEST_VENV has grpcio and grpcio-reflection");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python/reflect.py");
    Command::new(Path::new(&venv).join("bin/python"))
        .arg(script)
        .args(addresses)
        .envs(variables.iter().copied())
        .output()
        .expect("python runs")
}
