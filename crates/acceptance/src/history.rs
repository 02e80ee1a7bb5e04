//! How often each token stands in the text before a position: counted once, then moved forward and back with the
//! position, a token at a time.

/// A token of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: u32,
    /// Times in the output before the position.
    pub(crate) in_output: u32,
    /// Whether it stands in the prompt.
    pub(crate) in_prompt: bool,
}

/// No place in `seen`.
const NONE: u32 = u32::MAX;

/// Counts of a session's tokens before a position that moves.
///
/// Invariant: `seen` holds each counted token once, in the order of first occurrence. So what a step back removes is
/// always its last entry.
#[derive(Debug)]
pub(crate) struct History {
    prompt_len: usize,
    /// The output as far as it is known.
    output: Vec<u32>,
    /// Tokens of `output` that are counted: the position is behind them.
    counted: usize,
    seen: Vec<Seen>,
    /// By id, where in `seen` it stands.
    places: Vec<u32>,
}

impl History {
    /// A history behind a prompt of `prompt_len` tokens, of which those in `prompt` count. Reserves `output_len`.
    pub(crate) fn new(prompt_len: usize, prompt: &[u32], vocab_size: usize, output_len: usize) -> Self {
        let mut history = Self {
            prompt_len,
            output: Vec::with_capacity(output_len),
            counted: 0,
            seen: Vec::with_capacity(vocab_size.min(prompt.len() + output_len)),
            places: vec![NONE; vocab_size],
        };
        for &token in prompt {
            if let Some(seen) = history.entry(token) {
                seen.in_prompt = true;
            }
        }
        history
    }

    /// Takes from `text` what is new behind the text known so far.
    pub(crate) fn follow(&mut self, text: &[u32]) {
        let known = self.prompt_len + self.output.len();
        self.output.extend_from_slice(text.get(known..).unwrap_or_default());
    }

    /// Forgets the text from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        let len = len.saturating_sub(self.prompt_len);
        while self.counted > len {
            self.step_back();
        }
        self.output.truncate(len);
    }

    /// The tokens that stand before `position`, each once.
    pub(crate) fn before(&mut self, position: usize) -> &[Seen] {
        let wanted = position.saturating_sub(self.prompt_len).min(self.output.len());
        while self.counted > wanted {
            self.step_back();
        }
        while self.counted < wanted {
            let token = self.output[self.counted];
            self.counted += 1;
            if let Some(seen) = self.entry(token) {
                seen.in_output += 1;
            }
        }
        &self.seen
    }

    fn step_back(&mut self) {
        self.counted -= 1;
        let token = self.output[self.counted];
        let Some(place) = self.places.get_mut(token as usize) else { return };
        let Some(seen) = self.seen.get_mut(*place as usize) else { return };
        seen.in_output -= 1;
        if seen.in_output == 0 && !seen.in_prompt {
            debug_assert_eq!(*place as usize, self.seen.len() - 1, "what came first goes last");
            *place = NONE;
            self.seen.pop();
        }
    }

    /// The token's entry, made if there is none; none for a token outside the vocabulary.
    fn entry(&mut self, token: u32) -> Option<&mut Seen> {
        let place = self.places.get_mut(token as usize)?;
        if *place == NONE {
            *place = u32::try_from(self.seen.len()).ok()?;
            self.seen.push(Seen { id: token, in_output: 0, in_prompt: false });
        }
        self.seen.get_mut(*place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const V: usize = 6;

    /// The counts by the definition.
    fn counts(prompt: &[u32], output: &[u32]) -> Vec<(u32, u32, bool)> {
        let count = |id| output.iter().filter(|&&other| other == id).count() as u32;
        (0..V as u32)
            .map(|id| (id, count(id), prompt.contains(&id)))
            .filter(|&(_, in_output, in_prompt)| in_output > 0 || in_prompt)
            .collect()
    }

    fn told(seen: &[Seen]) -> Vec<(u32, u32, bool)> {
        let mut told: Vec<_> = seen.iter().map(|seen| (seen.id, seen.in_output, seen.in_prompt)).collect();
        told.sort_unstable();
        told
    }

    /// Something that happens to a text, or a position asked for.
    #[derive(Clone, Debug)]
    enum Step {
        Push(Vec<u32>),
        Cut(usize),
        Ask(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            vec(0..V as u32, 0..8).prop_map(Step::Push),
            (0..60usize).prop_map(Step::Cut),
            (0..60usize).prop_map(Step::Ask),
        ]
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_text_before_the_position(
            prompt in vec(0..V as u32, 1..8), steps in vec(step(), 0..60),
        ) {
            let mut history = History::new(prompt.len(), &prompt, V, 16);
            let mut text = prompt.clone();
            for step in steps {
                match step {
                    Step::Push(tokens) => {
                        text.extend(tokens);
                        history.follow(&text);
                    }
                    Step::Cut(len) => {
                        text.truncate(len.max(prompt.len()));
                        history.truncate(text.len());
                    }
                    Step::Ask(position) => {
                        let position = position.clamp(prompt.len(), text.len());
                        let right = counts(&prompt, &text[prompt.len()..position]);
                        prop_assert_eq!(told(history.before(position)), right);
                    }
                }
            }
        }
    }

    #[test]
    fn tokens_outside_the_vocabulary_are_not_counted() {
        let mut history = History::new(2, &[0, 9], 4, 4);
        history.follow(&[0, 9, 7, 1]);
        assert_eq!(told(history.before(4)), [(0, 0, true), (1, 1, false)]);
        history.truncate(2);
        assert_eq!(told(history.before(2)), [(0, 0, true)]);
    }
}
