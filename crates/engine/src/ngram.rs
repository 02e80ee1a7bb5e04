//! Drafting without weights: prompt look-up.
//!
//! The text's last tokens are looked for earlier in the text, longest match first and newest first; what
//! followed there is the guess (Saxena 2023, "Prompt Lookup Decoding"). Every guess is one-hot, so it is
//! exact whatever it is. Holds no state: the text is all it needs.

/// How far back and how strictly to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NgramConfig {
    /// Longest suffix to look for.
    pub max_match: usize,
    /// Shortest suffix whose match counts.
    pub min_match: usize,
    /// Tokens of the text to search, from its end.
    pub window: usize,
}

impl Default for NgramConfig {
    fn default() -> Self {
        Self { max_match: 4, min_match: 2, window: 16_384 }
    }
}

/// Appends up to `draft_len` guesses for what follows `text`; none where nothing matches.
pub fn look_up(config: NgramConfig, text: &[u32], draft_len: usize, guesses: &mut Vec<u32>) {
    guesses.clear();
    let text = &text[text.len().saturating_sub(config.window)..];
    let Some(next) = longest_newest_match(config, text) else { return };
    // A match that reaches the end of the text goes on in the guesses themselves: periods repeat.
    for offset in 0..draft_len {
        let source = next + offset;
        let token = if source < text.len() { text[source] } else { guesses[source - text.len()] };
        guesses.push(token);
    }
}

/// Index behind the best earlier occurrence of the text's suffix.
fn longest_newest_match(config: NgramConfig, text: &[u32]) -> Option<usize> {
    let mut best: Option<(usize, usize)> = None;
    for end in (1..text.len()).rev() {
        let len = text[..end]
            .iter()
            .rev()
            .zip(text.iter().rev())
            .take(config.max_match)
            .take_while(|(earlier, last)| earlier == last)
            .count();
        if len >= config.min_match && best.is_none_or(|(_, longest)| len > longest) {
            best = Some((end, len));
            if len == config.max_match {
                break;
            }
        }
    }
    best.map(|(end, _)| end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(text: &[u32], draft_len: usize) -> Vec<u32> {
        let mut guesses = Vec::new();
        look_up(NgramConfig::default(), text, draft_len, &mut guesses);
        guesses
    }

    #[test]
    fn continues_the_newest_of_the_longest_matches() {
        assert_eq!(guess(&[1, 2, 3, 9, 1, 2, 3, 8, 5, 1, 2, 3], 2), [8, 5]);
        // A longer match wins over a newer one.
        assert_eq!(guess(&[7, 1, 2, 3, 9, 4, 2, 3, 8, 7, 1, 2, 3], 1), [9]);
    }

    #[test]
    fn one_equal_token_is_no_match() {
        assert!(guess(&[1, 2, 3, 4, 1], 4).is_empty());
        assert!(guess(&[], 4).is_empty());
        assert!(guess(&[1], 4).is_empty());
    }

    #[test]
    fn periods_run_on_past_the_end() {
        assert_eq!(guess(&[5, 6, 5, 6, 5, 6], 5), [5, 6, 5, 6, 5]);
    }

    #[test]
    fn drafts_at_most_what_is_asked() {
        assert!(guess(&[1, 2, 3, 1, 2], 0).is_empty());
        assert_eq!(guess(&[1, 2, 3, 1, 2], 9), [3, 1, 2, 3, 1, 2, 3, 1, 2]);
    }
}
