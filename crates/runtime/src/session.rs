//! One session at the model's thread: its text, its frames in order, what it wants from the next pass.
//!
//! Knows nothing of other sessions. Judging and sampling are in `pass`, which calls back here with tokens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foretoken_acceptance::{Adjustments, CoinKey, Rule, Sampling, Shaping, VerifierKeys};
use foretoken_engine::conversation::{
    Ask, Block, DraftFrame, DraftOpen, DraftReply, Drafted, FrameText, PositionLogprobs, Recall, Refusal,
    RefusalKind, ReplyMemory, RunEnd, RunFinished, RunToken, Verdict, VerifyFrame, VerifyOpen, VerifyReply,
    WorkerText, WorkerTimes,
};
use tokio::sync::mpsc;

use crate::config::Limits;
use crate::decoder::Slot;
use crate::handle::{Ended, Event, Frame, Lease, Reply};
use crate::traced::{Arrival, Trace};

/// Which half of the conversation a session is, and the coins it owns.
#[derive(Debug, PartialEq)]
pub(crate) enum Role {
    Verifier { keys: VerifierKeys, stop_ids: Vec<u32>, logprobs: Option<usize> },
    Drafter { key: CoinKey },
}

impl Role {
    pub(crate) fn verifier(open: &VerifyOpen) -> Self {
        Self::Verifier { keys: open.keys.clone(), stop_ids: open.stop_ids.clone(), logprobs: open.logprobs }
    }

    pub(crate) fn drafter(open: &DraftOpen) -> Self {
        Self::Drafter { key: open.key.clone() }
    }
}

/// A frame that is being carried out.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
    pub(crate) task: Task,
    /// When the frame, or the wish for the run's next token, arose.
    pub(crate) since: Instant,
    pub(crate) times: WorkerTimes,
    pub(crate) trace: Trace,
}

#[derive(Debug)]
pub(crate) enum Task {
    /// Judge tokens that stand in the text from `start` on.
    Block { start: usize, block: Block },
    /// Decode until the text is `grant` long.
    Run { grant: usize },
    /// Draft until the block is `len` long, or the model is less sure of the next token than `min_confidence`.
    Draft { len: usize, min_confidence: f64, block: Block },
}

/// The session's last decode run, so that a raised grant goes on where it stands.
#[derive(Debug, Clone, Copy)]
struct LastRun {
    epoch: u64,
    start: usize,
    stopped: bool,
}

/// Rows a session wants from a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Tokens of the text from `cached` on.
    pub(crate) rows: usize,
    /// Of these, the last ones whose logits are wanted.
    pub(crate) logits: usize,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    /// Which Open holds the session: frames of older streams are dropped.
    pub(crate) stream: u64,
    pub(crate) role: Role,
    pub(crate) sampling: Sampling,
    /// What changes logits before `sampling`, if anything does.
    pub(crate) shaping: Option<Box<Shaping>>,
    pub(crate) rule: Rule,
    pub(crate) text: WorkerText,
    pub(crate) slot: Slot,
    /// Positions whose keys and values are cached: a prefix of the text.
    pub(crate) cached: usize,
    pub(crate) reserve_len: usize,
    pub(crate) lease: Arc<Lease>,
    pub(crate) broken_at: Option<Instant>,
    pub(crate) active: Option<Active>,
    pub(crate) ended: Option<Ended>,
    /// The session's share of passes that no reply has told of yet.
    pub(crate) charged: Duration,
    queue: VecDeque<(Frame, Arrival)>,
    newest_epoch: u64,
    last_run: Option<LastRun>,
    memory: ReplyMemory<Frame, Reply>,
    replies: mpsc::Sender<Event<Reply>>,
}

/// What a new or resumed session is made of.
pub(crate) struct SessionParts {
    pub(crate) id: String,
    pub(crate) stream: u64,
    pub(crate) role: Role,
    pub(crate) sampling: Sampling,
    pub(crate) shaping: Option<Box<Shaping>>,
    pub(crate) rule: Rule,
    pub(crate) prompt: Vec<u32>,
    pub(crate) reserve_len: usize,
    pub(crate) slot: Slot,
    pub(crate) lease: Arc<Lease>,
    pub(crate) replies: mpsc::Sender<Event<Reply>>,
}

