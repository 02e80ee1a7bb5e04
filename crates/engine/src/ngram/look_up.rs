//! Look-up in the text itself (Saxena 2023, "Prompt Lookup Decoding").
//!
//! The text's last tokens are looked for earlier in the text, longest match first and newest first; what
//! followed there is the guess. The index grows by a token and shrinks by a token in constant time, so that it
//! follows a text whose end is cut off again and again, and a guess never looks at more than a bounded number
//! of places.

use std::collections::HashMap;

use crate::conversation::TextHash;

/// How far and how strictly to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NgramConfig {
    /// Longest suffix to look for, in tokens.
    pub max_match: usize,
    /// Shortest suffix whose match counts, in tokens; at least 1.
    pub min_match: usize,
    /// Places looked at for one guess, the newest first; 0 switches look-up off.
    pub max_places: usize,
}

impl Default for NgramConfig {
    fn default() -> Self {
        Self { max_match: 8, min_match: 2, max_places: 64 }
    }
}

/// The index over one text: where each run of `min_match` tokens stood last, and before that, and before that.
#[derive(Debug, Clone)]
pub struct LookUp {
    config: NgramConfig,
    /// One for each token of the text: the run that ends with it.
    runs: Vec<Run>,
    /// The newest end of each run, by its hash. Hashes only find places; tokens are compared.
    newest: HashMap<u64, u32>,
}

/// The run of `min_match` tokens that ends at a place, and the place before it where a run of the same hash ends.
/// An end counts the tokens before it; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    hash: u64,
    previous: u32,
}

impl LookUp {
    /// An index of no text.
    #[must_use]
    pub fn new(config: NgramConfig) -> Self {
        Self {
            config: NgramConfig { min_match: config.min_match.max(1), ..config },
            runs: Vec::new(),
            newest: HashMap::new(),
        }
    }

    /// Tokens of the text indexed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether no text is indexed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Takes in what `text` holds beyond [`len`](Self::len) tokens; the ones before are those indexed already.
    pub fn extend(&mut self, text: &[u32]) {
        for end in self.runs.len() + 1..=text.len() {
            let run = match end.checked_sub(self.config.min_match) {
                Some(start) if self.config.max_places > 0 => {
                    let hash = TextHash::EMPTY.then_all(&text[start..end]).value();
                    // A text beyond 32 bits of length would only lose its newest places.
                    let end = u32::try_from(end).unwrap_or(0);
                    Run { hash, previous: self.newest.insert(hash, end).unwrap_or(0) }
                }
                _ => Run { hash: 0, previous: 0 },
            };
            self.runs.push(run);
        }
    }

    /// Forgets all tokens from `len` on.
    pub fn truncate(&mut self, len: usize) {
        while self.runs.len() > len {
            let end = self.runs.len();
            let Some(run) = self.runs.pop() else { return };
            if self.config.max_places == 0 || end < self.config.min_match {
                continue;
            }
            match run.previous {
                0 => self.newest.remove(&run.hash),
                previous => self.newest.insert(run.hash, previous),
            };
        }
    }

    /// What followed the newest of the longest earlier occurrences of the text's end. `text` is the text indexed.
    #[must_use]
    pub fn guess(&self, text: &[u32]) -> Option<u32> {
        debug_assert_eq!(text.len(), self.runs.len(), "another text is indexed");
        let mut end = self.runs.last()?.previous as usize;
        let mut best: Option<(usize, usize)> = None;
        for _ in 0..self.config.max_places {
            if end == 0 {
                break;
            }
            let len = common_suffix(&text[..end], text, self.config.max_match.max(self.config.min_match));
            if len >= self.config.min_match && best.is_none_or(|(_, longest)| len > longest) {
                best = Some((end, len));
                if len >= self.config.max_match {
                    break;
                }
            }
            end = self.runs[end - 1].previous as usize;
        }
        best.map(|(end, _)| text[end])
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

    fn indexed(config: NgramConfig, text: &[u32]) -> LookUp {
        let mut index = LookUp::new(config);
        index.extend(text);
        index
    }

    /// The definition: every earlier place is looked at.
    fn by_definition(config: NgramConfig, text: &[u32]) -> Option<u32> {
        let places = (1..text.len()).map(|end| (common_suffix(&text[..end], text, config.max_match), end));
        let best = places.filter(|&(len, _)| len >= config.min_match).max();
        best.map(|(_, end)| text[end])
    }

    /// Guesses a block, each guess part of the text for the next.
    fn block(text: &[u32], len: usize) -> Vec<u32> {
        let (mut index, mut text) = (indexed(NgramConfig::default(), text), text.to_vec());
        let before = text.len();
        while text.len() < before + len {
            let Some(token) = index.guess(&text) else { break };
            text.push(token);
            index.extend(&text);
        }
        text.split_off(before)
    }

    #[test]
    fn continues_the_newest_of_the_longest_matches() {
        assert_eq!(block(&[1, 2, 3, 9, 1, 2, 3, 8, 5, 1, 2, 3], 2), [8, 5]);
        // A longer match wins over a newer one.
        assert_eq!(block(&[7, 1, 2, 3, 9, 4, 2, 3, 8, 7, 1, 2, 3], 1), [9]);
    }

    #[test]
    fn one_equal_token_is_no_match() {
        for text in [[1, 2, 3, 4, 1].as_slice(), &[], &[1]] {
            assert!(block(text, 4).is_empty());
        }
    }

    #[test]
    fn periods_run_on_past_the_end() {
        assert_eq!(block(&[5, 6, 5, 6, 5, 6], 5), [5, 6, 5, 6, 5]);
        assert_eq!(block(&[1, 2, 3, 1, 2], 9), [3, 1, 2, 3, 1, 2, 3, 1, 2]);
    }

    #[test]
    fn so_many_places_are_looked_at_and_no_more() {
        // The only match of three tokens is the oldest place of four.
        let text = [7, 1, 2, 9, 4, 1, 2, 8, 5, 1, 2, 8, 6, 1, 2, 8, 7, 1, 2];
        let guess = |max_places| {
            let config = NgramConfig { max_places, ..NgramConfig::default() };
            indexed(config, &text).guess(&text)
        };
        assert_eq!((guess(4), guess(3), guess(0)), (Some(9), Some(8), None));
    }

    /// Texts over few tokens, so that everything repeats; and cuts, as rejections make them.
    fn steps() -> impl Strategy<Value = Vec<(usize, Vec<u32>)>> {
        prop::collection::vec((0..12usize, prop::collection::vec(0..3u32, 0..12)), 1..12)
    }

    proptest! {
        #[test]
        fn it_is_the_definition_after_any_cuts(steps in steps(), min_match in 1..4usize, longer in 0..4usize) {
            let config = NgramConfig { min_match, max_match: min_match + longer, max_places: usize::MAX };
            let (mut index, mut text) = (LookUp::new(config), Vec::new());
            for (cut, more) in steps {
                text.truncate(text.len().saturating_sub(cut));
                index.truncate(text.len());
                text.extend(more);
                index.extend(&text);
                prop_assert_eq!(index.guess(&text), by_definition(config, &text));
                // Nothing is left of what was cut off: the index is the one of the text alone.
                let fresh = indexed(config, &text);
                prop_assert_eq!(&index.runs, &fresh.runs);
                prop_assert_eq!(&index.newest, &fresh.newest);
            }
        }
    }
}
