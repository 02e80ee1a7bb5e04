//! Look-up in the text itself (Saxena 2023, "Prompt Lookup Decoding").
//!
//! The text's last token is looked for earlier in the text, newest first; each place says what followed there and
//! how many tokens before it are the text's last ones. What to make of them is the guesser's part. The index grows
//! by a token and shrinks by a token in constant time, so that it follows a text whose end is cut off again and
//! again, and no more than a bounded number of places is looked at.

use std::collections::HashMap;

/// How far and how strictly to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NgramConfig {
    /// Longest suffix to look for, in tokens.
    pub max_match: usize,
    /// Shortest suffix whose match is a repetition, in tokens; at least 1. A shorter match is evidence beside a table's,
    /// and none where there is no table.
    pub min_match: usize,
    /// Places looked at for one guess, the newest first; 0 switches look-up off.
    pub max_places: usize,
}

impl Default for NgramConfig {
    fn default() -> Self {
        Self { max_match: 8, min_match: 2, max_places: 256 }
    }
}

/// The index over one text: where each token stood last, and before that, and before that.
#[derive(Debug, Clone)]
pub struct LookUp {
    config: NgramConfig,
    /// One for each token of the text.
    ends: Vec<End>,
    /// The newest end with each token.
    newest: HashMap<u32, u32>,
}

/// A token, and the place before it that ends with the same one. An end counts the tokens before it; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    token: u32,
    previous: u32,
}

/// A place that looks like the text's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// What followed there.
    pub token: u32,
    /// How many tokens before it are the text's last ones: 1 to the longest match.
    pub len: usize,
}

impl LookUp {
    /// An index of no text.
    #[must_use]
    pub fn new(config: NgramConfig) -> Self {
        Self { config, ends: Vec::new(), newest: HashMap::new() }
    }

    /// Tokens of the text indexed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no text is indexed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes in what `text` holds beyond [`len`](Self::len) tokens; the ones before are those indexed already.
    pub fn extend(&mut self, text: &[u32]) {
        for &token in text.iter().skip(self.ends.len()) {
            // A text beyond 32 bits of length would only lose its newest places.
            let end = u32::try_from(self.ends.len() + 1).unwrap_or(0);
            let previous = self.newest.insert(token, end).unwrap_or(0);
            self.ends.push(End { token, previous });
        }
    }

    /// Forgets all tokens from `len` on.
    pub fn truncate(&mut self, len: usize) {
        for End { token, previous } in self.ends.drain(len.min(self.ends.len())..).rev() {
            match previous {
                0 => self.newest.remove(&token),
                previous => self.newest.insert(token, previous),
            };
        }
    }

    /// Where the text's last token stood before, the newest first. `text` is the text indexed.
    pub fn places<'a>(&'a self, text: &'a [u32]) -> impl Iterator<Item = Place> + 'a {
        debug_assert_eq!(text.len(), self.ends.len(), "another text is indexed");
        let before = |end: &End| Some(end.previous as usize).filter(|&end| end > 0);
        let newest = self.ends.last().and_then(before);
        std::iter::successors(newest, move |&end| before(&self.ends[end - 1]))
            .take(self.config.max_places)
            .map(|end| Place {
                token: text[end],
                len: common_suffix(&text[..end], text, self.config.max_match),
            })
    }
}

/// Tokens that two texts have in common at their ends, up to `most`.
fn common_suffix(a: &[u32], b: &[u32], most: usize) -> usize {
    a.iter().rev().zip(b.iter().rev()).take(most).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(config: NgramConfig, text: &[u32]) -> Vec<(u32, usize)> {
        let mut index = LookUp::new(config);
        index.extend(text);
        index.places(text).map(|place| (place.token, place.len)).collect()
    }

    /// The definition: every earlier place is looked at.
    fn by_definition(config: NgramConfig, text: &[u32]) -> Vec<(u32, usize)> {
        let ends =
            (1..text.len()).rev().map(|end| (end, common_suffix(&text[..end], text, config.max_match)));
        ends.filter(|&(_, len)| len > 0).map(|(end, len)| (text[end], len)).take(config.max_places).collect()
    }

    #[test]
    fn places_come_newest_first_and_say_how_much_matches() {
        let text = [7, 1, 2, 3, 9, 4, 2, 3, 8, 7, 1, 2, 3];
        assert_eq!(places(NgramConfig::default(), &text), [(8, 2), (9, 4)]);
        let shorter = NgramConfig { max_match: 3, ..NgramConfig::default() };
        assert_eq!(places(shorter, &text), [(8, 2), (9, 3)]);
    }

    #[test]
    fn a_token_that_is_new_has_no_place() {
        for text in [[1, 2, 3].as_slice(), &[], &[1]] {
            assert!(places(NgramConfig::default(), text).is_empty());
        }
    }

    #[test]
    fn so_many_places_are_looked_at_and_no_more() {
        let text = [2, 9, 2, 8, 2, 7, 2];
        let looked_at = |max_places| places(NgramConfig { max_places, ..NgramConfig::default() }, &text);
        assert_eq!(looked_at(2), [(7, 1), (8, 1)]);
        assert_eq!(looked_at(0), []);
    }

    /// Texts over few tokens, so that everything repeats; and cuts, as rejections make them.
    fn steps() -> impl Strategy<Value = Vec<(usize, Vec<u32>)>> {
        prop::collection::vec((0..12usize, prop::collection::vec(0..3u32, 0..12)), 1..12)
    }

    proptest! {
        #[test]
        fn it_is_the_definition_after_any_cuts(steps in steps(), max_match in 1..6usize, max_places in 0..9usize) {
            let config = NgramConfig { max_match, max_places, ..NgramConfig::default() };
            let (mut index, mut text) = (LookUp::new(config), Vec::new());
            for (cut, more) in steps {
                text.truncate(text.len().saturating_sub(cut));
                index.truncate(text.len());
                text.extend(more);
                index.extend(&text);
                let found: Vec<_> = index.places(&text).map(|place| (place.token, place.len)).collect();
                prop_assert_eq!(found, by_definition(config, &text));
                // Nothing is left of what was cut off: the index is the one of the text alone.
                let mut fresh = LookUp::new(config);
                fresh.extend(&text);
                prop_assert_eq!(&index.ends, &fresh.ends);
                prop_assert_eq!(&index.newest, &fresh.newest);
            }
        }
    }
}
