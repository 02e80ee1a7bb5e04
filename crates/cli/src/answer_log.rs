//! Answers kept on disk as they come, so that whoever is stopped goes on where it was.
//!
//! The file begins with a line that says what was asked; answers follow, each with a hash of its own. A file that ends
//! in the middle of an answer, as one whose writer was killed may, loses that answer and nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use foretoken_engine::conversation::TextHash;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What all answers of a file have in common. Answers to other questions are not mixed in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// SHA-256 of the model's weights.
    pub(crate) model: String,
    /// Of all prompts.
    pub(crate) prompts: String,
    /// Whether they were put into the chat template.
    pub(crate) chat: bool,
    /// How answers were sampled.
    pub(crate) temperature: f64,
    /// Longest answer.
    pub(crate) max_tokens: u32,
    /// Of the first answer; each other one has the next.
    pub(crate) seed: u64,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The last tokens of its prompt, as many as were to be kept.
    pub(crate) before: Vec<u32>,
    /// Its own.
    pub(crate) tokens: Vec<u32>,
}

impl Asked {
    /// A digest of prompts, by which others are told apart.
    pub(crate) fn digest<'a>(prompts: impl IntoIterator<Item = &'a str>) -> String {
        let mut hash = Sha256::new();
        for prompt in prompts {
            hash.update((prompt.len() as u64).to_le_bytes());
            hash.update(prompt);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The open file and what is in it.
#[derive(Debug)]
pub(crate) struct AnswerLog {
    file: File,
    answers: BTreeMap<usize, Answer>,
    tokens: u64,
}

impl AnswerLog {
    /// Opens the file, or begins one.
    pub(crate) fn open(path: &Path, asked: &Asked) -> Result<Self> {
        let cannot = || format!("cannot use {}", path.display());
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(cannot)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(cannot)?;
        let mut log = Self { file, answers: BTreeMap::new(), tokens: 0 };
        let line_end = bytes.iter().position(|&byte| byte == b'\n');
        let whole = match line_end {
            // Nothing, or killed before the first line was whole.
            None => {
                let mut line = serde_json::to_string(asked)?;
                line.push('\n');
                log.rewind(0)?;
                log.file.write_all(line.as_bytes()).with_context(cannot)?;
                return Ok(log);
            }
            Some(end) => {
                let kept: Asked = serde_json::from_slice(&bytes[..end])
                    .with_context(|| format!("{} holds no answers of this program", path.display()))?;
                if kept != *asked {
                    bail!(
                        "{} holds answers to other questions ({kept:?}, now it is {asked:?}); remove it, or name another file",
                        path.display()
                    );
                }
                end + 1 + log.take(&bytes[end + 1..])
            }
        };
        log.rewind(whole as u64).with_context(cannot)?;
        Ok(log)
    }

    /// Reads whole answers; says how many bytes they take.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some((number, answer, behind)) = read(rest) {
            self.keep(number, answer);
            rest = behind;
        }
        bytes.len() - rest.len()
    }

    fn rewind(&mut self, len: u64) -> std::io::Result<()> {
        self.file.set_len(len)?;
        self.file.seek(SeekFrom::Start(len)).map(drop)
    }

    fn keep(&mut self, number: usize, answer: Answer) {
        self.tokens += answer.tokens.len() as u64;
        if let Some(before) = self.answers.insert(number, answer) {
            self.tokens -= before.tokens.len() as u64;
        }
    }

    /// Keeps an answer.
    pub(crate) fn add(&mut self, number: usize, answer: Answer) -> Result<()> {
        // One write, so that a kill leaves a whole answer or a part that is known as one.
        self.file.write_all(&written(number, &answer)).context("cannot keep an answer")?;
        self.keep(number, answer);
        Ok(())
    }

    /// The numbers of all answers, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.answers.keys().copied()
    }

    /// Tokens of all answers.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// All answers, by number.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (usize, &Answer)> {
        self.answers.iter().map(|(&number, answer)| (number, answer))
    }
}

