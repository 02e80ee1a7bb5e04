//! `foretoken generate` and `foretoken up`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use foretoken_tests::process::{Service, children, foretoken, is_alive, signal, test_model, until, wait};
use serde_json::Value;

fn generate(args: &[&str]) -> Output {
    let model = test_model();
    Command::new(foretoken())
        .args(["generate", "--target", &model.to_string_lossy()])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

fn record(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("no record ({error}) in {text:?}; stderr: {}", String::from_utf8_lossy(&output.stderr))
    })
}

fn number(record: &Value, field: &str) -> i64 {
    record[field].as_i64().unwrap_or_else(|| panic!("{field} is no integer in {record}"))
}

/// What every record must satisfy, whatever was generated.
fn check_record(record: &Value) {
    let tokens = record["tokens"].as_array().expect("tokens is a list");
    let count = |origin: &str| tokens.iter().filter(|token| token["origin"] == origin).count() as i64;
    let text: String =
        tokens.iter().map(|token| token["text"].as_str().expect("a token has a text")).collect();
    assert_eq!(record["text"].as_str(), Some(text.as_str()));
    assert_eq!(number(record, "output_tokens"), tokens.len() as i64);
    let all = count("accepted") + count("repair") + count("bonus") + count("plain");
    assert_eq!(all, tokens.len() as i64, "every token has one of four origins");
    assert_eq!(number(record, "accepted"), count("accepted"));
    assert!(number(record, "accepted") <= number(record, "drafted"));
    assert_eq!(number(record, "saved_passes"), tokens.len() as i64 - number(record, "target_passes"));
    assert_eq!(tokens[0]["origin"], "plain", "the prefill pass gives the first token");
    assert!(number(record, "verify_bytes_up") > 0 && number(record, "verify_bytes_down") > 0);
    assert!(record["ttft_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    assert!(record["wall_ms"].as_f64() >= record["ttft_ms"].as_f64());
    assert!(record["seed"].as_u64().is_some_and(|seed| seed < 1 << 53));
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn one_command_writes_text_and_a_true_record() {
    // A prompt that repeats itself, so that look-up has something to find.
    let prompt = "one two three four five six one two three four five six one two three";
    let output = generate(&["--json", "--max-tokens", "24", prompt]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let speculative = record(&output);
    check_record(&speculative);
    assert_eq!(speculative["drafter"], "ngram");
    assert_eq!(speculative["finish_reason"], "length");
    assert!(number(&speculative, "drafted") > 0 && number(&speculative, "draft_bytes_up") > 0);
    assert!(number(&speculative, "saved_passes") > 0, "{speculative}");

    let plain = record(&generate(&["--json", "--max-tokens", "24", "--drafter", "none", prompt]));
    check_record(&plain);
    assert_eq!(plain["text"], speculative["text"], "greedy text does not depend on the drafter");
    assert_eq!(number(&plain, "target_passes"), 24);
    assert_eq!(number(&plain, "draft_bytes_up"), 0);
    assert_eq!(plain["drafter"], "none");
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn plain_text_goes_to_stdout_and_the_table_to_stderr() {
    let output = generate(&["--max-tokens", "8", "The capital of France is"]);
    assert!(output.status.success());
    let (text, table) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("Paris"), "{text:?}");
    for word in ["accepted", "repair", "bonus", "plain", "saved", "drafter", "seed"] {
        assert!(table.contains(word), "{word} is missing in {table}");
    }
    assert!(!text.contains("accepted"), "the table is not part of the text");
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn a_seed_replays_and_chat_stops_by_itself() {
    let args =
        ["--json", "--chat", "--temperature", "0.8", "--seed", "7", "--max-tokens", "40", "Say hello."];
    let (first, second) = (record(&generate(&args)), record(&generate(&args)));
    check_record(&first);
    assert_eq!(number(&first, "seed"), 7);
    // Same drafter, same draft length, same seed.
    assert_eq!(first["tokens"], second["tokens"]);
    // And whoever drafts, unless another rule than the seed's is asked for.
    assert_eq!((&first["rule"], &first["reproducible"]), (&"gumbel".into(), &true.into()));
    let undrafted = record(&generate(&[&["--drafter", "none"], &args[..]].concat()));
    assert_eq!(first["text"], undrafted["text"]);
    let by_block = record(&generate(&[&["--rule", "block"], &args[..]].concat()));
    assert_eq!((&by_block["rule"], &by_block["reproducible"]), (&"block".into(), &false.into()));
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn a_model_can_draft_for_itself() {
    let model = test_model();
    let draft = model.to_string_lossy();
    let output =
        generate(&["--json", "--draft", &draft, "--draft-len", "3", "--max-tokens", "16", "Water boils at"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record = record(&output);
    check_record(&record);
    assert_eq!(number(&record, "accepted"), number(&record, "drafted"));
    assert!(number(&record, "target_passes") <= 8, "{record}");
}

#[test]
#[ignore = "needs the foretoken binary"]
fn mistakes_are_told_with_a_way_out() {
    let run = |args: &[&str]| Command::new(foretoken()).args(args).stdin(Stdio::null()).output().unwrap();
    let output = run(&["generate", "--target", "no/such/model.gguf", "hello"]);
    let text = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(!output.status.success() && text.contains("no/such/model.gguf"), "{text}");
    let output = run(&["generate", "--server", "127.0.0.1:9", "hello"]);
    let text = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(!output.status.success() && text.contains("127.0.0.1:9"), "{text}");
    let output = run(&["generate", "--temperature", "hot", "hello"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn an_interrupt_cancels_and_still_prints_the_record() {
    let verifier = Service::verifier();
    let orchestrator = Service::orchestrator(&verifier, &[], &[]);
    let mut child = Command::new(foretoken())
        .args([
            "generate",
            "--json",
            "--server",
            &orchestrator.address,
            "--max-tokens",
            "2000",
            "Once upon a time",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Into the middle of the answer: long after the first tokens, long before the last.
    std::thread::sleep(Duration::from_secs(3));
    signal(child.id(), "INT");
    let status = wait(&mut child, Duration::from_secs(20));
    assert_eq!(status.code(), Some(130));
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    assert_eq!(record["finish_reason"], "cancelled");
    assert!(number(&record, "output_tokens") < 2000);
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn up_serves_and_leaves_no_orphan_when_killed() {
    let model = test_model();
    let mut up = Command::new(foretoken())
        .args(["up", "--target", &model.to_string_lossy(), "--listen", "127.0.0.1:0", "--draft-workers", "2"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let address = loop {
        let line = lines.next().expect("it prints the orchestrator's address").unwrap();
        if let Some(rest) = line.split("--server ").nth(1) {
            break rest.split_whitespace().next().unwrap().to_owned();
        }
    };
    let services = children(up.id());
    assert_eq!(services.len(), 4, "one verifier, two draft workers, one orchestrator");
    let output = Command::new(foretoken())
        .args(["generate", "--server", &address, "--json", "--max-tokens", "4", "Hello"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    check_record(&record(&output));
    // SIGKILL: nothing of its own can run any more.
    up.kill().unwrap();
    up.wait().unwrap();
    let gone = until(Duration::from_secs(20), || services.iter().all(|&pid| !is_alive(pid)));
    assert!(gone, "services outlived their parent");
}
