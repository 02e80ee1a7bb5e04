//! The engine's round loop by itself, over any verifier and drafters, with every verdict kept.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use foretoken_acceptance::{Adjustments, RequestKeys, Rule, Sampling};
use foretoken_engine::conversation::{Ask, Block, Verdict, VerifyFrame, VerifyReply};
use foretoken_engine::generate::{GenerateError, Observer, Outcome, Plan, Timeouts, generate};
use foretoken_engine::ledger::Ledger;
use foretoken_engine::link::{DrafterSource, LinkError, Traffic, Verifier};
use foretoken_testkit::scripted::Collected;

use crate::clocked::PROMPT;

/// A block and what the verifier said of it.
#[derive(Debug, Clone)]
pub(crate) struct Judgement {
    /// Position of the block's first token in the text.
    pub(crate) start: usize,
    pub(crate) block: Block,
    pub(crate) verdict: Verdict,
}

/// Verdicts in the order of their blocks.
pub(crate) type Judgements = Arc<Mutex<Vec<Judgement>>>;

/// Passes everything on and keeps the verdicts.
pub(crate) struct Recorded<V> {
    inner: V,
    asked: Option<(usize, Block)>,
    judgements: Judgements,
}

impl<V> Recorded<V> {
    pub(crate) fn new(inner: V) -> (Self, Judgements) {
        let judgements = Judgements::default();
        (Self { inner, asked: None, judgements: Arc::clone(&judgements) }, judgements)
    }
}

impl<V: Verifier> Verifier for Recorded<V> {
    async fn send(&mut self, frame: VerifyFrame) -> Result<(), LinkError> {
        if let Ask::Block(block) = &frame.ask {
            self.asked = Some((frame.text.start, block.clone()));
        }
        self.inner.send(frame).await
    }

    async fn receive(&mut self) -> Result<VerifyReply, LinkError> {
        // A scripted verifier has its replies at once. Real ones take a while, in which a drafter may turn up.
        tokio::task::yield_now().await;
        let reply = self.inner.receive().await?;
        if let VerifyReply::Verdict(verdict) = &reply
            && let Some((start, block)) = self.asked.take()
        {
            self.judgements.lock().unwrap().push(Judgement { start, block, verdict: verdict.clone() });
        }
        Ok(reply)
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

/// A request behind [`PROMPT`], by the token rule.
pub(crate) fn plan(sampling: Sampling, seed: u64, draft_len: usize, max_tokens: usize) -> Plan {
    Plan {
        session_id: format!("seed-{seed}-draft-{draft_len}"),
        prompt: PROMPT.to_vec(),
        sampling,
        adjustments: Adjustments::default(),
        logprobs: None,
        rule: Rule::Token,
        keys: RequestKeys::new(seed, 0),
        stop_ids: Vec::new(),
        max_tokens,
        draft_len,
        min_confidence: 0.0,
        vocab_size: crate::clocked::V,
        model_fingerprint: String::new(),
        tokenizer_fingerprint: String::new(),
        timeouts: Timeouts { draft: Duration::from_secs(60), verify: Duration::from_secs(60) },
    }
}

/// One answer with everything that is known of it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) outcome: Result<Outcome, GenerateError>,
    pub(crate) output: Collected,
    pub(crate) judgements: Vec<Judgement>,
    /// The account of an answer that was broken off.
    pub(crate) broken_off: Option<Ledger>,
}

/// Hears of the account of an answer that is broken off.
#[derive(Default)]
struct BrokenOff(Option<Ledger>);

impl Observer for BrokenOff {
    fn broken_off(&mut self, ledger: &Ledger) {
        assert!(self.0.replace(ledger.clone()).is_none(), "an answer is broken off once");
    }
}

impl Run {
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.output.tokens.iter().map(|&(token, _)| token).collect()
    }
}

/// Runs the loop to the end of the answer.
pub(crate) async fn run<V: Verifier, S: DrafterSource>(
    plan: &Plan,
    verifier: V,
    drafters: Option<S>,
    mut output: Collected,
) -> Run {
    let (verifier, judgements) = Recorded::new(verifier);
    let mut broken_off = BrokenOff::default();
    let outcome = generate(plan, verifier, drafters, &mut output, &mut broken_off).await;
    let judgements = std::mem::take(&mut *judgements.lock().unwrap());
    Run { outcome, output, judgements, broken_off: broken_off.0 }
}
