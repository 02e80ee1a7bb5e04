//! Replies a worker remembers, so that a repeated frame is harmless.

use std::collections::VecDeque;

/// What is known of a frame's number.
#[derive(Debug, PartialEq)]
pub enum Recall<R> {
    /// Never seen: carry it out.
    New,
    /// Seen with the same content and answered: give the same answer.
    Answered(R),
    /// Seen with the same content, its answer is on the way: do nothing.
    Pending,
    /// Seen with other content: INVALID.
    Conflict,
    /// Older than anything remembered: STALE.
    Forgotten,
}

#[derive(Debug)]
struct Entry<F, R> {
    seq: u64,
    frame: F,
    reply: Option<R>,
}

/// The last frames of a session and their replies, a bounded number of them.
#[derive(Debug)]
pub struct ReplyMemory<F, R> {
    entries: VecDeque<Entry<F, R>>,
    capacity: usize,
    newest: Option<u64>,
}

impl<F: PartialEq + Clone, R: Clone> ReplyMemory<F, R> {
    /// Remembers the last `capacity` frames.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::with_capacity(capacity), capacity, newest: None }
    }

    /// Looks a frame up by number and content; a new one is entered as pending.
    pub fn meet(&mut self, seq: u64, frame: &F) -> Recall<R> {
        if let Some(entry) = self.entries.iter().find(|entry| entry.seq == seq) {
            return match &entry.reply {
                _ if entry.frame != *frame => Recall::Conflict,
                Some(reply) => Recall::Answered(reply.clone()),
                None => Recall::Pending,
            };
        }
        if self.newest.is_some_and(|newest| seq <= newest) && self.entries.len() >= self.capacity {
            return Recall::Forgotten;
        }
        if self.entries.len() == self.capacity {
            self.entries.pop_front();
        }
        self.newest = Some(self.newest.map_or(seq, |newest| newest.max(seq)));
        self.entries.push_back(Entry { seq, frame: frame.clone(), reply: None });
        Recall::New
    }

    /// Stores a frame's terminal reply.
    pub fn answer(&mut self, seq: u64, reply: R) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.seq == seq) {
            entry.reply = Some(reply);
        }
    }

    /// Forgets a frame that was refused: asked again it is carried out anew.
    pub fn forget(&mut self, seq: u64) {
        self.entries.retain(|entry| entry.seq != seq);
    }

    /// Forgets frames whose answer never came, when their stream is gone.
    pub fn forget_pending(&mut self) {
        self.entries.retain(|entry| entry.reply.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_content_same_reply_other_content_conflict() {
        let mut memory = ReplyMemory::new(2);
        assert_eq!(memory.meet(1, &11), Recall::New);
        assert_eq!(memory.meet(1, &11), Recall::Pending);
        memory.answer(1, "one");
        assert_eq!(memory.meet(1, &11), Recall::Answered("one"));
        assert_eq!(memory.meet(1, &12), Recall::Conflict);
    }

    #[test]
    fn bounded_and_late_frames_are_forgotten() {
        let mut memory = ReplyMemory::new(2);
        for seq in 1..=3 {
            assert_eq!(memory.meet(seq, &seq), Recall::New);
            memory.answer(seq, seq);
        }
        assert_eq!(memory.meet(1, &1), Recall::Forgotten);
        assert_eq!(memory.meet(2, &2), Recall::Answered(2));
    }

    #[test]
    fn a_refused_frame_may_be_asked_again() {
        let mut memory = ReplyMemory::<u64, ()>::new(2);
        assert_eq!(memory.meet(1, &1), Recall::New);
        memory.forget(1);
        assert_eq!(memory.meet(1, &1), Recall::New);
        memory.forget_pending();
        assert_eq!(memory.meet(1, &2), Recall::New);
    }
}
