//! The way of one answer: prefill, then rounds of draft, verify, accept, commit.
//!
//! [`generate`] owns the truth: the committed text, the seed's accept coins, the decision. Workers may
//! vanish at any point: a lost drafter turns rounds into plain decoding until another answers, a lost
//! verifier ends the answer with an error. Text, stop strings and the client are behind [`Output`].

mod account;
mod block;
mod decide;
mod drafting;
mod observe;
mod run;

use std::future::Future;
use std::time::Duration;

use foretoken_acceptance::{Adjustments, RequestKeys, Rule, Sampling};
use thiserror::Error;
use tokio::time::Instant;

use crate::conversation::{
    CommittedText, DraftOpen, SessionOpen, TokenLogprobs, VerifyOpen, VerifyReply, WorkerTimes, WorkerView,
};
use crate::ledger::{Ledger, Origin};
use crate::link::{DrafterSource, LinkError, Verifier};
use account::Account;
use drafting::Drafting;
pub use drafting::SpeculationOff;
pub use observe::{Call, Callee, Observer};

/// Everything an answer depends on, validated at admission.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Names the sessions at the workers.
    pub session_id: String,
    /// The prompt's ids; at least one.
    pub prompt: Vec<u32>,
    /// What makes p.
    pub sampling: Sampling,
    /// What changes logits before it: bias, penalties and masks.
    pub adjustments: Adjustments,
    /// Alternatives wanted with every token's log-probabilities; none of these at all if absent.
    pub logprobs: Option<usize>,
    /// What decides about drafted tokens.
    pub rule: Rule,
    /// Every coin of the request.
    pub keys: RequestKeys,
    /// Ids that end the answer.
    pub stop_ids: Vec<u32>,
    /// Output tokens at most; at least one, and the context has room for them.
    pub max_tokens: usize,
    /// γ: tokens drafted per round; 0 is plain decoding.
    pub draft_len: usize,
    /// Drafts stop in front of a position where the draft's likeliest token is less likely than this; 0 never stops
    /// them.
    pub min_confidence: f64,
    /// Ids from here on do not exist.
    pub vocab_size: usize,
    /// Fingerprint of the target's weights.
    pub model_fingerprint: String,
    /// Fingerprint of the target's tokenizer.
    pub tokenizer_fingerprint: String,
    /// How long to wait for whom.
    pub timeouts: Timeouts,
}

/// How long to wait for a worker's reply before it counts as lost.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a drafted block.
    pub draft: Duration,
    /// For a verdict or the next plain token, prefill included.
    pub verify: Duration,
}

impl Plan {
    /// Whether the text depends on seed and target alone: the same with any drafter, draft length and fault.
    #[must_use]
    pub fn is_reproducible(&self) -> bool {
        self.rule == Rule::Gumbel || self.sampling.is_greedy()
    }

    fn session(&self) -> SessionOpen {
        SessionOpen {
            session_id: self.session_id.clone(),
            prompt: self.prompt.clone(),
            reserve_len: self.prompt.len() + self.max_tokens,
            sampling: self.sampling,
            adjustments: self.adjustments.clone(),
            rule: self.rule,
            model_fingerprint: String::new(),
            tokenizer_fingerprint: self.tokenizer_fingerprint.clone(),
        }
    }

    /// How to open the session at a verifier.
    #[must_use]
    pub fn verify_open(&self) -> VerifyOpen {
        let session = SessionOpen { model_fingerprint: self.model_fingerprint.clone(), ..self.session() };
        VerifyOpen {
            session,
            keys: self.keys.verifier(),
            stop_ids: self.stop_ids.clone(),
            logprobs: self.logprobs,
        }
    }

    /// How to open the session at a draft worker. It gets neither the seed nor any key but its own.
    #[must_use]
    pub fn draft_open(&self) -> DraftOpen {
        let key = match self.rule {
            Rule::Token | Rule::Block => self.keys.draft(),
            Rule::Gumbel => self.keys.verifier().noise(),
        };
        DraftOpen { session: self.session(), key }
    }
}

/// Where committed tokens go: text, stop strings, the client.
pub trait Output: Send {
    /// Takes the next token of the text, with its log-probabilities where the plan wants them. True if a stop string
    /// is complete: the answer ends here.
    fn push(&mut self, token: u32, origin: Origin, logprobs: Option<TokenLogprobs>) -> bool;

