//! The request that the arguments ask for.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result};
use foretoken_proto::v1::generate_request::Prompt;
use foretoken_proto::v1::{ChatMessage, ChatPrompt, DrafterKind, GenerateRequest, Rule as WireRule};

use crate::cli::{Drafter, GenerateArgs};
use crate::failure::UsageError;
use crate::rounds::{RoundArgs, Rule};
use crate::sampling::SamplingArgs;

/// Stop strings that a request may have.
const MAX_STOPS: usize = 16;

/// Reads the prompt from where the arguments say.
pub(super) fn prompt(args: &GenerateArgs) -> Result<String> {
    match (&args.prompt, &args.file) {
        (Some(prompt), _) => Ok(prompt.clone()),
        (None, Some(file)) if file != Path::new("-") => {
            let bytes =
                fs::read(file).with_context(|| format!("cannot read the prompt file {}", file.display()))?;
            text(bytes, &file.display().to_string())
        }
        (None, None) if io::stdin().is_terminal() => {
            Err(UsageError("no prompt: give it as an argument, with --file, or on standard input".to_owned())
                .into())
        }
        (None, _) => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
            text(bytes, "standard input")
        }
    }
}

/// Editors and `echo` end a text with a line end that nobody means as part of the prompt: one is taken off.
fn text(bytes: Vec<u8>, source: &str) -> Result<String> {
    let mut text =
        String::from_utf8(bytes).with_context(|| format!("the prompt from {source} is not UTF-8"))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() {
        return Err(UsageError(format!("{source} holds no prompt")).into());
    }
    Ok(text)
}

/// The request; without a `drafter` the server takes what it has.
pub(super) fn request(
    args: &GenerateArgs,
    prompt: String,
    drafter: Option<Drafter>,
) -> Result<GenerateRequest> {
    if args.sampling.logprobs.is_some() && !args.json {
        let text = "--logprobs are told in the record only; add --json".to_owned();
        return Err(UsageError(text).into());
    }
    let prompt =
        if args.chat { Prompt::Chat(chat(args.system.clone(), prompt)) } else { Prompt::Text(prompt) };
    let request = assemble(prompt, &args.sampling, args.rounds, drafter)?;
    Ok(GenerateRequest { rounds: args.trace, ..request })
}

/// The request for any prompt.
pub(crate) fn assemble(
    prompt: Prompt,
    sampling: &SamplingArgs,
    rounds: RoundArgs,
    drafter: Option<Drafter>,
) -> Result<GenerateRequest> {
    if sampling.stop.len() > MAX_STOPS {
        let text = format!("--stop is given {} times; at most {MAX_STOPS} are taken", sampling.stop.len());
        return Err(UsageError(text).into());
    }
    let drafter = match drafter {
        Some(Drafter::Model) => DrafterKind::Model,
        Some(Drafter::Ngram) => DrafterKind::Ngram,
        Some(Drafter::None) => DrafterKind::None,
        None => DrafterKind::Unspecified,
    };
    Ok(GenerateRequest {
        prompt: Some(prompt),
        sampling: Some(sampling.wire()),
        seed: sampling.seed,
        max_tokens: Some(sampling.max_tokens),
        stop: sampling.stop.clone(),
        draft_len: rounds.draft_len,
        drafter: drafter.into(),
        request_id: String::new(),
        stop_ids: sampling.stop_ids.clone(),
        ignore_eos: sampling.ignore_eos,
        n: Some(sampling.samples),
        logprobs: sampling.logprobs,
        rule: rounds.rule.map_or(WireRule::Unspecified, Rule::wire).into(),
        min_confidence: rounds.min_confidence,
        rounds: false,
    })
}