/// Number, tokens before, tokens, and the hash of all of that; 32-bit little endian, the hash 64.
fn written(number: usize, answer: &Answer) -> Vec<u8> {
    let head = [number as u32, answer.before.len() as u32, answer.tokens.len() as u32];
    let numbers = || head.iter().chain(&answer.before).chain(&answer.tokens);
    let hash = numbers().fold(TextHash::EMPTY, |hash, &number| hash.then(number));
    numbers().flat_map(|number| number.to_le_bytes()).chain(hash.value().to_le_bytes()).collect()
}

/// The first answer of `bytes` and what is behind it; none if it is not whole.
fn read(bytes: &[u8]) -> Option<(usize, Answer, &[u8])> {
    let (head, rest) = bytes.split_at_checked(12)?;
    let head = words(head);
    let (before, tokens) = (head[1] as usize, head[2] as usize);
    let (body, rest) = rest.split_at_checked(before.checked_add(tokens)?.checked_mul(4)?)?;
    let (hash, rest) = rest.split_at_checked(8)?;
    let body = words(body);
    let right = TextHash::EMPTY.then_all(&head).then_all(&body).value().to_le_bytes();
    let answer = Answer { before: body[..before].to_vec(), tokens: body[before..].to_vec() };
    (hash == right).then_some((head[0] as usize, answer, rest))
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(seed: u64) -> Asked {
        Asked { model: "m".into(), prompts: "p".into(), chat: true, temperature: 1.0, max_tokens: 8, seed }
    }

    fn answer(tokens: &[u32]) -> Answer {
        Answer { before: vec![1, 2], tokens: tokens.to_vec() }
    }

    #[test]
    fn a_file_cut_anywhere_keeps_every_whole_answer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = AnswerLog::open(&path, &asked(1)).unwrap();
        let begins = std::fs::metadata(&path).unwrap().len() as usize;
        log.add(4, answer(&[7, 8, 9])).unwrap();
        let first_ends = std::fs::metadata(&path).unwrap().len() as usize;
        log.add(2, answer(&[])).unwrap();
        assert_eq!(log.tokens(), 3);
        let whole = std::fs::read(&path).unwrap();
        for len in 0..=whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            let mut log = AnswerLog::open(&path, &asked(1)).unwrap();
            let has = |log: &AnswerLog, number| log.numbers().any(|other| other == number);
            assert_eq!((has(&log, 4), has(&log, 2)), (len >= first_ends, len == whole.len()), "{len}");
            log.add(9, answer(&[5])).unwrap();
            let again = AnswerLog::open(&path, &asked(1)).unwrap();
            assert!(has(&again, 9) && has(&again, 4) == (len >= first_ends) && !has(&again, 0));
            assert_eq!(again.tokens(), if len >= first_ends { 4 } else { 1 });
        }
        assert!(begins < first_ends);
    }

    #[test]
    fn damaged_answers_are_left_out_with_all_behind_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = AnswerLog::open(&path, &asked(1)).unwrap();
        log.add(0, answer(&[1])).unwrap();
        log.add(1, answer(&[2])).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 10;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let log = AnswerLog::open(&path, &asked(1)).unwrap();
        assert_eq!(log.numbers().collect::<Vec<_>>(), [0]);
        assert_eq!(log.answers().collect::<Vec<_>>(), [(0, &answer(&[1]))]);
    }

    #[test]
    fn answers_to_other_questions_are_not_mixed_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        AnswerLog::open(&path, &asked(1)).unwrap();
        let error = AnswerLog::open(&path, &asked(2)).unwrap_err().to_string();
        assert!(error.contains("other questions") && error.contains("another file"), "{error}");
        std::fs::write(&path, "something else\n").unwrap();
        assert!(AnswerLog::open(&path, &asked(1)).unwrap_err().to_string().contains("no answers"));
    }
}
