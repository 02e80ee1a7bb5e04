//! One pass: whose rows go in, the forward, and what the logits become.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foretoken_acceptance::{LogitsError, Rule};

use crate::config::RuntimeConfig;
use crate::decoder::{Decoder, DecoderError, SessionRows};
use crate::handle::Ended;
use crate::judge::{Asked, Draft, Judge};
use crate::session::{Role, Session, Task, Wish, in_micros, micros};
use crate::stats::Stats;
use crate::traced::{MAX_TRACED_PEERS, Origin, TracedPass};

/// Buffers and fairness of passes.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    judge: Judge,
    plan: Vec<(usize, Wish)>,
    /// Where the next plan starts looking, so that no session is always last.
    turn: usize,
    /// What went by behind the last reply of a pass: charged with the next.
    uncharged: Duration,
}

/// How long a pass took and how full it was.
#[derive(Clone, Copy)]
struct PassFacts {
    began: Instant,
    took: Duration,
    rows: u32,
    sessions: u32,
}

impl Passes {
    /// Plans and runs one pass. False if no session wants any rows.
    pub(crate) fn run<D: Decoder>(
        &mut self,
        decoder: &mut D,
        sessions: &mut [Session],
        config: &RuntimeConfig,
        stats: &Stats,
    ) -> bool {
        self.plan(sessions, config);
        stats.waiting.store(self.left_waiting(sessions), Ordering::Relaxed);
        if self.plan.is_empty() {
            return false;
        }
        let began = Instant::now();
        let outcome = forward(decoder, sessions, &self.plan);
        let rows: usize = self.plan.iter().map(|(_, wish)| wish.rows).sum();
        let facts =
            PassFacts { began, took: began.elapsed(), rows: rows as u32, sessions: self.plan.len() as u32 };
        stats.passed(facts.took, rows, self.plan.len());
        match outcome {
            Ok(()) => self.hand_out(decoder, sessions, config, stats, facts),
            Err(error) => {
                tracing::error!(%error, "pass failed; its sessions end");
                for &(index, _) in &self.plan {
                    sessions[index].ended = Some(Ended::ModelFailed(error.to_string()));
                }
            }
        }
        stats.copied_to_host.store(decoder.copied_to_host(), Ordering::Relaxed);
        stats.busy_us.fetch_add(micros(began), Ordering::Relaxed);
        true
    }

    /// Who runs comes first; prompts share what is left, and no more than a chunk of it while anyone runs, so
    /// that a prompt holds up running sessions by a chunk at most, however many prompts there are.
    fn plan(&mut self, sessions: &[Session], config: &RuntimeConfig) {
        self.plan.clear();
        self.turn = self.turn.wrapping_add(1);
        let mut budget = config.row_budget;
        for index in self.in_turn(sessions) {
            if let Some(wish) = sessions[index].running_wish(budget) {
                budget -= wish.rows;
                self.plan.push((index, wish));
            }
        }
        let lone =
            self.plan.is_empty() && sessions.iter().filter(|session| session.active.is_some()).count() == 1;
        let mut prefill = if lone { budget } else { config.prefill_chunk.min(budget) };
        // Prompts that a frame waits for go before text that is only read ahead.
        for reading_ahead in [false, true] {
            for index in self.in_turn(sessions) {
                let session = &sessions[index];
                if session.active.is_none() == reading_ahead
                    && let Some(wish) = session.prefill_wish(budget, prefill)
                {
                    budget -= wish.rows;
                    prefill -= wish.rows - wish.logits;
                    self.plan.push((index, wish));
                }
            }
        }
    }

    /// Sessions whose frame has been in no pass yet and is not in this one.
    fn left_waiting(&self, sessions: &[Session]) -> usize {
        let new = |session: &Session| session.active.as_ref().is_some_and(|active| active.times.passes == 0);
        let planned = self.plan.iter().filter(|&&(index, _)| new(&sessions[index])).count();
        sessions.iter().filter(|session| new(session)).count() - planned
    }