    /// Hands on what was pushed since the last call. Waits for a slow client.
    ///
    /// `finish` is set on the last call.
    fn emit(&mut self, finish: Option<FinishReason>) -> impl Future<Output = Result<(), ClientGone>> + Send;
}

/// The client dropped the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the client is gone")]
pub struct ClientGone;

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An id that ends the answer, or a stop string.
    Stop,
    /// `max_tokens`.
    Length,
}

impl FinishReason {
    /// Its name in traces and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// A finished answer.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Why it ended.
    pub finish: FinishReason,
    /// What it cost and saved.
    pub ledger: Ledger,
    /// The drafter in use at the end, if any.
    pub drafter: Option<String>,
    /// When plain decoding had to replace speculation.
    pub speculation_off: Vec<SpeculationOff>,
    /// When the first token was committed.
    pub first_commit: Instant,
    /// When the last was.
    pub last_commit: Instant,
}

/// Why an answer could not be finished.
#[derive(Debug, Error)]
pub enum GenerateError {
    /// Nobody wants the answer any more.
    #[error(transparent)]
    ClientGone(#[from] ClientGone),
    /// The stream to the verifier broke.
    #[error("the verifier is lost: {0}")]
    VerifierLost(#[source] LinkError),
    /// No reply in time.
    #[error("the verifier did not reply within {} ms", .0.as_millis())]
    VerifierTimeout(Duration),
    /// It refused a frame for good.
    #[error("the verifier refused a frame ({reason}): {message}")]
    VerifierRefused {
        /// Machine-readable.
        reason: String,
        /// For people.
        message: String,
    },
    /// It said something it must not say.
    #[error("the verifier broke the protocol: {0}")]
    VerifierProtocol(String),
}

impl GenerateError {
    /// Machine-readable, for traces.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ClientGone(_) => "CLIENT_GONE",
            Self::VerifierLost(_) => "VERIFIER_LOST",
            Self::VerifierTimeout(_) => "VERIFIER_TIMEOUT",
            Self::VerifierRefused { .. } => "VERIFIER_REFUSED",
            Self::VerifierProtocol(_) => "VERIFIER_PROTOCOL",
        }
    }
}

/// Generates one answer over an open verifier session; `observer` is told how.
///
/// # Errors
/// See [`GenerateError`]. Tokens emitted before an error are exact and stand.
pub async fn generate<V: Verifier, S: DrafterSource, O: Output, W: Observer>(
    plan: &Plan,
    verifier: V,
    drafters: Option<S>,
    output: &mut O,
    observer: &mut W,
) -> Result<Outcome, GenerateError> {
    let drafters = drafters.filter(|_| plan.draft_len > 0);
    let steps = verifier.steps();
    let mut generation = Generation {
        plan,
        verifier,
        verify_view: WorkerView::default(),
        drafting: Drafting::new(drafters, plan.draft_open()),
        output,
        text: CommittedText::new(plan.prompt.clone()),
        account: Account::new(observer, &steps),
        mode: Mode::Run,
        commits: None,
        finish: None,
        is_told: false,
    };
    generation.run_to_end().await?;
    generation.outcome()
}

/// Whether the verifier is being sent blocks or decodes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Blocks,
    Run,
}

struct Generation<'a, V: Verifier, S: DrafterSource, O, W: Observer> {
    plan: &'a Plan,
    verifier: V,
    verify_view: WorkerView,
    drafting: Drafting<S>,
    output: &'a mut O,
    text: CommittedText,
    account: Account<'a, W>,
    mode: Mode,
    commits: Option<(Instant, Instant)>,
    finish: Option<FinishReason>,
    /// Somebody has the ledger.
    is_told: bool,
}

