//! Files of prompts: one a line, as plain text or as JSON.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::failure::UsageError;

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// Its kind, where the file tells one.
    pub(crate) category: String,
    /// What is asked.
    pub(crate) text: String,
}

/// A line in JSON. Other fields are left alone.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    category: String,
    prompt: Option<String>,
    /// A conversation's user messages, of which the first is taken.
    #[serde(default)]
    turns: Vec<String>,
}

/// Reads the prompts of a file. A line that begins with a brace is a JSON object with `prompt`, or with `turns` whose
/// first is taken, and perhaps a `category`; any other line is a prompt itself. Empty lines are skipped.
pub(crate) fn read(path: &Path) -> Result<Vec<Prompt>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the prompts in {}", path.display()))?;
    let prompts = parse(&text).with_context(|| format!("in {}", path.display()))?;
    if prompts.is_empty() {
        return Err(UsageError(format!("{} holds no prompts", path.display())).into());
    }
    Ok(prompts)
}

fn parse(text: &str) -> Result<Vec<Prompt>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| prompt(line).with_context(|| format!("line {}", index + 1))).collect()
}

fn prompt(line: &str) -> Result<Prompt> {
    if !line.trim_start().starts_with('{') {
        return Ok(Prompt { category: String::new(), text: line.to_owned() });
    }
    let Line { category, prompt, turns } = serde_json::from_str(line)?;
    let text = prompt.or_else(|| turns.into_iter().next()).context("it has neither prompt nor turns")?;
    Ok(Prompt { category, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_text_or_json() {
        let text = "Hello there\n\n{\"category\": \"qa\", \"turns\": [\"Who?\", \"Why?\"], \"question_id\": 1}\r\n \
                    {\"prompt\": \"What?\"}\n";
        let prompts: Vec<_> = parse(text).unwrap().into_iter().map(|p| (p.category, p.text)).collect();
        let right = [("", "Hello there"), ("qa", "Who?"), ("", "What?")];
        assert_eq!(prompts, right.map(|(category, text)| (category.to_owned(), text.to_owned())));
    }

    #[test]
    fn a_bad_line_is_told_by_its_number() {
        for bad in ["a\n{\"category\": \"x\"}", "a\n{\"prompt\": 1}"] {
            let error = parse(bad).unwrap_err();
            assert_eq!(error.to_string(), "line 2", "{error:#}");
        }
    }
}
