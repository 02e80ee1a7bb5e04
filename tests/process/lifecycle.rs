//! Start and end of service processes.

use std::process::{Command, Stdio};
use std::time::Duration;

use foretoken_tests::process::{Service, foretoken, test_model};

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn every_service_ends_in_order_on_sigterm() {
    let verifier = Service::verifier();
    let draft_worker = Service::draft_worker("ngram");
    let orchestrator = Service::orchestrator(&verifier, &[&draft_worker], &[]);
    for mut service in [orchestrator, draft_worker, verifier] {
        service.signal("TERM");
        assert!(service.wait(Duration::from_secs(20)).success());
    }
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn a_verifier_that_does_not_fit_is_refused_with_numbers() {
    let model = test_model();
    let output = Command::new(foretoken())
        .args(["target-verifier", "--model", &model.to_string_lossy(), "--listen", "127.0.0.1:0"])
        .args(["--memory-limit", "120", "--kv-tokens", "8192"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in ["MiB", "8192", "120", "--kv-tokens", "--memory-limit"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
#[ignore = "needs the foretoken binary"]
fn a_taken_address_is_told_before_the_model_is_read() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(foretoken())
        .args(["target-verifier", "--model", "no/such/model.gguf", "--listen", &address])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(&address), "{text}");
}
