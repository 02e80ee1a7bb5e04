//! Plain decoding: the verifier samples by itself, as far as it is granted.

use futures_util::FutureExt;
use tokio::time::Instant;

use super::{Callee, GenerateError, Generation, Mode, Observer, Output, millis};
use crate::conversation::{Ask, RefusalKind, RunEnd, RunToken, VerifyFrame, VerifyReply};
use crate::ledger::Origin;
use crate::link::{DrafterSource, Verifier};

/// Tokens granted ahead of what the client has taken. No grant, no pass: this is the back-pressure.
const GRANT_WINDOW: usize = 32;

/// A decode run as the orchestrator sees it.
struct Run {
    /// Text length it may reach in all.
    end: usize,
    /// Text length granted so far; 0 before the first frame.
    granted: usize,
    /// Number of the newest frame.
    seq: u64,
}

impl<V: Verifier, S: DrafterSource, O: Output, W: Observer> Generation<'_, V, S, O, W> {
    /// Decodes up to `limit` tokens plainly, or until a drafter is ready where that is wanted.
    pub(super) async fn plain_run(
        &mut self,
        limit: usize,
        leave_when_ready: bool,
    ) -> Result<(), GenerateError> {
        let run = self.run(limit, leave_when_ready).await;
        self.account.call_ended(run.as_ref().err().map(GenerateError::name));
        run
    }

    async fn run(&mut self, limit: usize, leave_when_ready: bool) -> Result<(), GenerateError> {
        self.enter(Mode::Run);
        let mut run = Run { end: self.text.len() + limit.min(self.remaining()), granted: 0, seq: 0 };
        let mut waiting = Instant::now();
        let mut deadline = waiting + self.plan.timeouts.verify;
        while self.finish.is_none() && self.text.len() < run.end {
            if Instant::now() >= deadline {
                return Err(GenerateError::VerifierTimeout(self.plan.timeouts.verify));
            }
            let at_token = self.text.output().len();
            // Looked at before every token: a verifier that always has the next one ready must not hide it.
            if leave_when_ready && self.drafting.wait_ready(at_token).now_or_never().is_some() {
                self.account.watch().recovery(waiting.elapsed());
                return Ok(());
            }
            self.grant(&mut run).await?;
            let reply = tokio::select! {
                // What has arrived is committed before anything else is decided.
                biased;
                reply = tokio::time::timeout_at(deadline, self.verifier.receive()) => match reply {
                    Ok(reply) => reply.map_err(GenerateError::VerifierLost)?,
                    Err(_) => return Err(GenerateError::VerifierTimeout(self.plan.timeouts.verify)),
                },
                () = self.drafting.wait_ready(at_token), if leave_when_ready => {
                    self.account.watch().recovery(waiting.elapsed());
                    return Ok(());
                }
            };
            self.account.charge(Callee::Verify, &reply.times());
            match reply {
                VerifyReply::Token(token) if token.epoch == self.text.epoch() => {
                    self.account.watch().verify(waiting.elapsed(), &token.times);
                    self.account.replied(&token.times, 1);
                    self.run_token(token).await?;
                    waiting = Instant::now();
                    deadline = waiting + self.plan.timeouts.verify;
                }
                VerifyReply::Finished(finished) if finished.seq == run.seq => match finished.end {
                    RunEnd::Grant | RunEnd::Stop => run.granted = 0,
                    RunEnd::Context | RunEnd::Superseded => {
                        let message =
                            format!("a decode run ended early ({:?}) at {}", finished.end, finished.len);
                        return Err(GenerateError::VerifierProtocol(message));
                    }
                },
                VerifyReply::Refused(refusal) if refusal.seq == run.seq => {
                    let refused = self.refused(refusal.kind).await;
                    self.account.watch().recovery(waiting.elapsed());
                    refused?;
                    waiting = Instant::now();
                    run.granted = 0;
                }
                // Of an older frame or epoch, or a notice: nothing hangs on it.
                _ => {}
            }
        }
        Ok(())
    }

    /// Raises the grant when half of it is used up.
    async fn grant(&mut self, run: &mut Run) -> Result<(), GenerateError> {
        let used_up =
            run.granted < run.end && run.granted.saturating_sub(self.text.len()) <= GRANT_WINDOW / 2;
        if !used_up {
            return Ok(());
        }
        run.granted = run.end.min(self.text.len() + GRANT_WINDOW);
        let budget = millis(self.plan.timeouts.verify);
        let span_id = self.account.call(Callee::Verify);
        let text = self.text.frame(&mut self.verify_view, budget, span_id);
        run.seq = text.seq;
        let frame = VerifyFrame { text, ask: Ask::Decode { grant: run.granted } };
        self.verifier.send(frame).await.map_err(GenerateError::VerifierLost)
    }

    async fn run_token(&mut self, token: RunToken) -> Result<(), GenerateError> {
        if token.position < self.text.len() {
            // Said before; within an epoch the same position has the same coin, hence the same token.
            return Ok(());
        }
        if token.position > self.text.len() {
            let message =
                format!("token for position {} came when {} was next", token.position, self.text.len());
            return Err(GenerateError::VerifierProtocol(message));
        }
        if token.token as usize >= self.plan.vocab_size {
            let message =
                format!("token {} is outside the vocabulary of {}", token.token, self.plan.vocab_size);
            return Err(GenerateError::VerifierProtocol(message));
        }
        token
            .check_logprobs(self.plan.logprobs, self.plan.vocab_size)
            .map_err(GenerateError::VerifierProtocol)?;
        self.commit([(token.token, Origin::Plain, token.token_logprobs())]).await?;
        self.verify_view.knows(self.text.len());
        Ok(())
    }

    /// What to do about a refused frame: make good what the verifier lacks, or give up.
    pub(super) async fn refused(&mut self, kind: RefusalKind) -> Result<(), GenerateError> {
        match kind {
            RefusalKind::NeedPrefix { have_len } => self.verify_view.lacks(have_len),
            RefusalKind::Overloaded { retry_after_ms } => {
                tokio::time::sleep(std::time::Duration::from_millis(u64::from(retry_after_ms))).await;
            }
            RefusalKind::Stale { epoch } => {
                let message = format!("it holds epoch {epoch}, this request is at {}", self.text.epoch());
                return Err(GenerateError::VerifierRefused { reason: "STALE".into(), message });
            }
            RefusalKind::Invalid { reason, field, message } => {
                return Err(GenerateError::VerifierRefused {
                    reason: reason.into_owned(),
                    message: format!("{field}: {message}"),
                });
            }
        }
        Ok(())
    }
}