fn chat(system: Option<String>, user: String) -> ChatPrompt {
    let message = |role: &str, content| ChatMessage { role: role.to_owned(), content };
    let system = system.map(|content| message("system", content));
    ChatPrompt { messages: system.into_iter().chain([message("user", user)]).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use foretoken_proto::v1::{LogitBias, Sampling};

    fn args(words: &[&str]) -> GenerateArgs {
        let words = ["foretoken", "generate"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Generate(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_argument_reaches_its_field() {
        let args = args(&[
            "--temperature",
            "0.5",
            "--top-k",
            "40",
            "--top-p",
            "0.9",
            "--min-p",
            "0.1",
            "--seed",
            "7",
            "-n",
            "9",
            "--stop",
            "a",
            "--stop",
            "b",
            "--draft-len",
            "0",
            "--drafter",
            "none",
            "--rule",
            "block",
            "--min-confidence",
            "0.25",
            "--server",
            "h:1",
            "--repetition-penalty",
            "1.1",
            "--presence-penalty",
            "-0.5",
            "--frequency-penalty",
            "0.25",
            "--logit-bias",
            "5=-100,6=1.5",
            "--min-tokens",
            "3",
            "--allowed-ids",
            "1,2",
            "--forbidden-ids",
            "2",
            "--stop-ids",
            "7,8",
            "--ignore-eos",
            "--samples",
            "4",
            "--json",
            "--trace",
            "--logprobs",
            "2",
            "Hi",
        ]);
        let request = request(&args, prompt(&args).unwrap(), args.models.drafter).unwrap();
        let sampling = Sampling {
            temperature: 0.5,
            top_k: 40,
            top_p: Some(0.9),
            min_p: 0.1,
            logit_bias: vec![LogitBias { id: 5, bias: -100.0 }, LogitBias { id: 6, bias: 1.5 }],
            repetition_penalty: Some(1.1),
            presence_penalty: -0.5,
            frequency_penalty: 0.25,
            min_tokens: 3,
            allowed_ids: vec![1, 2],
            forbidden_ids: vec![2],
        };
        assert_eq!(
            request,
            GenerateRequest {
                prompt: Some(Prompt::Text("Hi".to_owned())),
                sampling: Some(sampling),
                seed: Some(7),
                max_tokens: Some(9),
                stop: vec!["a".to_owned(), "b".to_owned()],
                draft_len: Some(0),
                drafter: DrafterKind::None.into(),
                request_id: String::new(),
                stop_ids: vec![7, 8],
                ignore_eos: true,
                n: Some(4),
                logprobs: Some(2),
                rule: WireRule::Block.into(),
                min_confidence: Some(0.25),
                rounds: true,
            }
        );
    }

    #[test]
    fn without_a_drafter_the_server_chooses() {
        let kind = |drafter| request(&args(&["x"]), String::new(), drafter).unwrap().drafter();
        assert_eq!(kind(None), DrafterKind::Unspecified);
        assert_eq!(kind(Some(Drafter::Ngram)), DrafterKind::Ngram);
        assert_eq!(kind(Some(Drafter::Model)), DrafterKind::Model);
    }

    #[test]
    fn chat_puts_the_system_message_first() {
        let args = args(&["--chat", "--system", "Be brief.", "Hi"]);
        let Some(Prompt::Chat(chat)) = request(&args, prompt(&args).unwrap(), None).unwrap().prompt else {
            panic!("no chat prompt");
        };
        let roles: Vec<_> = chat.messages.iter().map(|m| (m.role.as_str(), m.content.as_str())).collect();
        assert_eq!(roles, [("system", "Be brief."), ("user", "Hi")]);
    }

    #[test]
    fn a_file_loses_one_line_end_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prompt.txt");
        let read = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            prompt(&args(&["--file", file.to_str().unwrap()]))
        };
        assert_eq!(read(b" a\n\n").unwrap(), " a\n");
        assert_eq!(read(b"a\r\n").unwrap(), "a");
        assert_eq!(read(b"a").unwrap(), "a");
        assert!(read(b"\n").unwrap_err().downcast_ref::<UsageError>().is_some());
        assert!(format!("{:#}", read(b"\xff").unwrap_err()).contains("prompt.txt is not UTF-8"));
    }

    #[test]
    fn log_probabilities_without_a_record_are_refused() {
        let error = request(&args(&["--logprobs", "3", "Hi"]), String::new(), None).unwrap_err();
        assert!(error.to_string().starts_with("--logprobs"), "{error}");
        assert!(request(&args(&["--logprobs", "3", "--json", "Hi"]), String::new(), None).is_ok());
    }

    #[test]
    fn too_many_stop_strings_are_counted() {
        let words: Vec<&str> = ["--stop", "x"].repeat(17).into_iter().chain(["Hi"]).collect();
        let error = request(&args(&words), String::new(), None).unwrap_err();
        assert_eq!(error.to_string(), "--stop is given 17 times; at most 16 are taken");
    }
}
