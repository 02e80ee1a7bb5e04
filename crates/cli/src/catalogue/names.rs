//! Finds an entry by what the user wrote, and says what is known when there is none.

use super::table::Entry;

/// The entry of that name, upper and lower case alike.
pub(crate) fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.name.eq_ignore_ascii_case(name))
}

/// What to tell a user whose text is neither a file nor a name.
pub(crate) fn unknown(entries: &[Entry], text: &str) -> String {
    let known = entries.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
    let hint = closest(entries, text).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    format!("{text:?} is neither a file nor the name of a model; known models: {known}{hint}")
}

/// The name that is most like `text`, if any is like it at all.
fn closest<'a>(entries: &'a [Entry], text: &str) -> Option<&'a str> {
    let text = text.to_ascii_lowercase();
    entries
        .iter()
        .map(|entry| (distance(&entry.name.to_ascii_lowercase(), &text), entry.name))
        .min()
        // More than half of the longer text would have to change: that is another word, not a slip.
        .filter(|(distance, name)| distance * 2 <= name.len().max(text.len()))
        .map(|(_, name)| name)
}

/// Edits between a name and a text, or one if the text is how the name begins: people shorten long names.
fn distance(name: &str, text: &str) -> usize {
    if text.len() >= 3 && name.len() > text.len() && name.starts_with(text) {
        return 1;
    }
    edits(name, text)
}

/// Insertions, deletions and replacements that make one text of the other (Levenshtein).
fn edits(name: &str, text: &str) -> usize {
    let text: Vec<char> = text.chars().collect();
    let mut row: Vec<usize> = (0..=text.len()).collect();
    for (i, a) in name.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in text.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[text.len()]
}

#[cfg(test)]
mod tests {
    use super::super::table::{DEFAULT_TARGET, entries};
    use super::*;

    #[test]
    fn differences_are_counted_in_edits() {
        for (a, b, count) in
            [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("same", "same", 0), ("ab", "ba", 2)]
        {
            assert_eq!(edits(a, b), count, "{a} {b}");
        }
    }

    #[test]
    fn case_does_not_matter() {
        assert!(find(entries(), &DEFAULT_TARGET.to_uppercase()).is_some());
        assert!(find(entries(), "smollm2").is_none());
    }

    #[test]
    fn slips_get_a_hint_and_strangers_do_not() {
        for slip in ["smollm2", "SmolLM-135M-Instruct", "smollm2-135m-instuct"] {
            let text = unknown(entries(), slip);
            assert!(text.ends_with("did you mean SmolLM2-135M-Instruct?"), "{text}");
        }
        let text = unknown(entries(), "gpt");
        assert!(text.ends_with("known models: SmolLM2-135M-Instruct"), "{text}");
    }
}
