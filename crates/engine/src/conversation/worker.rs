//! A worker's end: the text its session holds, committed or drafted.

use super::{FrameText, RefusalKind, TextHash};

/// The tokens a worker's session holds. Workers never commit; the next frame tells what became of them.
#[derive(Debug)]
pub struct WorkerText {
    tokens: Vec<u32>,
    /// `hashes[i]` is the hash of `tokens[..i]`, so that any `start` is checked in O(1).
    hashes: Vec<TextHash>,
    prompt_len: usize,
    epoch: u64,
}

impl WorkerText {
    /// A session that holds its prompt.
    #[must_use]
    pub fn new(prompt: &[u32]) -> Self {
        let mut text =
            Self { tokens: Vec::new(), hashes: vec![TextHash::EMPTY], prompt_len: prompt.len(), epoch: 0 };
        prompt.iter().for_each(|&token| text.push(token));
        text
    }

    /// The tokens held.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Whether the session began with this prompt.
    #[must_use]
    pub fn has_prompt(&self, prompt: &[u32]) -> bool {
        &self.tokens[..self.prompt_len] == prompt
    }

    /// The newest epoch seen.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the first `len` tokens held have this hash.
    #[must_use]
    pub fn has_prefix(&self, len: usize, hash: TextHash) -> bool {
        self.hashes.get(len) == Some(&hash)
    }

    /// Adds a token the worker drafted, sampled, or was told to judge.
    pub fn push(&mut self, token: u32) {
        self.hashes.push(self.hashes[self.tokens.len()].then(token));
        self.tokens.push(token);
    }

    /// Makes the text before `frame.start` what the frame says, and forgets all behind it.
    ///
    /// Returns how many tokens at the front agree with what was held before: cache rows up to there,
    /// but at most `start - 1` of them, are still good.
    ///
    /// # Errors
    /// STALE, NEED_PREFIX or INVALID; the text is then as before.
    pub fn agree(&mut self, frame: &FrameText) -> Result<usize, RefusalKind> {
        if frame.epoch < self.epoch {
            return Err(RefusalKind::Stale { epoch: self.epoch });
        }
        self.check(frame)?;
        let base = frame.committed_len - frame.tail.len();
        if base > self.tokens.len() {
            return Err(self.need_prefix());
        }
        let held = &self.tokens[base..];
        let same = held.iter().zip(&frame.tail).take_while(|(held, told)| held == told).count();
        // Blocks of this epoch ahead of the committed text: only the worker's own tokens can stand there.
        let ahead = frame.start - frame.committed_len;
        if ahead > 0 && (same < frame.tail.len() || self.tokens.len() < frame.start) {
            return Err(self.need_prefix());
        }
        let start_hash = match ahead {
            0 => self.hashes[base].then_all(&frame.tail),
            _ => self.hashes[frame.start],
        };
        if start_hash != frame.start_hash {
            return Err(self.need_prefix());
        }
        let agreed = if same < frame.tail.len() { base + same } else { self.tokens.len().min(frame.start) };
        self.truncate(agreed);
        frame.tail.iter().skip(agreed.saturating_sub(base)).for_each(|&token| self.push(token));
        self.epoch = frame.epoch;
        Ok(agreed)
    }

