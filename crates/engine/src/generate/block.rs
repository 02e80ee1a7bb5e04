//! A speculative round: a drafted block, its verdict, the orchestrator's half of the exact rule.

use foretoken_acceptance::Rule;
use tokio::time::Instant;

use super::decide::{check, decide};
use super::{Callee, GenerateError, Generation, Mode, Observer, Output, millis};
use crate::conversation::{
    Ask, Block, DraftFrame, DraftReply, Drafted, RefusalKind, Verdict, VerifyFrame, VerifyReply,
};
use crate::ledger::Origin;
use crate::link::{Drafter, DrafterSource, LinkError, Verifier};

/// Tries at one frame before a worker that keeps refusing it counts as lost.
const FRAME_TRIES: usize = 3;

impl<V: Verifier, S: DrafterSource, O: Output, W: Observer> Generation<'_, V, S, O, W> {
    /// The next block, or none: no guess, or no drafter any more.
    pub(super) async fn drafted_block(&mut self) -> Option<Block> {
        let at_token = self.text.output().len();
        if self.drafting.ready()?.draining {
            self.drafting.leave(at_token);
            return None;
        }
        // The epoch of a block is settled before its first token is drawn.
        self.enter(Mode::Blocks);
        self.account.asked(self.draft_len());
        let asked = self.ask_for_block().await;
        self.account.call_ended(asked.as_ref().err().map(|error| error.reason.as_str()));
        match asked {
            Ok(block) => {
                self.drafting.answered(!block.tokens.is_empty());
                Some(block).filter(|block| !block.tokens.is_empty())
            }
            Err(error) => {
                self.drafting.lost(error, at_token);
                None
            }
        }
    }

    async fn ask_for_block(&mut self) -> Result<Block, LinkError> {
        let draft_len = self.draft_len();
        let deadline = Instant::now() + self.plan.timeouts.draft;
        for _ in 0..FRAME_TRIES {
            let Some(ready) = self.drafting.ready() else { break };
            let began = Instant::now();
            let span_id = self.account.call(Callee::Draft);
            let text = self.text.frame(&mut ready.view, millis(self.plan.timeouts.draft), span_id);
            let seq = text.seq;
            let min_confidence = self.plan.min_confidence;
            ready.drafter.send(DraftFrame { text, draft_len, min_confidence }).await?;
            let reply = tokio::time::timeout_at(deadline, async {
                loop {
                    match ready.drafter.receive().await? {
                        DraftReply::Drafted(drafted) if drafted.seq == seq => return Ok(Ok(drafted)),
                        DraftReply::Refused(refusal) if refusal.seq == seq => return Ok(Err(refusal.kind)),
                        DraftReply::Draining => ready.draining = true,
                        DraftReply::Opened { .. } | DraftReply::Drafted(_) | DraftReply::Refused(_) => {}
                    }
                }
            });
            let reply = reply.await;
            let waited = began.elapsed();
            if let Ok(Ok(Ok(drafted))) = &reply {
                self.account.watch().draft(waited, &drafted.times);
            } else {
                self.account.watch().recovery(waited);
            }
            match reply {
                Ok(Ok(Ok(drafted))) => {
                    self.account.charge(Callee::Draft, &drafted.times);
                    self.account.replied(&drafted.times, drafted.block.tokens.len());
                    ready.view.knows(self.text.len());
                    let one_hot = self.plan.rule == Rule::Gumbel || ready.drafter.must_be_one_hot();
                    return self.checked(drafted, draft_len, one_hot);
                }
                Ok(Ok(Err(RefusalKind::NeedPrefix { have_len }))) => ready.view.lacks(have_len),
                Ok(Ok(Err(RefusalKind::Overloaded { .. }))) => return Ok(Block::default()),
                Ok(Ok(Err(refused))) => {
                    return Err(LinkError {
                        reason: "DRAFTER_REFUSED".into(),
                        message: format!("{refused:?}"),
                    });
                }
                Ok(Err(broken)) => return Err(broken),
                Err(_) => {
                    let message = format!(
                        "no block within {} ms; see --draft-timeout",
                        self.plan.timeouts.draft.as_millis()
                    );
                    return Err(LinkError { reason: "DRAFTER_TIMEOUT".into(), message });
                }
            }
        }
        let message = format!("the draft worker refused the same frame {FRAME_TRIES} times");
        Err(LinkError { reason: "DRAFTER_REFUSED".into(), message })
    }

    fn checked(&self, drafted: Drafted, draft_len: usize, one_hot: bool) -> Result<Block, LinkError> {
        let malformed = |message| LinkError { reason: "DRAFTER_MALFORMED".into(), message };
        let block = drafted.block;
        if block.tokens.len() > draft_len {
            return Err(malformed(format!(
                "{} tokens came where {draft_len} were asked for",
                block.tokens.len()
            )));
        }
        block.check(self.plan.vocab_size).map_err(malformed)?;
        if one_hot {
            block.check_one_hot().map_err(malformed)?;
        }
        Ok(block)
    }

    /// Has a block judged, decides it with the accept coins, and commits what stands.
    pub(super) async fn judge(&mut self, block: Block) -> Result<(), GenerateError> {
        let (start, epoch, gamma) = (self.text.len(), self.text.epoch(), block.tokens.len());
        let verdict = self.verdict(&block).await;
        self.account.call_ended(verdict.as_ref().err().map(GenerateError::name));
        let verdict = verdict?;
        let coins = self.plan.keys.accept();
        let decision = decide(self.plan.rule, &verdict, &block, |i| coins.coin((start + i) as u64, epoch))
            .map_err(GenerateError::VerifierProtocol)?;
        let accepted = decision.accepted;
        self.account.decided(&decision);
        let accepted_tokens = (0..accepted)
            .map(|index| (block.tokens[index], Origin::Accepted, verdict.drafted_logprobs(index)));
        let (last, origin) = decision.last;
        let last = (last, origin, verdict.closing_logprobs(accepted));
        let committed = self.commit(accepted_tokens.chain([last])).await?;
        // Both workers hold the drafted tokens; those that were accepted need not be told again.
        let held = start + committed.min(accepted);
        self.verify_view.knows(held);
        if let Some(ready) = self.drafting.ready() {
            ready.view.knows(held);
        }
        if accepted < gamma {
            self.text.raise_epoch();
        }
        Ok(())
    }

    async fn verdict(&mut self, block: &Block) -> Result<Verdict, GenerateError> {
        let deadline = Instant::now() + self.plan.timeouts.verify;
        self.account.drafted(block.tokens.len());
        // A refused frame is asked again under a new number with the same coins: the verdict is the same.
        while Instant::now() < deadline {
            let began = Instant::now();
            let span_id = self.account.call(Callee::Verify);
            let text = self.text.frame(&mut self.verify_view, millis(self.plan.timeouts.verify), span_id);
            let seq = text.seq;
            let frame = VerifyFrame { text, ask: Ask::Block(block.clone()) };
            self.verifier.send(frame).await.map_err(GenerateError::VerifierLost)?;
            let refused = loop {
                match self.verifier_message(deadline).await? {
                    VerifyReply::Verdict(verdict) if verdict.seq == seq => {
                        check(self.plan.rule, &verdict, block, self.plan.vocab_size)
                            .and_then(|()| verdict.check_logprobs(self.plan.logprobs, self.plan.vocab_size))
                            .map_err(GenerateError::VerifierProtocol)?;
                        self.account.watch().verify(began.elapsed(), &verdict.times);
                        self.account.replied(&verdict.times, block.tokens.len());
                        return Ok(verdict);
                    }
                    VerifyReply::Refused(refusal) if refusal.seq == seq => break refusal.kind,
                    // Tokens of a run that was left, dropped unseen; replies to older frames; notices.
                    _ => {}
                }
            };
            let refused = self.refused(refused).await;
            self.account.watch().recovery(began.elapsed());
            refused?;
        }
        Err(GenerateError::VerifierTimeout(self.plan.timeouts.verify))
    }
}