impl Session {
    pub(crate) fn new(parts: SessionParts, limits: &Limits) -> Self {
        Self {
            id: parts.id,
            stream: parts.stream,
            role: parts.role,
            sampling: parts.sampling,
            shaping: parts.shaping,
            rule: parts.rule,
            text: WorkerText::new(&parts.prompt),
            slot: parts.slot,
            cached: 0,
            reserve_len: parts.reserve_len,
            lease: parts.lease,
            broken_at: None,
            active: None,
            ended: None,
            charged: Duration::ZERO,
            queue: VecDeque::with_capacity(limits.max_window),
            newest_epoch: 0,
            last_run: None,
            memory: ReplyMemory::new(limits.max_window * 2),
            replies: parts.replies,
        }
    }

    /// Whether everything that changes logits before `sampling` is this.
    pub(crate) fn is_adjusted_by(&self, adjustments: &Adjustments) -> bool {
        match &self.shaping {
            Some(shaping) => shaping.adjustments() == adjustments,
            None => adjustments.is_none(),
        }
    }

    /// A newer Open of the same session: the text and cache stay, the older stream ends.
    pub(crate) fn resume(&mut self, stream: u64, lease: Arc<Lease>, replies: mpsc::Sender<Event<Reply>>) {
        self.end_stream(Ended::TakenOver);
        self.stream = stream;
        self.lease = lease;
        self.replies = replies;
        self.broken_at = None;
        self.pause();
    }

    /// Drops what was asked for, keeps what is known: the stream is gone.
    pub(crate) fn pause(&mut self) {
        self.active = None;
        self.queue.clear();
        self.memory.forget_pending();
    }

    /// Tells the stream that it is over.
    pub(crate) fn end_stream(&self, ended: Ended) {
        // A stream that is gone, or does not read, learns nothing; both are fine here.
        let _unheard = self.replies.try_send(Event::Ended(ended));
    }

    /// A frame arrived.
    pub(crate) fn meet(
        &mut self,
        frame: Frame,
        arrival: Arrival,
        limits: &Limits,
        vocab_size: usize,
    ) -> Meeting {
        let text = frame.text();
        let (seq, epoch) = (text.seq, text.epoch);
        match self.memory.meet(seq, &frame) {
            Recall::New => {}
            Recall::Pending => return Meeting::Repeated,
            Recall::Answered(reply) => {
                self.send(reply);
                return Meeting::Repeated;
            }
            Recall::Conflict => {
                let message = format!("seq {seq} was used for another frame; count seq up for a new one");
                self.send_refusal(seq, invalid("SEQ_REUSED", "text.seq", message));
                return Meeting::Taken;
            }
            Recall::Forgotten => {
                self.send_refusal(seq, RefusalKind::Stale { epoch: self.newest_epoch });
                return Meeting::Stale;
            }
        }
        if epoch < self.newest_epoch {
            self.refuse(seq, RefusalKind::Stale { epoch: self.newest_epoch });
            return Meeting::Stale;
        }
        let checked = check_limits(&frame, self.reserve_len, limits, vocab_size)
            .and_then(|()| check_rule(&frame, self.rule));
        if let Err(refusal) = checked {
            self.refuse(seq, refusal);
            return Meeting::Taken;
        }
        if epoch > self.newest_epoch {
            self.void_older(epoch);
        }
        if !self.raise_grant(&frame, arrival) {
            if self.queue.len() >= limits.max_window {
                self.refuse(seq, RefusalKind::Overloaded { retry_after_ms: 5 });
                return Meeting::Taken;
            }
            self.queue.push_back((frame, arrival));
        }
        Meeting::Taken
    }

    /// A newer epoch voids everything asked for before.
    fn void_older(&mut self, epoch: u64) {
        self.newest_epoch = epoch;
        if let Some(mut active) = self.active.take() {
            match active.task {
                Task::Run { .. } => self.finish_run(active, RunEnd::Superseded),
                Task::Block { .. } | Task::Draft { .. } => {
                    self.tell_passes(&mut active);
                    self.refuse(active.seq, RefusalKind::Stale { epoch });
                }
            }
        }
        for (frame, _) in std::mem::take(&mut self.queue) {
            self.refuse(frame.text().seq, RefusalKind::Stale { epoch });
        }
    }