    fn check(&self, frame: &FrameText) -> Result<(), RefusalKind> {
        let invalid = |field: &'static str, message| {
            Err(RefusalKind::Invalid {
                reason: "FRAME_CONTRADICTS_ITSELF".into(),
                field: field.into(),
                message,
            })
        };
        let output_len = frame.committed_len.checked_sub(self.prompt_len);
        match output_len {
            None => invalid(
                "committed_len",
                format!(
                    "committed_len is {} and the prompt alone has {} tokens",
                    frame.committed_len, self.prompt_len
                ),
            ),
            Some(output_len) if frame.tail.len() > output_len => invalid(
                "tail",
                format!(
                    "tail has {} tokens and only {output_len} are committed behind the prompt",
                    frame.tail.len()
                ),
            ),
            Some(_) if frame.start < frame.committed_len => invalid(
                "start",
                format!(
                    "start is {}; it must be at least committed_len, {}",
                    frame.start, frame.committed_len
                ),
            ),
            Some(_) => Ok(()),
        }
    }

    fn need_prefix(&self) -> RefusalKind {
        // Tokens behind the prompt may be drafts that were rejected: the worker vouches for none of them.
        RefusalKind::NeedPrefix { have_len: self.prompt_len }
    }

    fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.hashes.truncate(len + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CommittedText, WorkerView};
    use super::*;

    fn frame(text: &CommittedText, view: &mut WorkerView) -> FrameText {
        text.frame(view, 0, None)
    }

    #[test]
    fn accepted_drafts_stay_and_rejected_ones_go() {
        let (mut text, mut view) = (CommittedText::new(vec![1, 2, 3]), WorkerView::default());
        let mut worker = WorkerText::new(&[1, 2, 3]);
        assert_eq!(worker.agree(&frame(&text, &mut view)), Ok(3));
        [10, 11, 12].into_iter().for_each(|token| worker.push(token));
        // 10 was accepted, 11 replaced by 20.
        text.commit(10);
        text.commit(20);
        text.raise_epoch();
        view.knows(4);
        let next = frame(&text, &mut view);
        assert_eq!(next.tail, [20]);
        assert_eq!(worker.agree(&next), Ok(4));
        assert_eq!(worker.tokens(), [1, 2, 3, 10, 20]);
    }

    #[test]
    fn a_replaced_worker_asks_for_the_prefix_and_gets_it() {
        let (mut text, mut view) = (CommittedText::new(vec![1]), WorkerView::default());
        for token in 2..9 {
            text.commit(token);
        }
        view.knows(8);
        let mut fresh = WorkerText::new(&[1]);
        assert_eq!(fresh.agree(&frame(&text, &mut view)), Err(RefusalKind::NeedPrefix { have_len: 1 }));
        view.lacks(1);
        assert_eq!(fresh.agree(&frame(&text, &mut view)), Ok(1));
        assert_eq!(fresh.tokens(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn another_text_of_the_same_length_is_noticed() {
        let (mut text, mut view) = (CommittedText::new(vec![1]), WorkerView::default());
        text.commit(2);
        view.knows(2);
        let mut worker = WorkerText::new(&[1]);
        worker.push(3);
        assert_eq!(worker.agree(&frame(&text, &mut view)), Err(RefusalKind::NeedPrefix { have_len: 1 }));
        assert_eq!(worker.tokens(), [1, 3]);
    }

    #[test]
    fn old_epochs_are_stale_and_change_nothing() {
        let (mut text, mut view) = (CommittedText::new(vec![1]), WorkerView::default());
        let old = frame(&text, &mut view);
        text.raise_epoch();
        let mut worker = WorkerText::new(&[1]);
        assert!(worker.agree(&frame(&text, &mut view)).is_ok());
        worker.push(7);
        assert_eq!(worker.agree(&old), Err(RefusalKind::Stale { epoch: 1 }));
        assert_eq!(worker.tokens(), [1, 7]);
    }

    #[test]
    fn contradictions_are_invalid() {
        let text = CommittedText::new(vec![1, 2]);
        let good = frame(&text, &mut WorkerView::default());
        let mut worker = WorkerText::new(&[1, 2]);
        for bad in [
            FrameText { committed_len: 1, ..good.clone() },
            FrameText { tail: vec![5], ..good.clone() },
            FrameText { start: 1, ..good },
        ] {
            assert!(matches!(worker.agree(&bad), Err(RefusalKind::Invalid { .. })), "{bad:?}");
        }
    }

    #[test]
    fn blocks_ahead_need_the_workers_own_tokens() {
        let text = CommittedText::new(vec![1]);
        let mut worker = WorkerText::new(&[1]);
        worker.push(2);
        worker.push(3);
        let hash = TextHash::EMPTY.then_all(&[1, 2, 3]);
        let ahead = FrameText { start: 3, start_hash: hash, ..frame(&text, &mut WorkerView::default()) };
        assert_eq!(worker.agree(&ahead), Ok(3));
        assert_eq!(WorkerText::new(&[1]).agree(&ahead), Err(RefusalKind::NeedPrefix { have_len: 1 }));
    }
}