    /// All sessions that are not over, beginning with another one each time.
    fn in_turn<'a>(&self, sessions: &'a [Session]) -> impl Iterator<Item = usize> + use<'a> {
        let turn = self.turn;
        (0..sessions.len())
            .map(move |offset| (turn + offset) % sessions.len())
            .filter(|&index| sessions[index].ended.is_none())
    }

    fn hand_out<D: Decoder>(
        &mut self,
        decoder: &D,
        sessions: &mut [Session],
        config: &RuntimeConfig,
        stats: &Stats,
        facts: PassFacts,
    ) {
        let mut first_row = 0;
        let mut charged_until = facts.began + facts.took;
        let frames = traced_frames(&self.plan, sessions);
        for &(index, wish) in &self.plan {
            let session = &mut sessions[index];
            session.cached += wish.rows;
            session.charged += facts.took.mul_f64(f64::from(wish.rows as u32) / f64::from(facts.rows));
            if let Some(active) = &mut session.active {
                if active.times.passes == 0 {
                    let waited = facts.began.saturating_duration_since(active.since);
                    active.times.queue_us = in_micros(waited);
                    stats.waited(active.times.queue_us);
                }
                active.times.model_us += in_micros(facts.took);
                active.times.passes += 1;
                active.times.rows = wish.rows as u32;
                active.times.batch_rows = facts.rows;
                active.times.batch_sessions = facts.sessions;
                active.trace.pass(|| TracedPass {
                    began: facts.began,
                    took: facts.took,
                    sampled: None,
                    rows: wish.rows as u32,
                    batch_rows: facts.rows,
                    batch_sessions: facts.sessions,
                    frames: Arc::clone(&frames),
                });
            }
            if wish.logits > 0 {
                if let Some(active) = &mut session.active {
                    let since_pass = facts.began.elapsed().saturating_sub(facts.took);
                    active.times.batch_wait_us += in_micros(since_pass);
                }
                session.charged += std::mem::take(&mut self.uncharged);
                let (text, position) = (session.text.tokens(), session.first_asked());
                self.judge.shape(session.shaping.take(), text, first_row, position);
                let concluded =
                    conclude(&mut self.judge, decoder, session, first_row, config, &mut charged_until);
                session.shaping = self.judge.unshape();
                if let Err(error) = concluded {
                    tracing::error!(session = %session.id, %error, "logits are unusable; the session ends");
                    session.ended = Some(Ended::ModelFailed(error.to_string()));
                }
            }
            first_row += wish.logits;
        }
        self.uncharged += charged_until.elapsed();
    }
}

/// The traced frames in a pass. Allocates nothing if there are none.
fn traced_frames(plan: &[(usize, Wish)], sessions: &[Session]) -> Arc<[Origin]> {
    let origins = || plan.iter().filter_map(|&(index, _)| sessions[index].active.as_ref()?.trace.origin);
    if origins().next().is_none() { Arc::default() } else { origins().take(MAX_TRACED_PEERS).collect() }
}

fn forward<D: Decoder>(
    decoder: &mut D,
    sessions: &[Session],
    plan: &[(usize, Wish)],
) -> Result<(), DecoderError> {
    for &(index, _) in plan {
        decoder.truncate(sessions[index].slot, sessions[index].cached);
    }
    let batch: Vec<_> = plan
        .iter()
        .map(|&(index, wish)| {
            let session = &sessions[index];
            let tokens = &session.text.tokens()[session.cached..session.cached + wish.rows];
            SessionRows { slot: session.slot, tokens, logits: wish.logits }
        })
        .collect();
    // A bug in a backend must not take the other sessions along.
    catch_unwind(AssertUnwindSafe(|| decoder.forward(&batch))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(DecoderError::Backend(format!("panicked: {}", text.as_deref().unwrap_or("no message"))))
    })
}

/// Turns the logits a session was given into what its frame asked for.
fn conclude<D: Decoder>(
    judge: &mut Judge,
    decoder: &D,
    session: &mut Session,
    first_row: usize,
    config: &RuntimeConfig,
    charged_until: &mut Instant,
) -> Result<(), LogitsError> {
    let Some(mut active) = session.active.take() else { return Ok(()) };
    let began = Instant::now();
    let sampling = session.sampling;
    let next = (session.text.tokens().len(), active.epoch);
    match (&active.task, &session.role) {
        (Task::Block { start, block }, Role::Verifier { keys, logprobs, .. }) => {
            let asked = Asked { first_row, sampling: &sampling, keys, block, at: (*start, active.epoch) };
            let mut verdict = judge.verdict(decoder, session.rule, asked)?;
            if let Some(top) = *logprobs {
                judge.add_logprobs(decoder, asked, &mut verdict, top)?;
            }
            active.sampled(began);
            session.charge(charged_until);
            session.verdict(active, verdict);
        }
        (Task::Run { .. }, Role::Verifier { keys, logprobs, .. }) => {
            let token = match session.rule {
                Rule::Token | Rule::Block => judge.plain(decoder, first_row, &sampling, &keys.plain(), next),
                Rule::Gumbel => judge.coupled(decoder, first_row, &sampling, &keys.noise(), next),
            }?;
            let logprobs = match *logprobs {
                Some(top) => Some(judge.logprobs(decoder, first_row, &sampling, &[token], top)?),
                None => None,
            };
            active.sampled(began);
            session.charge(charged_until);
            session.run_token(active, token, logprobs);
        }
        (Task::Draft { min_confidence, .. }, Role::Drafter { key }) => {
            let draft = Draft {
                row: first_row,
                sampling: &sampling,
                rule: session.rule,
                shape: config.lattice,
                key,
                at: next,
                least: *min_confidence,
            };
            let drafted = judge.draft(decoder, draft)?;
            active.sampled(began);
            session.charge(charged_until);
            match drafted {
                Some((token, q)) => session.draft_token(active, token, q),
                None => session.end_draft(active),
            }
        }
        // The typed sessions of `handle` let no frame into the wrong role.
        _ => {}
    }
    Ok(())
}