impl<V: Verifier, S: DrafterSource, O: Output, W: Observer> Generation<'_, V, S, O, W> {
    async fn run_to_end(&mut self) -> Result<(), GenerateError> {
        // The prefill pass gives the first token; the draft worker reads the prompt meanwhile.
        self.account.round_begins();
        self.plain_run(1, false).await?;
        self.account.round_ends();
        if self.finish.is_none() {
            // Where plain decoding ends and blocks begin decides which coins are used, so it must not depend on
            // how fast a drafter opens: a seeded request replays.
            let began = Instant::now();
            self.drafting.first_opening(self.plan.timeouts.draft, self.text.output().len()).await;
            self.account.watch().draft(began.elapsed(), &WorkerTimes::default());
        }
        while self.finish.is_none() {
            self.account.round_begins();
            self.round().await?;
            self.account.round_ends();
        }
        Ok(())
    }

    /// A block, or a run of plain decoding where nobody drafts or there is no guess.
    async fn round(&mut self) -> Result<(), GenerateError> {
        if self.draft_len() == 0 || !self.drafting.is_ready() {
            return self.plain_run(self.remaining(), self.draft_len() > 0).await;
        }
        match self.drafted_block().await {
            Some(block) => self.judge(block).await,
            None => {
                let len = self.drafting.miss_run_len();
                self.plain_run(len, false).await
            }
        }
    }

    /// γ of the next round: a block is worth drafting only if the answer has room behind it for the
    /// repair or bonus token.
    fn draft_len(&self) -> usize {
        self.plan.draft_len.min(self.remaining().saturating_sub(1))
    }

    /// Output tokens still allowed.
    fn remaining(&self) -> usize {
        self.plan.max_tokens - self.text.output().len()
    }

    fn enter(&mut self, mode: Mode) {
        if self.mode != mode {
            self.mode = mode;
            self.text.raise_epoch();
        }
    }

    /// Commits tokens in text order until one of them ends the answer, then hands them on.
    ///
    /// Returns how many were committed.
    async fn commit(
        &mut self,
        tokens: impl IntoIterator<Item = (u32, Origin, Option<TokenLogprobs>)>,
    ) -> Result<usize, GenerateError> {
        let mut committed = 0;
        for (token, origin, logprobs) in tokens {
            self.text.commit(token);
            self.account.committed(origin, committed);
            committed += 1;
            // The order of these tests is the order of the text: what a token completes comes before
            // the limit that the same token reaches.
            let stopped = self.output.push(token, origin, logprobs);
            if stopped || self.plan.stop_ids.contains(&token) {
                self.finish = Some(FinishReason::Stop);
            } else if self.remaining() == 0 {
                self.finish = Some(FinishReason::Length);
            }
            if self.finish.is_some() {
                break;
            }
        }
        self.account.settle();
        let now = self.account.watch().since();
        let (first, _) = *self.commits.get_or_insert((now, now));
        self.commits = Some((first, now));
        self.output.emit(self.finish).await?;
        self.account.watch().client(now.elapsed());
        Ok(committed)
    }

    /// The verifier's next message, before `deadline`.
    async fn verifier_message(&mut self, deadline: Instant) -> Result<VerifyReply, GenerateError> {
        match tokio::time::timeout_at(deadline, self.verifier.receive()).await {
            Ok(reply) => {
                let reply = reply.map_err(GenerateError::VerifierLost)?;
                self.account.charge(Callee::Verify, &reply.times());
                Ok(reply)
            }
            Err(_) => Err(GenerateError::VerifierTimeout(self.plan.timeouts.verify)),
        }
    }

    fn outcome(&mut self) -> Result<Outcome, GenerateError> {
        let (Some(finish), Some((first_commit, last_commit))) = (self.finish, self.commits) else {
            return Err(GenerateError::VerifierProtocol("the answer ended before its first token".into()));
        };
        let ledger = self.ledger();
        self.is_told = true;
        let drafter = self.drafting.name().map(str::to_owned);
        let speculation_off = self.drafting.take_history();
        Ok(Outcome { finish, ledger, drafter, speculation_off, first_commit, last_commit })
    }
}

impl<V: Verifier, S: DrafterSource, O, W: Observer> Generation<'_, V, S, O, W> {
    /// The whole account up to now.
    fn ledger(&mut self) -> Ledger {
        Ledger { verify: self.verifier.traffic(), draft: self.drafting.traffic(), ..self.account.close() }
    }
}

/// Whatever breaks an answer off, an error or that nobody polls it any more, ends here.
impl<V: Verifier, S: DrafterSource, O, W: Observer> Drop for Generation<'_, V, S, O, W> {
    fn drop(&mut self) {
        if !self.is_told {
            let ledger = self.ledger();
            self.account.broken_off(&ledger);
        }
    }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