    /// A later Decode of the epoch lets the run go on from where it stands, not from where the sender
    /// last heard of it. False if the frame is no such thing.
    fn raise_grant(&mut self, frame: &Frame, arrival: Arrival) -> bool {
        let Frame::Verify(verify) = frame else { return false };
        let (Ask::Decode { grant }, Some(run)) = (&verify.ask, self.last_run) else { return false };
        let text = &verify.text;
        let goes_on = run.epoch == text.epoch
            && (run.start..=self.text.tokens().len()).contains(&text.start)
            && self.text.has_prefix(text.start, text.start_hash);
        if !goes_on {
            return false;
        }
        match self.active.take() {
            Some(active) if matches!(active.task, Task::Run { .. }) => {
                self.finish_run(active, RunEnd::Superseded);
            }
            other => {
                self.active = other;
                if self.active.is_some() || !self.queue.is_empty() {
                    return false;
                }
            }
        }
        // The run has been going on: what it wants now it wants since now.
        let arrival = Arrival { at: Instant::now(), ..arrival };
        let active = Active::new(text, Task::Run { grant: *grant }, arrival);
        self.go_on_or_finish(active);
        true
    }

    /// Takes up the next frame if none is being carried out.
    pub(crate) fn begin_next(&mut self) {
        while self.active.is_none() {
            let Some((frame, arrival)) = self.queue.pop_front() else { return };
            let text = frame.text().clone();
            if text.budget_ms > 0 && micros(arrival.at) / 1000 >= u64::from(text.budget_ms) {
                // Nobody waits for it any more, and nothing was sampled for it yet.
                self.refuse(text.seq, RefusalKind::Overloaded { retry_after_ms: 0 });
                continue;
            }
            match self.text.agree(&text) {
                Ok(agreed) => {
                    // The token before `start` is always fed: its row gives p at `start`.
                    self.cached = self.cached.min(agreed).min(text.start - 1);
                    if let Some(shaping) = &mut self.shaping {
                        shaping.truncate(agreed);
                    }
                    self.begin(frame, &text, arrival);
                }
                Err(refusal) => self.refuse(text.seq, refusal),
            }
        }
    }

    fn begin(&mut self, frame: Frame, text: &FrameText, arrival: Arrival) {
        let task = match frame {
            Frame::Verify(frame) => match frame.ask {
                Ask::Block(block) => {
                    block.tokens.iter().for_each(|&token| self.text.push(token));
                    Task::Block { start: text.start, block }
                }
                Ask::Decode { grant } => {
                    self.last_run = Some(LastRun { epoch: text.epoch, start: text.start, stopped: false });
                    Task::Run { grant }
                }
            },
            Frame::Draft(DraftFrame { draft_len: len, min_confidence, .. }) => {
                Task::Draft { len, min_confidence, block: Block::default() }
            }
        };
        self.go_on_or_finish(Active::new(text, task, arrival));
    }

    /// Keeps a task that wants more passes; answers one that does not.
    fn go_on_or_finish(&mut self, mut active: Active) {
        let len = self.text.tokens().len();
        match &mut active.task {
            Task::Block { .. } => self.active = Some(active),
            Task::Run { grant } => {
                let stopped = self.last_run.is_some_and(|run| run.stopped);
                let end = match *grant {
                    _ if stopped => RunEnd::Stop,
                    grant if len >= grant => RunEnd::Grant,
                    _ if len >= self.reserve_len => RunEnd::Context,
                    _ => return self.active = Some(active),
                };
                self.finish_run(active, end);
            }
            Task::Draft { len: wanted, block, .. } => {
                if block.tokens.len() < *wanted && len < self.reserve_len {
                    return self.active = Some(active);
                }
                self.end_draft(active);
            }
        }
    }

    /// Tokens of the text that are not cached, and how many of their rows give logits.
    fn missing(&self) -> (usize, usize) {
        let missing = self.text.tokens().len() - self.cached;
        match self.active.as_ref().map(|active| &active.task) {
            Some(Task::Block { block, .. }) => (missing, block.tokens.len() + 1),
            Some(Task::Run { .. } | Task::Draft { .. }) => (missing, 1),
            // Nothing asked: the text known is read ahead, but for the token that the next frame feeds.
            None => (missing.saturating_sub(1), 0),
        }
    }

    /// The position that the first row with logits is about.
    pub(crate) fn first_asked(&self) -> usize {
        match self.active.as_ref().map(|active| &active.task) {
            Some(Task::Block { start, .. }) => *start,
            Some(Task::Run { .. } | Task::Draft { .. }) | None => self.text.tokens().len(),
        }
    }

