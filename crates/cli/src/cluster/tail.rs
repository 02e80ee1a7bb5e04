//! The last log lines of a service, kept for the case that it dies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::terminal::note;

/// How many lines are kept: a cause chain and what led to it.
const LINES: usize = 12;

/// Longest line kept, in characters.
const LINE_CHARS: usize = 2_000;

/// Shared between the tasks that read a service's output and whoever reports its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Tail {
    /// Keeps every line of `input` until it ends, and shows each, led by `label`, if there is one.
    pub(crate) async fn follow(self, input: impl AsyncRead + Unpin, label: Option<String>) {
        let mut input = BufReader::new(input);
        let mut line = Vec::new();
        // A read error is an end too: nothing more will come.
        while let Ok(1..) = input.read_until(b'\n', &mut line).await {
            let text = String::from_utf8_lossy(&line);
            self.push(text.trim_end(), label.as_deref());
            line.clear();
        }
    }

    /// Keeps one line.
    pub(crate) fn push(&self, line: &str, label: Option<&str>) {
        if let Some(label) = label {
            note(&format!("{label} | {line}\n"));
        }
        let mut lines = self.lock();
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(LINE_CHARS).collect());
    }

    /// The lines kept, indented below a message; empty if there are none.
    pub(crate) fn quote(&self) -> String {
        let lines = self.lock();
        if lines.is_empty() {
            return String::new();
        }
        let mut text = "; its last log lines:".to_owned();
        for line in lines.iter() {
            text.push_str("\n  | ");
            text.push_str(line);
        }
        text
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        // Lines are whole at every moment, so a panic elsewhere has spoilt nothing.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_last_lines_are_kept() {
        let tail = Tail::default();
        assert_eq!(tail.quote(), "");
        let text: String = (0..LINES + 3).map(|i| format!("line {i}\r\n")).collect();
        tail.clone().follow(text.as_bytes(), None).await;
        let quote = tail.quote();
        assert!(quote.starts_with("; its last log lines:\n  | line 3\n"), "{quote}");
        assert!(quote.ends_with("\n  | line 14"), "{quote}");
    }

    #[tokio::test]
    async fn long_and_broken_lines_are_kept_readable() {
        let tail = Tail::default();
        let mut bytes = "é".repeat(LINE_CHARS + 1).into_bytes();
        bytes.extend(b"\nbad \xff byte");
        tail.clone().follow(bytes.as_slice(), None).await;
        let quote = tail.quote();
        assert!(quote.ends_with("\n  | bad \u{fffd} byte"), "{quote}");
        assert!(quote.contains(&"é".repeat(LINE_CHARS)) && quote.len() < 2 * LINE_CHARS + 100);
    }
}
