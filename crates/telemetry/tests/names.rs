//! The table of names: the page says what the constants say, and conventional names are the conventions'.

#![allow(clippy::unwrap_used, reason = "a test stops where its premises fail")]

use foretoken_telemetry::names;
use opentelemetry_semantic_conventions::attribute;

const SOURCE: &str = include_str!("../src/names.rs");
const PAGE: &str = include_str!("../NAMES.md");

/// A constant as it is declared: its documentation and its value.
#[derive(Debug)]
struct Name {
    value: String,
    meaning: String,
}

/// The names declared in a source file, in its order.
fn declared(source: &str) -> Vec<Name> {
    let mut names = Vec::new();
    let mut meaning = Vec::new();
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("///") {
            meaning.push(text.trim());
        } else if let Some(declaration) = line.strip_prefix("pub const ") {
            let value = declaration.split('"').nth(1).expect("a name is a literal on its own line");
            names.push(Name { value: value.into(), meaning: meaning.join(" ") });
            meaning.clear();
        } else {
            meaning.clear();
        }
    }
    names
}

#[test]
fn the_page_says_what_the_constants_say() {
    let names = declared(SOURCE);
    assert!(names.len() > 40, "{} names were found", names.len());
    let rows: Vec<_> = names.iter().map(|name| format!("| `{}` | {} |", name.value, name.meaning)).collect();
    let on_page: Vec<_> = PAGE.lines().filter(|line| line.starts_with("| `")).collect();
    let missing: Vec<_> = rows.iter().filter(|row| !on_page.contains(&row.as_str())).collect();
    let stale: Vec<_> = on_page.iter().filter(|row| !rows.iter().any(|own| own == *row)).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "NAMES.md lacks these rows:\n{missing:#?}\nand has these of no constant:\n{stale:#?}"
    );
    assert_eq!(rows.len(), on_page.len(), "a row stands twice");
}

#[test]
fn every_name_is_declared_once() {
    let mut values: Vec<_> = declared(SOURCE).into_iter().map(|name| name.value).collect();
    values.sort_unstable();
    for pair in values.windows(2) {
        assert_ne!(pair[0], pair[1], "declared twice");
    }
}

#[test]
#[allow(deprecated, reason = "the gen_ai names moved to a repository of their own, unchanged")]
fn conventional_names_are_the_conventions() {
    let conventions = [
        (names::REQUEST_MODEL, attribute::GEN_AI_REQUEST_MODEL),
        (names::INPUT_TOKENS, attribute::GEN_AI_USAGE_INPUT_TOKENS),
        (names::OUTPUT_TOKENS, attribute::GEN_AI_USAGE_OUTPUT_TOKENS),
        (names::RPC_SYSTEM, attribute::RPC_SYSTEM_NAME),
        (names::RPC_METHOD, attribute::RPC_METHOD),
        (names::RPC_STATUS, attribute::RPC_RESPONSE_STATUS_CODE),
        (names::ERROR_TYPE, attribute::ERROR_TYPE),
    ];
    for (ours, theirs) in conventions {
        assert_eq!(ours, theirs);
    }
    // What is neither ours nor checked above has no business here.
    for Name { value, .. } in declared(SOURCE).iter().filter(|name| name.value.contains('.')) {
        let checked = conventions.iter().any(|&(_, theirs)| theirs == value);
        assert!(checked || value.starts_with("foretoken."), "{value} is checked against no convention");
    }
}
