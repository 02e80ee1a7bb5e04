//! The spans of a stream's frames.
//!
//! A frame of a sampled trace comes with the id of the call that sent it. Its span is that call's child, from the frame's
//! arrival to its terminal reply; below it lie the wait for the model's thread and the passes, as they happened, each
//! linked to the other frames that shared it. A frame without an id costs one comparison.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use foretoken_engine::conversation::WorkerTimes;
use foretoken_runtime::{Origin, TracedPass};
use foretoken_telemetry::timed::{Moment, TimedSpan, is_sampled};
use foretoken_telemetry::{Context, names, propagation};

use crate::message::{Account, Outcome, WorkerFrame, WorkerReply};

/// Spans kept open on one stream. More frames than that are not in work at any worker; the oldest gives way.
const MAX_OPEN: usize = 64;

/// The frames of one stream that are traced and not yet answered.
#[derive(Debug)]
pub(crate) struct FrameSpans {
    /// The session's span: its trace is that of every frame.
    session: Context,
    open: VecDeque<FrameSpan>,
}

#[derive(Debug)]
struct FrameSpan {
    seq: u64,
    span: TimedSpan,
    arrived: Moment,
    spent: WorkerTimes,
    tokens: usize,
}

impl FrameSpans {
    /// Of the stream whose span is `session`.
    pub(crate) fn new(session: Context) -> Self {
        Self { session, open: VecDeque::new() }
    }

    /// A frame arrived. Gives what the session needs to tell its passes, if it is traced.
    pub(crate) fn arrived(&mut self, frame: &impl WorkerFrame) -> Option<Origin> {
        let text = frame.text();
        let caller = text.span_id.filter(|_| is_sampled(&self.session))?;
        if self.open.iter().any(|frame| frame.seq == text.seq) {
            // Said again before it was answered: one frame, one span.
            return None;
        }
        let arrived = Moment::now();
        let caller = propagation::with_span_id(&self.session, u64::from_be_bytes(caller));
        let mut span = TimedSpan::serving(names::SPAN_FRAME, &caller, arrived.time());
        let (kind, asked_name, asked) = frame.asks();
        span.set(names::FRAME_KIND, kind);
        span.set_count(asked_name, asked as u64);
        span.set_count(names::SEQ, text.seq);
        span.set_count(names::EPOCH, text.epoch);
        span.set_count(names::START, text.start as u64);
        let origin = Origin(span.place());
        if self.open.len() >= MAX_OPEN {
            self.open.pop_front();
        }
        let (spent, tokens) = (WorkerTimes::default(), 0);
        self.open.push_back(FrameSpan { seq: text.seq, span, arrived, spent, tokens });
        Some(origin)
    }

    /// A frame's passes, ahead of its terminal reply.
    pub(crate) fn passes(&mut self, seq: u64, passes: &[TracedPass]) {
        if let Some(frame) = self.open.iter_mut().find(|frame| frame.seq == seq) {
            frame.passes(passes);
        }
    }

    /// A reply is about to leave.
    pub(crate) fn replied(&mut self, reply: &impl WorkerReply) {
        if self.open.is_empty() {
            return;
        }
        let Some(account) = reply.account() else { return };
        let Some(index) = self.open.iter().position(|frame| frame.seq == account.seq) else { return };
        self.open[index].add(account);
        if let Some(outcome) = account.outcome
            && let Some(frame) = self.open.remove(index)
        {
            frame.end(outcome);
        }
    }
}

impl FrameSpan {
    fn passes(&mut self, passes: &[TracedPass]) {
        let Some(first) = passes.first() else { return };
        let began = self.arrived.time_at(first.began);
        // The frame met a thread that was busy, or a pass that others had the rows of.
        self.span.child(names::SPAN_QUEUE, self.arrived.time()).end(began);
        let own = self.span.place();
        for pass in passes {
            let began = self.arrived.time_at(pass.began);
            let mut span = self.span.child(names::SPAN_PASS, began);
            span.set_count(names::ROWS, u64::from(pass.rows));
            span.set_count(names::BATCH_ROWS, u64::from(pass.batch_rows));
            span.set_count(names::BATCH_SESSIONS, u64::from(pass.batch_sessions));
            for other in pass.frames.iter().filter(|frame| frame.0 != own) {
                span.link(other.0);
            }
            span.end(began + pass.took);
            if let Some((began, took)) = pass.sampled {
                let took = (names::SAMPLING_US, micros(took));
                self.span.event(names::EVENT_SAMPLING, self.arrived.time_at(began), took);
            }
        }
    }

    fn add(&mut self, account: Account<'_>) {
        self.tokens += account.tokens;
        let Some(times) = account.times else { return };
        self.spent.add(&times);
    }

    fn end(self, outcome: Outcome<'_>) {
        let Self { mut span, arrived, spent, tokens, .. } = self;
        for (name, value) in [
            (names::TOKENS, tokens as u64),
            (names::QUEUE_US, spent.queue_us),
            (names::BATCH_WAIT_US, spent.batch_wait_us),
            (names::MODEL_US, spent.model_us),
            (names::SAMPLING_US, spent.sampling_us),
            (names::PASSES, u64::from(spent.passes)),
            (names::ROWS, u64::from(spent.rows)),
            (names::BATCH_ROWS, u64::from(spent.batch_rows)),
            (names::BATCH_SESSIONS, u64::from(spent.batch_sessions)),
        ] {
            span.set_count(name, value);
        }
        match outcome {
            Outcome::Done(how) | Outcome::Refused(how) => span.set(names::OUTCOME, how),
            Outcome::Failed(reason, message) => {
                span.set(names::OUTCOME, "failed");
                span.set(names::ERROR_TYPE, reason.to_owned());
                span.fail(message);
            }
        }
        span.end(arrived.time_at(Instant::now()));
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
