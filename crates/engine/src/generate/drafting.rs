//! A request's drafter through its life: opening, ready, lost, opened again.
//!
//! Losing a drafter never fails a request. What is drafted is decided in `block`; this module only sees
//! to it that there is someone to ask.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use crate::conversation::{DraftOpen, WorkerView};
use crate::link::{Drafter, DrafterSource, LinkError, Traffic};

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LAST_BACKOFF: Duration = Duration::from_secs(5);
/// Plain tokens between two questions to a drafter that keeps having no guess, at most.
const LONGEST_MISS_RUN: usize = 16;

/// A stretch of the answer that was decoded plainly although speculation was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeculationOff {
    /// Output tokens committed when it began.
    pub at_token: usize,
    /// Machine-readable.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Output tokens committed when it ended.
    pub until_token: Option<usize>,
}

type Opening<D> = Pin<Box<dyn Future<Output = Result<D, LinkError>> + Send>>;

enum State<D> {
    /// No speculation wanted.
    Off,
    Opening(Opening<D>),
    /// Nobody answered; ask again then.
    Waiting(Instant),
    Ready(Box<Ready<D>>),
}

pub(super) struct Ready<D> {
    pub(super) drafter: D,
    pub(super) view: WorkerView,
    /// It is shutting down: leave at the next round.
    pub(super) draining: bool,
}

pub(super) struct Drafting<S: DrafterSource> {
    source: Option<S>,
    open: DraftOpen,
    state: State<S::Drafter>,
    /// How long to wait before the next opening where the last one led to nothing.
    backoff: Duration,
    /// The drafter has answered a frame since it was opened.
    answered: bool,
    misses: u32,
    /// Bytes of links that are gone.
    closed_traffic: Traffic,
    history: Vec<SpeculationOff>,
}

impl<S: DrafterSource> Drafting<S> {
    pub(super) fn new(mut source: Option<S>, open: DraftOpen) -> Self {
        let state = match &mut source {
            Some(source) => State::Opening(Box::pin(source.open(open.clone()))),
            None => State::Off,
        };
        Self {
            source,
            open,
            state,
            backoff: FIRST_BACKOFF,
            answered: false,
            misses: 0,
            closed_traffic: Traffic::default(),
            history: Vec::new(),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    pub(super) fn ready(&mut self) -> Option<&mut Ready<S::Drafter>> {
        match &mut self.state {
            State::Ready(ready) => Some(ready),
            _ => None,
        }
    }

    pub(super) fn name(&self) -> Option<&str> {
        match &self.state {
            State::Ready(ready) => Some(ready.drafter.name()),
            _ => None,
        }
    }

    pub(super) fn traffic(&self) -> Traffic {
        let mut traffic = self.closed_traffic;
        if let State::Ready(ready) = &self.state {
            traffic += ready.drafter.traffic();
        }
        traffic
    }

    pub(super) fn take_history(&mut self) -> Vec<SpeculationOff> {
        std::mem::take(&mut self.history)
    }

    /// Waits until a drafter is ready; for ever if none is wanted. Cancel safe.
    ///
    /// `at_token` counts output tokens committed, for the history.
    pub(super) async fn wait_ready(&mut self, at_token: usize) {
        loop {
            match &mut self.state {
                State::Off => std::future::pending().await,
                State::Ready(_) => return,
                State::Waiting(until) => {
                    tokio::time::sleep_until(*until).await;
                    self.reopen();
                }
                State::Opening(opening) => match opening.await {
                    Ok(drafter) => self.became_ready(drafter, at_token),
                    Err(error) => self.wait_after(error, at_token),
                },
            }
        }
    }

    /// Waits until the opening that began with the request has ended, well or not, but no longer than `patience`.
    pub(super) async fn first_opening(&mut self, patience: Duration, at_token: usize) {
        let State::Opening(opening) = &mut self.state else { return };
        match tokio::time::timeout(patience, opening).await {
            Ok(Ok(drafter)) => self.became_ready(drafter, at_token),
            Ok(Err(error)) => self.wait_after(error, at_token),
            // It goes on; plain decoding begins without it.
            Err(_) => {
                let message = format!(
                    "no draft worker opened a session within {} ms; see --draft-timeout",
                    patience.as_millis()
                );
                self.note_off(LinkError { reason: "DRAFTER_TIMEOUT".into(), message }, at_token);
            }
        }
    }

    /// The drafter failed: decode plainly and open another, at once if this one ever answered. One that opens and
    /// then keeps silent would otherwise cost a time-out for every token.
    pub(super) fn lost(&mut self, error: LinkError, at_token: usize) {
        tracing::warn!(reason = %error.reason, detail = %error.message, at_token, "drafter lost; decoding plainly");
        self.close();
        if self.answered {
            self.note_off(error, at_token);
            self.reopen();
        } else {
            self.wait_after(error, at_token);
        }
    }

    /// The drafter is leaving: open another.
    pub(super) fn leave(&mut self, at_token: usize) {
        let message = "the draft worker is shutting down".to_owned();
        self.lost(LinkError { reason: "DRAFTER_DRAINING".into(), message }, at_token);
    }

    /// The drafter answered, with a guess or with none.
    pub(super) fn answered(&mut self, guessed: bool) {
        self.answered = true;
        self.backoff = FIRST_BACKOFF;
        if guessed {
            self.misses = 0;
        }
    }

    /// How long to decode plainly now that there was no guess: longer with every miss in a row, so that
    /// asking in vain costs little over a slow link.
    pub(super) fn miss_run_len(&mut self) -> usize {
        let len = (1usize << self.misses.min(10)).min(LONGEST_MISS_RUN);
        self.misses += 1;
        len
    }

    fn reopen(&mut self) {
        self.state = match &mut self.source {
            Some(source) => State::Opening(Box::pin(source.open(self.open.clone()))),
            None => State::Off,
        };
    }

    fn became_ready(&mut self, drafter: S::Drafter, at_token: usize) {
        if let Some(off) = self.history.last_mut() {
            off.until_token.get_or_insert(at_token);
        }
        self.answered = false;
        self.misses = 0;
        self.state = State::Ready(Box::new(Ready { drafter, view: WorkerView::default(), draining: false }));
    }

    fn wait_after(&mut self, error: LinkError, at_token: usize) {
        self.note_off(error, at_token);
        self.state = State::Waiting(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
    }

    fn note_off(&mut self, error: LinkError, at_token: usize) {
        // One entry per stretch: the reason it began with says most.
        if self.history.last().is_none_or(|off| off.until_token.is_some()) {
            let LinkError { reason, message } = error;
            self.history.push(SpeculationOff { at_token, reason, message, until_token: None });
        }
    }

    fn close(&mut self) {
        self.closed_traffic = self.traffic();
        self.state = State::Off;
    }
}
