//! A session that drafts by look-up in its own text.
//!
//! It follows the same conversation as a model's session, but needs no thread and no memory of replies:
//! the same text gives the same guess, so a repeated frame gets the same answer by being answered again.

use std::collections::VecDeque;
use std::time::Instant;

use foretoken_engine::conversation::{
    Block, DraftFrame, DraftOpen, DraftReply, Drafted, Refusal, RefusalKind, WorkerText, WorkerTimes,
};
use foretoken_engine::ngram::{NgramConfig, look_up};
use foretoken_runtime::{Event, Limits, QueueFull};
use foretoken_worker::WorkerSession;
use tokio::sync::OwnedSemaphorePermit;

/// One request's look-up.
#[derive(Debug)]
pub struct NgramSession {
    config: NgramConfig,
    limits: Limits,
    text: WorkerText,
    reserve_len: usize,
    replies: VecDeque<DraftReply>,
    /// Held for as long as the session counts against the limit.
    _permit: OwnedSemaphorePermit,
}

impl NgramSession {
    /// A session over `open`'s prompt.
    #[must_use]
    pub fn new(config: NgramConfig, limits: Limits, open: &DraftOpen, permit: OwnedSemaphorePermit) -> Self {
        Self {
            config,
            limits,
            text: WorkerText::new(&open.session.prompt),
            reserve_len: open.session.reserve_len,
            replies: VecDeque::with_capacity(limits.max_window),
            _permit: permit,
        }
    }

    fn draft(&mut self, frame: &DraftFrame) -> Result<Drafted, RefusalKind> {
        let began = Instant::now();
        let out_of_range = |field: &'static str, message| {
            Err(RefusalKind::Invalid { reason: "OUT_OF_RANGE".into(), field: field.into(), message })
        };
        if frame.draft_len > self.limits.max_draft_len {
            let message =
                format!("draft_len is {}; the limit is {}", frame.draft_len, self.limits.max_draft_len);
            return out_of_range("draft_len", message);
        }
        if frame.text.start > self.reserve_len {
            let message =
                format!("start is {}; the session reserved {} positions", frame.text.start, self.reserve_len);
            return out_of_range("text.start", message);
        }
        self.text.agree(&frame.text)?;
        let room = self.reserve_len - frame.text.start;
        let mut tokens = Vec::with_capacity(frame.draft_len);
        look_up(self.config, self.text.tokens(), frame.draft_len.min(room), &mut tokens);
        tokens.iter().for_each(|&token| self.text.push(token));
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let times = WorkerTimes { server_us: micros, sampling_us: micros, ..WorkerTimes::default() };
        let (seq, epoch) = (frame.text.seq, frame.text.epoch);
        Ok(Drafted { seq, epoch, block: Block { tokens, q: None }, times })
    }
}

impl WorkerSession for NgramSession {
    type Open = DraftOpen;
    type Frame = DraftFrame;
    type Reply = DraftReply;

    fn cached_len(&self) -> usize {
        0
    }

    fn send(&mut self, frame: DraftFrame) -> Result<(), QueueFull> {
        if self.replies.len() >= self.limits.max_window {
            return Err(QueueFull);
        }
        let reply = match self.draft(&frame) {
            Ok(drafted) => DraftReply::Drafted(drafted),
            Err(kind) => DraftReply::Refused(Refusal { seq: frame.text.seq, kind }),
        };
        self.replies.push_back(reply);
        Ok(())
    }

    async fn next(&mut self) -> Event<DraftReply> {
        match self.replies.pop_front() {
            Some(reply) => Event::Reply(reply),
            None => std::future::pending().await,
        }
    }

    fn close(self) {}

    fn seq(frame: &DraftFrame) -> u64 {
        frame.text.seq
    }

    fn terminates(reply: &DraftReply) -> Option<u64> {
        reply.terminates()
    }

    fn opened(cached_len: usize) -> DraftReply {
        DraftReply::Opened { cached_len }
    }

    fn refused(refusal: Refusal) -> DraftReply {
        DraftReply::Refused(refusal)
    }

    fn draining() -> DraftReply {
        DraftReply::Draining
    }
}