    /// The next pass's rows of a session that has read its text: all of them give logits.
    pub(crate) fn running_wish(&self, budget: usize) -> Option<Wish> {
        let (rows, logits) = self.missing();
        (logits > 0 && rows == logits && rows <= budget).then_some(Wish { rows, logits })
    }

    /// The next pass's rows of a session that has text to read: at most `prefill` without logits, and behind
    /// the last of them those with logits if the budget holds them too.
    pub(crate) fn prefill_wish(&self, budget: usize, prefill: usize) -> Option<Wish> {
        let (missing, logits) = self.missing();
        let unread = missing - logits;
        if unread == 0 || prefill.min(budget) == 0 {
            None
        } else if unread <= prefill && missing <= budget {
            Some(Wish { rows: missing, logits })
        } else {
            Some(Wish { rows: unread.min(prefill).min(budget), logits: 0 })
        }
    }

    /// A run's next token was sampled.
    pub(crate) fn run_token(&mut self, mut active: Active, token: u32, logprobs: Option<PositionLogprobs>) {
        let position = self.text.tokens().len();
        self.text.push(token);
        let times = self.times(&active);
        let (seq, epoch) = (active.seq, active.epoch);
        let reply = RunToken { seq, epoch, position, token, times, logprobs };
        self.send(Reply::Verify(VerifyReply::Token(reply)));
        if let (Role::Verifier { stop_ids, .. }, Some(run)) = (&self.role, &mut self.last_run) {
            run.stopped = stop_ids.contains(&token);
        }
        (active.since, active.times) = (Instant::now(), WorkerTimes::default());
        self.go_on_or_finish(active);
    }

    /// A draft's next token was drawn.
    pub(crate) fn draft_token(
        &mut self,
        mut active: Active,
        token: u32,
        q: Option<foretoken_acceptance::Lattice>,
    ) {
        self.text.push(token);
        if let Task::Draft { block, .. } = &mut active.task {
            block.tokens.push(token);
            if let Some(q) = q {
                block.q.get_or_insert_default().push(q);
            }
        }
        self.go_on_or_finish(active);
    }

    /// A draft is as long as it gets.
    pub(crate) fn end_draft(&mut self, mut active: Active) {
        let (seq, epoch, times) = (active.seq, active.epoch, self.times(&active));
        self.tell_passes(&mut active);
        let Task::Draft { block, .. } = &mut active.task else { return };
        let block = std::mem::take(block);
        self.answer(seq, Reply::Draft(DraftReply::Drafted(Drafted { seq, epoch, block, times })));
    }

    /// A block was judged.
    pub(crate) fn verdict(&mut self, mut active: Active, mut verdict: Verdict) {
        self.tell_passes(&mut active);
        (verdict.seq, verdict.epoch, verdict.times) = (active.seq, active.epoch, self.times(&active));
        self.answer(active.seq, Reply::Verify(VerifyReply::Verdict(verdict)));
    }

    /// Charges the session with the time since `until`, which moves on to now.
    pub(crate) fn charge(&mut self, until: &mut Instant) {
        let now = Instant::now();
        self.charged += now.saturating_duration_since(*until);
        *until = now;
    }

    /// The account of a frame up to now; what it tells of the session's share is told once.
    fn times(&mut self, active: &Active) -> WorkerTimes {
        let charged_us = self.charged.as_micros();
        // What is less than a microsecond is left for the next reply.
        self.charged = self.charged.saturating_sub(Duration::from_micros(charged_us as u64));
        WorkerTimes { server_us: micros(active.since), charged_us: charged_us as u64, ..active.times }
    }

    fn finish_run(&mut self, mut active: Active, end: RunEnd) {
        self.tell_passes(&mut active);
        let finished =
            RunFinished { seq: active.seq, epoch: active.epoch, end, len: self.text.tokens().len() };
        self.answer(active.seq, Reply::Verify(VerifyReply::Finished(finished)));
    }

    /// Tells a traced frame's passes, unless the peer is so slow that its replies need the room.
    fn tell_passes(&self, active: &mut Active) {
        if let Some(passes) = active.trace.take()
            && self.replies.capacity() > self.replies.max_capacity() / 2
        {
            let _told_or_gone = self.replies.try_send(Event::Passes { seq: active.seq, passes });
        }
    }

