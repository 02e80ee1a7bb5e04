//! The user's lines: edited in a terminal, read as they are from anything else.
//!
//! Reading blocks, so it has a thread of its own, which reads only when a line is wanted: while an answer is written the
//! terminal is in its usual state, and Ctrl-C is a signal.

use std::io::{self, BufRead, IsTerminal};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context, Result};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use tokio::sync::mpsc;

/// Asks for a line in a terminal.
const PROMPT: &str = "> ";

/// What the user did.
#[derive(Debug)]
pub(super) enum Read {
    /// Entered a line.
    Line(String),
    /// Pressed Ctrl-C.
    Interrupt,
    /// Ended the input.
    End,
}

/// The thread that reads.
#[derive(Debug)]
pub(super) struct Input {
    wanted: Sender<()>,
    lines: mpsc::Receiver<Result<Read>>,
    /// Whether a line is wanted already.
    waiting: bool,
}

impl Input {
    /// Starts the thread.
    pub(super) fn start() -> Result<Self> {
        let (wanted, wants) = channel();
        let (sender, lines) = mpsc::channel(1);
        let reader = Reader::new()?;
        // It is not waited for at the end: it may be in the middle of a line that nobody wants any more.
        thread::Builder::new()
            .name("input".into())
            .spawn(move || serve(reader, &wants, &sender))
            .context("cannot start the thread that reads input")?;
        Ok(Self { wanted, lines, waiting: false })
    }

    /// The next line. May be dropped and asked again without losing one.
    pub(super) async fn next(&mut self) -> Result<Read> {
        if !self.waiting {
            // A thread that is gone has dropped its sender too, which the next line tells.
            self.waiting = self.wanted.send(()).is_ok();
        }
        let line = self.lines.recv().await.unwrap_or(Ok(Read::End));
        self.waiting = false;
        line
    }
}

fn serve(mut reader: Reader, wants: &Receiver<()>, lines: &mpsc::Sender<Result<Read>>) {
    while wants.recv().is_ok() {
        if lines.blocking_send(reader.read()).is_err() {
            return;
        }
    }
}

/// Where lines come from.
enum Reader {
    Editor(Box<DefaultEditor>),
    Lines,
}

impl Reader {
    fn new() -> Result<Self> {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            let editor = DefaultEditor::new().context("cannot use the terminal")?;
            return Ok(Self::Editor(Box::new(editor)));
        }
        Ok(Self::Lines)
    }

    fn read(&mut self) -> Result<Read> {
        match self {
            Self::Editor(editor) => match editor.readline(PROMPT) {
                Ok(line) => {
                    // Only the arrow keys would miss it.
                    let _kept = editor.add_history_entry(line.as_str());
                    Ok(Read::Line(line))
                }
                Err(ReadlineError::Interrupted) => Ok(Read::Interrupt),
                Err(ReadlineError::Eof) => Ok(Read::End),
                Err(error) => Err(error).context("cannot read from the terminal"),
            },
            Self::Lines => {
                let mut line = String::new();
                let read = io::stdin().lock().read_line(&mut line).context("cannot read standard input")?;
                Ok(if read == 0 { Read::End } else { Read::Line(line) })
            }
        }
    }
}
