//! The model's thread: takes commands, keeps leases, runs passes until nothing is wanted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use foretoken_acceptance::Shaping;
use foretoken_engine::conversation::SessionOpen;

use crate::config::RuntimeConfig;
use crate::decoder::Decoder;
use crate::handle::{Command, Ended, Open, OpenCommand, OpenError, Opened};
use crate::pass::Passes;
use crate::session::{Meeting, Session, SessionParts};
use crate::stats::Stats;

pub(crate) struct ModelThread<D> {
    decoder: D,
    config: RuntimeConfig,
    kv_tokens: usize,
    stats: Arc<Stats>,
    inbox: Receiver<Command>,
    sessions: Vec<Session>,
    passes: Passes,
    next_stream: u64,
}

impl<D: Decoder> ModelThread<D> {
    pub(crate) fn new(
        decoder: D,
        config: RuntimeConfig,
        kv_tokens: usize,
        stats: Arc<Stats>,
        inbox: Receiver<Command>,
    ) -> Self {
        Self {
            decoder,
            config,
            kv_tokens,
            stats,
            inbox,
            sessions: Vec::new(),
            passes: Passes::default(),
            next_stream: 1,
        }
    }

    /// Runs until every handle is gone.
    pub(crate) fn run(mut self) {
        let mut idle = false;
        while self.take_commands(idle) {
            self.keep_leases();
            self.sessions.iter_mut().for_each(Session::begin_next);
            idle = !self.passes.run(&mut self.decoder, &mut self.sessions, &self.config, &self.stats);
            self.end_broken();
        }
    }

