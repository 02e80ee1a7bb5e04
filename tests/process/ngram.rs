//! `foretoken ngram build` and `foretoken bench drafters`: a table from texts and from answers, stopped and gone on with.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use foretoken_tests::process::{foretoken, signal, test_model, until, wait};
use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(foretoken());
    command.args(args).stdin(Stdio::null());
    command
}

fn build(out: &Path, args: &[&str]) -> Command {
    let model = test_model();
    let mut command = command(&["ngram", "build", "--target", &model.to_string_lossy()]);
    command.args(["--out", &out.to_string_lossy()]).args(args);
    command
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn generate(table: &str, prompt: &str) -> Value {
    let model = test_model();
    let output = succeeds(&mut command(&[
        "generate",
        "--json",
        "--max-tokens",
        "16",
        "--target",
        &model.to_string_lossy(),
        "--ngram-table",
        table,
        prompt,
    ]));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn a_table_of_a_text_drafts_that_text() {
    let folder = tempfile::tempdir().unwrap();
    let (out, text) = (folder.path().join("my.ngram"), folder.path().join("text.txt"));
    let prompt = "The first president of the United States was";
    let plain = generate("none", prompt);
    assert_eq!(plain["drafter"], "ngram");
    let said = plain["text"].as_str().unwrap();
    std::fs::write(&text, format!("{prompt}{said}")).unwrap();
    let output = succeeds(&mut build(&out, &["--text", &text.to_string_lossy()]));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), out.to_string_lossy());
    let drafted = generate(&out.to_string_lossy(), prompt);
    assert_eq!((&drafted["drafter"], &drafted["text"]), (&"ngram+table".into(), &plain["text"]));
    let accepted = |record: &Value| record["accepted"].as_u64().unwrap();
    assert!(accepted(&drafted) >= 8 && accepted(&drafted) > accepted(&plain), "{drafted}");

    // Damaged, it is refused before anything is started.
    let bytes = std::fs::read(&out).unwrap();
    std::fs::write(&out, &bytes[..bytes.len() - 3]).unwrap();
    let output = command(&["generate", "--ngram-table", &out.to_string_lossy(), "x"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("not whole") && told.contains("my.ngram"), "{told}");
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn answers_are_kept_when_it_is_stopped_or_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (out, prompts) = (folder.path().join("my.ngram"), folder.path().join("prompts.txt"));
    std::fs::write(&prompts, "Say hello.\nName a colour.\nCount to ten.\n").unwrap();
    let prompts = prompts.to_string_lossy().into_owned();
    let kept = folder.path().join("my.ngram.answers");
    let args = |tokens: &'static str| {
        vec!["--generate", "--prompts", &prompts, "--max-tokens", "8", "--sessions", "4", "--tokens", tokens]
    };
    let size = || std::fs::metadata(&kept).map_or(0, |file| file.len());
    let mut before = 0;
    for (name, code) in [("INT", Some(130)), ("KILL", None)] {
        let mut running = build(&out, &args("1000000")).stderr(Stdio::null()).spawn().unwrap();
        assert!(until(Duration::from_secs(60), || size() > before + 1_000), "no answers are kept");
        signal(running.id(), name);
        assert_eq!(wait(&mut running, Duration::from_secs(20)).code(), code);
        before = size();
    }
    assert!(!out.exists());
    // There are enough already, or nearly: what was kept is not asked again.
    succeeds(&mut build(&out, &args("200")));
    assert!(out.exists() && size() + 200 >= before, "{} of {before}", size());
    // Other questions are not mixed in.
    let output = build(&out, &[args("200"), vec!["--temperature", "0.5"]].concat()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("other questions"), "{output:?}");
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn drafters_are_compared_on_a_file_of_prompts() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = folder.path().join("prompts.jsonl");
    std::fs::write(
        &prompts,
        "{\"category\": \"count\", \"turns\": [\"Count from one to twenty.\"]}\n{\"prompt\": \"Name three colours.\"}\n",
    )
    .unwrap();
    let output = succeeds(&mut command(&[
        "bench",
        "drafters",
        "--json",
        "--max-tokens",
        "24",
        "--prompts",
        &prompts.to_string_lossy(),
        "--model",
        &test_model().to_string_lossy(),
        "--ngram-table",
        "SmolLM2-135M-Instruct",
    ]));
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let of = |drafter: &str, category: &str| {
        let found = lines.iter().find(|line| line["drafter"] == drafter && line["category"] == category);
        found.unwrap_or_else(|| panic!("no {drafter} on {category:?} in {lines:?}")).clone()
    };
    for drafter in ["look-up", "table", "both"] {
        let all = of(drafter, "all");
        assert_eq!(all["answers"], 2);
        let sum = |field: &str| {
            of(drafter, "count")[field].as_u64().unwrap() + of(drafter, "")[field].as_u64().unwrap()
        };
        assert_eq!(all["tokens"].as_u64(), Some(sum("tokens")));
        assert_eq!(all["rounds"].as_u64(), Some(sum("rounds")));
        assert!(all["tokens_per_round"].as_f64().unwrap() >= 1.0);
    }
}