    fn answer(&mut self, seq: u64, reply: Reply) {
        self.memory.answer(seq, reply.clone());
        self.send(reply);
    }

    fn refuse(&mut self, seq: u64, kind: RefusalKind) {
        self.memory.forget(seq);
        self.send_refusal(seq, kind);
    }

    fn send_refusal(&mut self, seq: u64, kind: RefusalKind) {
        let refusal = Refusal { seq, kind };
        self.send(match self.role {
            Role::Verifier { .. } => Reply::Verify(VerifyReply::Refused(refusal)),
            Role::Drafter { .. } => Reply::Draft(DraftReply::Refused(refusal)),
        });
    }

    fn send(&mut self, reply: Reply) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.replies.try_send(Event::Reply(reply)) {
            self.ended = Some(Ended::SlowReader);
        }
    }
}

/// What became of a frame, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meeting {
    Taken,
    Repeated,
    Stale,
}

impl Active {
    fn new(text: &FrameText, task: Task, arrival: Arrival) -> Self {
        Self {
            seq: text.seq,
            epoch: text.epoch,
            task,
            since: arrival.at,
            times: WorkerTimes::default(),
            trace: Trace::new(arrival.origin),
        }
    }

    /// The newest pass's logits have been used since `began`.
    pub(crate) fn sampled(&mut self, began: Instant) {
        let took = began.elapsed();
        self.times.sampling_us += in_micros(took);
        self.trace.sampled(began, took);
    }
}

pub(crate) fn micros(since: Instant) -> u64 {
    in_micros(since.elapsed())
}

pub(crate) fn in_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Frame {
    pub(crate) fn text(&self) -> &FrameText {
        match self {
            Frame::Verify(frame) => &frame.text,
            Frame::Draft(frame) => &frame.text,
        }
    }
}

fn invalid(reason: &'static str, field: &'static str, message: String) -> RefusalKind {
    RefusalKind::Invalid { reason: reason.into(), field: field.into(), message }
}

/// What the session's rule does not take.
fn check_rule(frame: &Frame, rule: Rule) -> Result<(), RefusalKind> {
    match frame {
        Frame::Verify(VerifyFrame { ask: Ask::Block(block), .. }) if rule == Rule::Gumbel => {
            block.check_one_hot().map_err(|message| invalid("MALFORMED_BLOCK", "block.q", message))
        }
        _ => Ok(()),
    }
}

/// What no state of the session would allow.
fn check_limits(
    frame: &Frame,
    reserve_len: usize,
    limits: &Limits,
    vocab_size: usize,
) -> Result<(), RefusalKind> {
    let out_of_range = |field, message| Err(invalid("OUT_OF_RANGE", field, message));
    let text = frame.text();
    if let Some(token) = text.tail.iter().find(|&&token| token as usize >= vocab_size) {
        return out_of_range("text.tail", format!("token {token} is outside the vocabulary of {vocab_size}"));
    }
    if text.start > reserve_len {
        let message = format!("start is {}; the session reserved {reserve_len} positions", text.start);
        return out_of_range("text.start", message);
    }
    let new_rows = match frame {
        Frame::Verify(verify) => match &verify.ask {
            Ask::Block(block) => {
                block.check(vocab_size).map_err(|message| invalid("MALFORMED_BLOCK", "block", message))?;
                block.tokens.len()
            }
            Ask::Decode { grant } => {
                let ahead = grant.saturating_sub(text.committed_len);
                if *grant < text.start || ahead > limits.max_grant {
                    let message = format!(
                        "grant is {grant}; it must be at least start, {}, and at most {} beyond committed_len, {}",
                        text.start, limits.max_grant, text.committed_len
                    );
                    return out_of_range("decode.grant", message);
                }
                0
            }
        },
        Frame::Draft(draft) => draft.draft_len,
    };
    if new_rows > limits.max_draft_len {
        let field = if matches!(frame, Frame::Draft(_)) { "draft_len" } else { "block.tokens" };
        return out_of_range(
            field,
            format!("{new_rows} tokens were sent or asked for; the limit is {}", limits.max_draft_len),
        );
    }
    if matches!(frame, Frame::Verify(_)) && text.start + new_rows > reserve_len {
        let message = format!(
            "a block of {new_rows} at {} goes beyond the {reserve_len} positions reserved",
            text.start
        );
        return out_of_range("block.tokens", message);
    }
    Ok(())
}