    /// Takes all commands there are; waits for one if there is nothing else to do. False if no one can
    /// send any more.
    fn take_commands(&mut self, idle: bool) -> bool {
        if idle {
            let command = match self.next_expiry() {
                Some(wait) => match self.inbox.recv_timeout(wait) {
                    Ok(command) => command,
                    Err(RecvTimeoutError::Timeout) => return true,
                    Err(RecvTimeoutError::Disconnected) => return false,
                },
                None => match self.inbox.recv() {
                    Ok(command) => command,
                    Err(_) => return false,
                },
            };
            self.obey(command);
        }
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn next_expiry(&self) -> Option<Duration> {
        let earliest = self.sessions.iter().filter_map(|session| session.broken_at).min()?;
        Some((earliest + self.config.grace).saturating_duration_since(Instant::now()))
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Wake => {}
            Command::Open(open) => self.open(*open),
            Command::Frame { session_id, stream, frame, arrival } => {
                let vocab_size = self.decoder.shape().vocab_size;
                // A frame of a session that ended, or of a stream that was taken over, came too late.
                let Some(session) = self
                    .sessions
                    .iter_mut()
                    .find(|session| session.id == session_id && session.stream == stream)
                else {
                    return;
                };
                match session.meet(frame, arrival, &self.config.limits, vocab_size) {
                    Meeting::Taken => {}
                    Meeting::Repeated => {
                        self.stats.repeated_frames.fetch_add(1, Ordering::Relaxed);
                    }
                    Meeting::Stale => {
                        self.stats.stale_frames.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    fn open(&mut self, command: OpenCommand) {
        let OpenCommand { open, lease, replies, opened } = command;
        // A session whose stream has just ended must not keep its room from this one.
        self.keep_leases();
        let stream = self.next_stream;
        self.next_stream += 1;
        let result = self.admit(&open).and_then(|()| {
            let ours = self.sessions.iter().position(|session| session.id == open.session().session_id);
            if let Some(index) = ours {
                let session = &mut self.sessions[index];
                if same_session(session, &open) {
                    session.resume(stream, lease, replies);
                    return Ok(Opened { stream, cached_len: session.cached });
                }
                self.remove(index, Some(Ended::TakenOver));
            }
            self.make_room(open.session().reserve_len)?;
            let slot = self
                .decoder
                .allocate(open.session().reserve_len)
                .map_err(|error| OpenError::ModelFailed(error.to_string()))?;
            let parts = SessionParts {
                id: open.session().session_id.clone(),
                stream,
                role: open.role(),
                sampling: open.session().sampling,
                shaping: shaping(open.session(), self.decoder.shape().vocab_size),
                rule: open.session().rule,
                prompt: open.session().prompt.clone(),
                reserve_len: open.session().reserve_len,
                slot,
                lease,
                replies,
            };
            self.sessions.push(Session::new(parts, &self.config.limits));
            Ok(Opened { stream, cached_len: 0 })
        });
        self.publish();
        // A caller that gave up waiting has dropped its lease; the session ends with it.
        let _unheard = opened.send(result);
    }

    /// What no state of the runtime would allow.
    fn admit(&self, open: &Open) -> Result<(), OpenError> {
        let (shape, session) = (self.decoder.shape(), open.session());
        let invalid = |field, message| Err(OpenError::Invalid { field, message });
        if !session.model_fingerprint.is_empty() && session.model_fingerprint != shape.fingerprint {
            return Err(OpenError::Model {
                model: shape.name.clone(),
                ours: shape.fingerprint.clone(),
                expected: session.model_fingerprint.clone(),
            });
        }
        if let Some(token) = session.prompt.iter().find(|&&token| token as usize >= shape.vocab_size) {
            let message = format!("token {token} is outside the vocabulary of {}", shape.vocab_size);
            return invalid("session.prompt", message);
        }
        if let Err(error) = session.adjustments.check_vocabulary(shape.vocab_size) {
            let (field, message) = (open_field(error.field), error.message);
            return Err(OpenError::Invalid { field, message });
        }
        let stop_ids = if let Open::Verify(open) = open { open.stop_ids.as_slice() } else { &[] };
        if let Some(token) = stop_ids.iter().find(|&&token| token as usize >= shape.vocab_size) {
            let message = format!("stop id {token} is outside the vocabulary of {}", shape.vocab_size);
            return invalid("stop_ids", message);
        }
        let (needed, prompt_len) = (session.reserve_len, session.prompt.len());
        if needed > shape.max_context || needed <= prompt_len {
            let message = format!(
                "reserve_len is {needed}; it must be above the prompt's {prompt_len} tokens and at most the \
                 context, {}",
                shape.max_context
            );
            return invalid("session.reserve_len", message);
        }
        if needed > self.kv_tokens {
            return Err(OpenError::KvTooSmall { needed, capacity: self.kv_tokens });
        }
        Ok(())
    }

    /// Frees sessions in their grace time, the longest broken first, until a new one fits.
    fn make_room(&mut self, needed: usize) -> Result<(), OpenError> {
        loop {
            let free = self.kv_tokens - self.kv_used();
            let error = if self.sessions.len() >= self.config.limits.max_sessions {
                OpenError::SessionsFull(self.config.limits.max_sessions)
            } else if needed > free {
                OpenError::KvFull { needed, free, capacity: self.kv_tokens }
            } else {
                return Ok(());
            };
            let broken = (0..self.sessions.len())
                .filter(|&index| self.sessions[index].broken_at.is_some())
                .min_by_key(|&index| self.sessions[index].broken_at);
            match broken {
                Some(index) => self.remove(index, None),
                None => return Err(error),
            }
        }
    }

    fn kv_used(&self) -> usize {
        self.sessions.iter().map(|session| session.reserve_len).sum()
    }

    /// Looks which streams still hold their sessions.
    fn keep_leases(&mut self) {
        let now = Instant::now();
        for index in (0..self.sessions.len()).rev() {
            let session = &mut self.sessions[index];
            if session.lease.is_held() {
                continue;
            }
            let broken_at = *session.broken_at.get_or_insert(now);
            session.pause();
            if session.lease.is_closed() || now.duration_since(broken_at) >= self.config.grace {
                self.remove(index, None);
            }
        }
        self.publish();
    }

    fn end_broken(&mut self) {
        for index in (0..self.sessions.len()).rev() {
            if let Some(ended) = self.sessions[index].ended.take() {
                self.remove(index, Some(ended));
            }
        }
    }

    fn remove(&mut self, index: usize, ended: Option<Ended>) {
        let session = self.sessions.swap_remove(index);
        if let Some(ended) = ended {
            session.end_stream(ended);
        }
        self.decoder.release(session.slot);
        self.publish();
    }

    fn publish(&self) {
        self.stats.sessions.store(self.sessions.len(), Ordering::Relaxed);
        self.stats.kv_used.store(self.kv_used(), Ordering::Relaxed);
    }
}

/// Whether an Open means the session we hold: everything p depends on is the same.
fn same_session(session: &Session, open: &Open) -> bool {
    session.role == open.role()
        && session.sampling == open.session().sampling
        && session.is_adjusted_by(&open.session().adjustments)
        && session.rule == open.session().rule
        && session.reserve_len == open.session().reserve_len
        && session.text.has_prompt(&open.session().prompt)
}

fn shaping(open: &SessionOpen, vocab_size: usize) -> Option<Box<Shaping>> {
    Shaping::new(&open.adjustments, &open.prompt, vocab_size, open.reserve_len).map(Box::new)
}

/// Where an Open has an adjustment.
fn open_field(field: &'static str) -> &'static str {
    match field {
        "logit_bias" => "sampling.logit_bias",
        "allowed_ids" => "sampling.allowed_ids",
        "forbidden_ids" => "sampling.forbidden_ids",
        _ => "session.end_ids",
    }
}
