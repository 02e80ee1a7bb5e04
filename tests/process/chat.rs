//! `foretoken chat`: lines from a pipe, signals, a conversation that remembers.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use foretoken_tests::process::{Service, foretoken, signal, wait};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running conversation, and what it prints.
struct Chat {
    child: Child,
    input: ChildStdin,
    /// Bytes of standard output, as they come.
    output: Receiver<u8>,
    /// Lines of standard error.
    notes: Receiver<String>,
}

impl Chat {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(foretoken())
            .arg("chat")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let stdout = child.stdout.take().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            for byte in BufReader::new(stdout).bytes().map_while(Result::ok) {
                let _closed = sender.send(byte);
            }
        });
        let (sender, notes) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _closed = sender.send(line);
            }
        });
        Self { child, input, output, notes }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    /// The first note with this in it.
    fn note(&self, part: &str) -> String {
        loop {
            let line = self.notes.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no note has {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Waits until some of an answer has come.
    fn some_output(&self) {
        for _ in 0..20 {
            self.output.recv_timeout(PATIENCE).expect("an answer comes");
        }
    }

    /// What was printed and not read yet, once it has ended.
    fn rest(&mut self) -> (Option<i32>, String) {
        let status = wait(&mut self.child, PATIENCE);
        let bytes: Vec<u8> = self.output.iter().collect();
        (status.code(), String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn services() -> (Service, Service) {
    let verifier = Service::verifier();
    let orchestrator = Service::orchestrator(&verifier, &[], &[]);
    (verifier, orchestrator)
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn a_conversation_is_read_from_a_pipe_and_remembered() {
    let (_verifier, orchestrator) = services();
    let mut chat = Chat::start(&["--orchestrator", &orchestrator.address, "-n", "24"]);
    chat.say("My name is Zebedee. Say hello to me.");
    let figures = chat.note("passes saved");
    assert!(figures.contains("tokens in") && figures.contains("tokens/s"), "{figures}");
    chat.say("/set temperature hot");
    chat.note("between 0 and 100");
    chat.say("/set max_tokens 5");
    chat.say("/set");
    assert!(chat.note("max_tokens").split_whitespace().eq(["max_tokens", "5"]));
    chat.say("/nonsense");
    chat.note("/help lists");
    chat.say("What is my name?");
    assert!(chat.note("passes saved").starts_with("5 tokens in"));
    // A long story and then the same question: after a reset the conversation is as short as at the beginning.
    chat.say("/reset");
    chat.say("/system You are a parrot.");
    chat.say("Hi");
    chat.note("passes saved");
    chat.say("/quit");
    let (code, text) = chat.rest();
    assert_eq!(code, Some(0));
    assert_eq!(text.lines().filter(|line| !line.is_empty()).count().min(3), 3, "three answers: {text:?}");
    assert!(text.ends_with('\n') && !text.contains('\x1b'), "{text:?}");
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn an_interrupt_stops_the_answer_and_not_the_conversation() {
    let (_verifier, orchestrator) = services();
    let mut chat = Chat::start(&["--server", &orchestrator.address, "-n", "1500"]);
    chat.say("Write a very long story about the sea.");
    chat.some_output();
    signal(chat.child.id(), "INT");
    chat.note("stopped");
    // It goes on, and knows where it was.
    chat.say("/set max_tokens 8");
    chat.say("Go on.");
    assert!(chat.note("passes saved").starts_with("8 tokens in"));
    // Twice at the prompt is enough.
    signal(chat.child.id(), "INT");
    chat.note("once more");
    signal(chat.child.id(), "INT");
    assert_eq!(chat.rest().0, Some(130));
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn the_end_of_input_ends_it_and_its_own_services() {
    let model = foretoken_tests::process::test_model();
    let mut chat = Chat::start(&["--target", &model.to_string_lossy(), "-n", "4"]);
    chat.say("Hi");
    chat.note("passes saved");
    let services = foretoken_tests::process::children(chat.child.id());
    assert_eq!(services.len(), 3);
    drop(std::mem::replace(&mut chat.input, closed()));
    assert_eq!(chat.rest().0, Some(0));
    assert!(services.iter().all(|&pid| !foretoken_tests::process::is_alive(pid)));
}

/// A pipe to nobody.
fn closed() -> ChildStdin {
    let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    child.wait().unwrap();
    input
}
