//! What runs on this machine: the models that the arguments ask for, and who drafts.

use std::path::{Path, PathBuf};

use anyhow::Result;
use foretoken_draft_worker::tables;
use indicatif::MultiProgress;

use crate::catalogue::Catalogue;
use crate::cli::{Drafter, LocalArgs};
use crate::cluster::Drafting;
use crate::failure::UsageError;

/// Who drafts, once flags and defaults are put together.
pub(crate) fn drafter(args: &LocalArgs) -> Result<Drafter, UsageError> {
    match (args.drafter, args.draft()) {
        (None | Some(Drafter::Model), Some(_)) => Ok(Drafter::Model),
        (None, None) => Ok(Drafter::Ngram),
        (Some(Drafter::Model), None) => Err(UsageError(
            "--drafter model needs a model: give one with the target's tokenizer by --draft NAME_OR_PATH"
                .to_owned(),
        )),
        (Some(drafter), None) => Ok(drafter),
        (Some(_), Some(draft)) => Err(UsageError(format!(
            "--draft {draft} (or FORETOKEN_DRAFT) names a draft model that --drafter leaves unused; give only one of them"
        ))),
    }
}

/// The files of target and drafter; models that have a name are fetched if they are not here yet.
pub(crate) fn models(
    args: &LocalArgs,
    drafter: Drafter,
    progress: &MultiProgress,
) -> Result<(PathBuf, Drafting)> {
    let catalogue = Catalogue::open(progress.clone())?;
    let target = catalogue.resolve(args.target())?;
    let drafting = match (drafter, args.draft()) {
        (Drafter::Model, Some(draft)) => Drafting::Model(catalogue.resolve(draft)?),
        (Drafter::None, _) => Drafting::None,
        // A model without its file is refused by `drafter`.
        (Drafter::Ngram | Drafter::Model, _) => Drafting::Ngram(ngram_table(args)?),
    };
    Ok((target, drafting))
}

/// Turns the table off.
const NO_TABLE: &str = "none";

/// The n-gram table that is asked for, else the one that comes with this program for the target.
fn ngram_table(args: &LocalArgs) -> Result<Option<String>> {
    match args.ngram_table() {
        Some(NO_TABLE) => Ok(None),
        // Refused here and not by a service that has just been started.
        Some(table) => tables::load(table).map(|_| Some(table.to_owned())),
        None => Ok(shipped_table(args.target()).map(str::to_owned)),
    }
}

/// The name of the table that comes with this program for a target, if that is asked for by its name.
pub(crate) fn shipped_table(target: &str) -> Option<&'static str> {
    let by_name = !Path::new(target).exists();
    tables::shipped().find(|name| by_name && name.eq_ignore_ascii_case(target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::DEFAULT_TARGET;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Words {
        #[command(flatten)]
        local: LocalArgs,
    }

    fn chosen(words: &[&str]) -> Result<Drafter, String> {
        let words = Words::try_parse_from(std::iter::once(&"x").chain(words)).unwrap();
        drafter(&words.local).map_err(|error| error.to_string())
    }

    #[test]
    fn a_draft_model_implies_itself() {
        assert_eq!(chosen(&[]), Ok(Drafter::Ngram));
        assert_eq!(chosen(&["--draft", "m"]), Ok(Drafter::Model));
        assert_eq!(chosen(&["--draft", "m", "--drafter", "model"]), Ok(Drafter::Model));
        assert_eq!(chosen(&["--drafter", "none"]), Ok(Drafter::None));
        assert_eq!(chosen(&["--draft", "", "--drafter", "ngram"]), Ok(Drafter::Ngram));
    }

    #[test]
    fn contradictions_say_what_to_do() {
        let error = chosen(&["--drafter", "model"]).unwrap_err();
        assert!(error.contains("give one") && error.contains("--draft NAME_OR_PATH"), "{error}");
        let error = chosen(&["--drafter", "none", "--draft", "m"]).unwrap_err();
        assert!(error.starts_with("--draft m") && error.contains("only one"), "{error}");
    }

    #[test]
    fn a_target_by_name_brings_its_table() {
        let table = |words: &[&str]| {
            let words = Words::try_parse_from(std::iter::once(&"x").chain(words)).unwrap();
            ngram_table(&words.local).map_err(|error| format!("{error:#}"))
        };
        let shipped = Some("SmolLM2-135M-Instruct".to_owned());
        assert_eq!(table(&[]), Ok(shipped.clone()));
        assert_eq!(table(&["--target", "smollm2-135m-instruct"]), Ok(shipped.clone()));
        assert_eq!(table(&["--target", "other.gguf", "--ngram-table", "SmolLM2-135M-Instruct"]), Ok(shipped));
        assert_eq!(table(&["--target", "other.gguf"]), Ok(None));
        assert_eq!(table(&["--ngram-table", "none"]), Ok(None));
        let error = table(&["--ngram-table", "no/such.ngram"]).unwrap_err();
        assert!(error.contains("no/such.ngram") && error.contains("SmolLM2-135M-Instruct"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = table(&["--ngram-table", file.path().to_str().unwrap()]).unwrap_err();
        assert!(error.contains("no n-gram table"), "{error}");
    }

    #[test]
    fn the_default_target_has_a_table_that_can_be_read() {
        let table = tables::load(shipped_table(DEFAULT_TARGET).unwrap()).unwrap();
        assert!(table.head().order == 4 && table.rows() > 1_000, "{table:?}");
    }

    #[test]
    fn paths_are_taken_as_they_are() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let words = Words::try_parse_from(["x", "--target", path, "--draft", path]).unwrap();
        let (target, drafting) = models(&words.local, Drafter::Model, &MultiProgress::new()).unwrap();
        assert_eq!(target, file.path());
        assert_eq!(drafting, Drafting::Model(file.path().to_owned()));
    }
}
