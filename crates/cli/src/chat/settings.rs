//! How answers are sampled and drafted, as the command line began it and `/set` goes on.
//!
//! A setting is a flag of `foretoken generate` with its value: the flags themselves say what there is, what a value may be
//! and what is wrong with one that is not. Nothing here has to be changed when a flag is added there.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, Parser};

use crate::cli::Drafter;
use crate::rounds::RoundArgs;
use crate::sampling::SamplingArgs;

/// Longest answer unless told: conversations are not to break off in the middle of a thought.
const MAX_TOKENS: &str = "512";

/// What can be set.
#[derive(Parser, Debug)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(super) struct Values {
    #[command(flatten)]
    pub(super) sampling: SamplingArgs,

    #[command(flatten)]
    pub(super) rounds: RoundArgs,

    #[arg(long)]
    pub(super) drafter: Option<Drafter>,
}

/// The settings in force.
#[derive(Debug)]
pub(super) struct Settings {
    /// Each given flag's values, by its id.
    given: BTreeMap<String, Vec<OsString>>,
    values: Values,
}

impl Settings {
    /// As the command line says.
    pub(super) fn new(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = BTreeMap::new();
        for arg in Values::command().get_arguments() {
            let id = arg.get_id().as_str();
            if let Ok(Some(values)) = matches.try_get_raw(id) {
                given.insert(id.to_owned(), values.map(ToOwned::to_owned).collect());
            }
        }
        if matches.value_source("max_tokens") == Some(ValueSource::DefaultValue) {
            given.insert("max_tokens".to_owned(), vec![MAX_TOKENS.into()]);
        }
        let values = parse(&given)?;
        Ok(Self { given, values })
    }

    /// What the settings come to.
    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// Sets one, or takes it back to its default if there is no value. What is wrong is said, and changes nothing.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let id = name.replace('-', "_");
        if !ids().any(|known| known == id) {
            return Err(format!(
                "there is no setting {name}; there are {}",
                ids().collect::<Vec<_>>().join(", ")
            ));
        }
        let mut given = self.given.clone();
        match value {
            Some(value) => given.insert(id, vec![value.into()]),
            None => given.remove(&id),
        };
        self.values = parse(&given).map_err(|error| complaint(&error))?;
        self.given = given;
        Ok(())
    }

    /// A line for each, with its value.
    pub(super) fn list(&self) -> String {
        let value = |id: &String| match self.given.get(id) {
            Some(values) => values.iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(" "),
            None => "-".to_owned(),
        };
        ids().map(|id| format!("{id:<18} {}\n", value(&id))).collect()
    }
}

/// Flags of `generate` that mean nothing in a conversation: it has one answer, and shows its text.
pub(super) const WITHOUT: [&str; 2] = ["samples", "logprobs"];

/// The names of all settings, in the order of `--help`.
fn ids() -> impl Iterator<Item = String> {
    let command = Values::command();
    let ids: Vec<_> = command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
    ids.into_iter().filter(|id| !WITHOUT.contains(&id.as_str()))
}

fn parse(given: &BTreeMap<String, Vec<OsString>>) -> Result<Values, clap::Error> {
    let command = Values::command();
    Values::try_parse_from(command.get_arguments().flat_map(|arg| words(arg, given)))
}

/// A flag with its values, as they stand on a command line.
fn words(arg: &Arg, given: &BTreeMap<String, Vec<OsString>>) -> Vec<OsString> {
    let (Some(long), Some(values)) = (arg.get_long(), given.get(arg.get_id().as_str())) else {
        return Vec::new();
    };
    let word = |value: &OsString| match arg.get_action() {
        // Such a flag has no value of its own: it is there or it is not.
        ArgAction::SetTrue => (value == "true").then(|| format!("--{long}").into()),
        _ => {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            Some(word)
        }
    };
    values.iter().filter_map(word).collect()
}

/// The first line of what clap says, which is what is wrong.
fn complaint(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    fn settings(words: &[&str]) -> Settings {
        let words = ["foretoken", "chat"].iter().chain(words);
        let matches = Cli::command().try_get_matches_from(words).unwrap();
        Settings::new(matches.subcommand_matches("chat").unwrap()).unwrap()
    }

    #[test]
    fn the_command_line_begins_and_set_goes_on() {
        let mut settings = settings(&["--temperature", "0.5", "--seed", "7", "--stop", "a", "--stop", "b"]);
        let sampling = &settings.values().sampling;
        assert_eq!((sampling.temperature, sampling.seed, sampling.max_tokens), (0.5, Some(7), 512));
        assert_eq!(sampling.stop, ["a", "b"]);
        settings.set("top_p", Some("0.9")).unwrap();
        settings.set("draft-len", Some("8")).unwrap();
        settings.set("drafter", Some("none")).unwrap();
        settings.set("seed", None).unwrap();
        let values = settings.values();
        assert_eq!((values.sampling.temperature, values.sampling.top_p), (0.5, 0.9));
        assert_eq!((values.rounds.draft_len, values.sampling.seed), (Some(8), None));
        assert_eq!(values.drafter, Some(Drafter::None));
    }

    #[test]
    fn an_explicit_length_stays() {
        assert_eq!(settings(&["-n", "9"]).values().sampling.max_tokens, 9);
    }

    #[test]
    fn a_wrong_value_is_told_and_changes_nothing() {
        let mut settings = settings(&[]);
        let error = settings.set("temperature", Some("hot")).unwrap_err();
        assert!(error.contains("hot") && error.contains("between 0 and 100"), "{error}");
        let error = settings.set("warmth", Some("1")).unwrap_err();
        assert!(error.contains("warmth") && error.contains("temperature, top_k"), "{error}");
        assert_eq!(settings.values().sampling.temperature, 0.0);
        settings.set("temperature", Some("1")).unwrap();
        assert_eq!(settings.values().sampling.temperature, 1.0);
    }

    #[test]
    fn every_setting_is_listed() {
        let mut settings = settings(&["--temperature", "0.5"]);
        settings.set("draft_len", Some("3")).unwrap();
        let list = settings.list();
        let value = |name: &str| {
            let line = list.lines().find(|line| line.split_whitespace().next() == Some(name));
            line.and_then(|line| line.split_whitespace().nth(1)).map(str::to_owned)
        };
        for (name, right) in [
            ("temperature", "0.5"),
            ("max_tokens", "512"),
            ("draft_len", "3"),
            ("seed", "-"),
            ("drafter", "-"),
        ] {
            assert_eq!(value(name).as_deref(), Some(right), "{list}");
        }
    }
}
