//! What a drafter would have guessed of an answer that is known: rounds, and which guesses stood.
//!
//! At temperature 0 a guess stands exactly if it is the answer's next token, so nothing need be sampled or judged.

use foretoken_engine::ngram::Guesser;

/// Sums over rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rounds {
    /// Answers replayed.
    pub(super) answers: u64,
    /// Rounds: passes of the target behind the one that reads the prompt.
    pub(super) rounds: u64,
    /// Tokens that rounds gave: all but the first of each answer.
    pub(super) tokens: u64,
    /// Tokens guessed at each position of a block.
    pub(super) drafted: Vec<u64>,
    /// Of these, the ones that stood.
    pub(super) accepted: Vec<u64>,
}

impl Rounds {
    /// None yet, of blocks of up to `draft_len` tokens.
    pub(super) fn new(draft_len: usize) -> Self {
        Self { answers: 0, rounds: 0, tokens: 0, drafted: vec![0; draft_len], accepted: vec![0; draft_len] }
    }

    /// Replays one answer, whose text `guesser` has not seen, and which could have had `max_tokens` tokens.
    pub(super) fn replay(&mut self, mut guesser: Guesser, prompt: &[u32], answer: &[u32], max_tokens: usize) {
        self.answers += 1;
        // The pass that reads the prompt gives the first token.
        let mut text = [prompt, &answer[..answer.len().min(1)]].concat();
        let mut agreed = 0;
        while text.len() < prompt.len() + answer.len() {
            let done = text.len() - prompt.len();
            // A block leaves room for the token that follows it.
            let most = self.drafted.len().min(max_tokens.saturating_sub(done + 1));
            let stood = self.block(&mut guesser, &mut text, agreed, &answer[done..], most);
            // The repair or bonus token, unless the last guess ended the answer.
            agreed = prompt.len() + done + stood;
            text.truncate(agreed);
            text.extend(answer.get(done + stood));
            self.rounds += 1;
            self.tokens += (text.len() - prompt.len() - done) as u64;
        }
    }

    /// Guesses up to `most` tokens behind `text`, of which `agreed` are as the guesser knows them; says how many stand.
    fn block(
        &mut self,
        guesser: &mut Guesser,
        text: &mut Vec<u32>,
        agreed: usize,
        right: &[u32],
        most: usize,
    ) -> usize {
        guesser.follow(text, agreed);
        let mut stood = 0;
        for position in 0..most {
            let Some(token) = guesser.guess(text, |_| true).map(|guess| guess.argmax()) else { break };
            self.drafted[position] += 1;
            if stood == position && right.get(position) == Some(&token) {
                self.accepted[position] += 1;
                stood += 1;
            }
            text.push(token);
            guesser.follow(text, text.len() - 1);
        }
        stood
    }

    /// Adds another's sums.
    pub(super) fn add(&mut self, other: &Self) {
        self.answers += other.answers;
        self.rounds += other.rounds;
        self.tokens += other.tokens;
        self.drafted.iter_mut().zip(&other.drafted).for_each(|(sum, more)| *sum += more);
        self.accepted.iter_mut().zip(&other.accepted).for_each(|(sum, more)| *sum += more);
    }

    /// Tokens a round; 1 is what plain decoding has.
    pub(super) fn tokens_per_round(&self) -> f64 {
        self.tokens as f64 / self.rounds.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_engine::ngram::NgramConfig;

    fn replayed(prompt: &[u32], answer: &[u32], max_tokens: usize) -> Rounds {
        let mut rounds = Rounds::new(3);
        rounds.replay(Guesser::new(NgramConfig::default(), None), prompt, answer, max_tokens);
        rounds
    }

    #[test]
    fn rounds_are_those_of_the_loop() {
        // First token 3, so 1 2 3 repeats: 4 5 6 are guessed; 4 and 5 stand, 9 repairs. Then 5 9 is new: a round of
        // one token each.
        let rounds = replayed(&[1, 2, 3, 4, 5, 6, 1, 2], &[3, 4, 5, 9, 7, 8], 10);
        assert_eq!((rounds.rounds, rounds.tokens), (3, 5));
        assert_eq!((rounds.drafted, rounds.accepted), (vec![1, 1, 1], vec![1, 1, 0]));
    }

    #[test]
    fn a_bonus_follows_a_block_that_stands_and_nothing_follows_the_end() {
        let period = [1, 2, 1, 2, 1, 2, 1, 2, 1];
        // Three guesses and a bonus, twice.
        let prompt = [1, 2, 1, 2];
        let rounds = replayed(&prompt, &period, 100);
        assert_eq!((rounds.rounds, rounds.tokens), (2, 8));
        // The last block's second guess is the end.
        let rounds = replayed(&prompt, &period[..7], 100);
        assert_eq!((rounds.rounds, rounds.tokens, rounds.accepted), (2, 6, vec![2, 2, 1]));
        // Where the limit is near, blocks are shorter: 3 and a bonus, then room for one and its bonus.
        let rounds = replayed(&prompt, &period[..7], 7);
        assert_eq!((rounds.rounds, rounds.drafted), (2, vec![2, 1, 1]));
    }

    #[test]
    fn an_answer_of_one_token_has_no_rounds() {
        let rounds = replayed(&[1, 2], &[5], 10);
        assert_eq!((rounds.answers, rounds.rounds, rounds.tokens), (1, 0, 0));
        assert_eq!(rounds.tokens_per_round(), 0.0);
    }
}
