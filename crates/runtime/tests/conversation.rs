//! Whatever an orchestrator does that keeps the protocol, and much that does not: one terminal reply a frame, the same
//! for the same frame, and verdicts that depend on text, epoch and keys alone.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, helpers included")]

mod common;

use common::{VOCAB, Watched, keys, logits, reply, text, verify_open, warm};
use foretoken_acceptance::{Distribution, Proposal, overlap, repair, threshold};
use foretoken_engine::conversation::{
    Ask, Block, FrameText, RefusalKind, RunEnd, TextHash, Verdict, VerifyFrame, VerifyReply, WorkerTimes,
};
use foretoken_runtime::{Runtime, RuntimeConfig, VerifySession};
use proptest::prelude::*;

const PROMPT: [u32; 3] = [0, 1, 2];
const RESERVE: usize = 400;

/// What the peer does next.
#[derive(Debug, Clone)]
enum Step {
    /// Has a block judged; `accepted` of its tokens stand, `last` follows.
    Block { tokens: Vec<u32>, accepted: usize, last: u32, known: usize },
    /// Has `len` tokens decoded, and cuts all behind the first `kept`.
    Decode { len: usize, kept: usize, known: usize },
    /// Sends its last frame again.
    Repeat,
    /// Sends a frame of the epoch before.
    OldEpoch,
    /// Sends a frame with a hash of no text.
    WrongHash,
    /// Sends a token that does not exist.
    NoSuchToken,
    /// Loses its stream and opens the session again.
    Reconnect,
    /// Goes to a worker that has never seen the session.
    Replace,
}

fn step() -> impl Strategy<Value = Step> {
    let token = 0..VOCAB as u32;
    prop_oneof![
        6 => (prop::collection::vec(token.clone(), 0..6), 0..6usize, token, 0..100usize).prop_map(
            |(tokens, accepted, last, known)| Step::Block { tokens, accepted, last, known }
        ),
        3 => (1..12usize, 0..12usize, 0..100usize).prop_map(|(len, kept, known)| Step::Decode { len, kept, known }),
        2 => Just(Step::Repeat),
        1 => Just(Step::OldEpoch),
        1 => Just(Step::WrongHash),
        1 => Just(Step::NoSuchToken),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Replace),
    ]
}

/// The orchestrator's side.
struct Peer {
    runtime: Runtime,
    session: VerifySession,
    committed: Vec<u32>,
    /// How much of it the worker is known to hold.
    held: usize,
    seq: u64,
    epoch: u64,
    /// The newest epoch the worker has seen.
    seen: u64,
    decoding: bool,
    last: Option<(VerifyFrame, VerifyReply)>,
}

impl Peer {
    async fn new() -> Self {
        let (decoder, _log) = Watched::new();
        let config = RuntimeConfig { prefill_chunk: 5, ..RuntimeConfig::default() };
        let runtime = Runtime::start(decoder, &config).unwrap();
        let session = runtime.open_verify(verify_open("s", &PROMPT, RESERVE)).await.unwrap();
        let (committed, held) = (PROMPT.to_vec(), PROMPT.len());
        Self { runtime, session, committed, held, seq: 0, epoch: 0, seen: 0, decoding: false, last: None }
    }

    /// The next frame's text, with a tail that reaches back to somewhere the worker holds.
    fn text(&mut self, known: usize) -> FrameText {
        self.seq += 1;
        let known = PROMPT.len() + known % (self.held - PROMPT.len() + 1);
        text(self.seq, self.epoch, &self.committed, known)
    }

    async fn ask(&mut self, frame: &VerifyFrame) -> VerifyReply {
        self.session.send(frame.clone()).unwrap();
        reply(self.session.next()).await
    }

    /// Asks, and tells the prefix where it is missing.
    async fn ask_with_prefix(
        &mut self,
        mut frame: VerifyFrame,
        may_lack: bool,
    ) -> (VerifyFrame, VerifyReply) {
        let answer = self.ask(&frame).await;
        if let VerifyReply::Refused(refusal) = &answer {
            assert_eq!(refusal.kind, RefusalKind::NeedPrefix { have_len: PROMPT.len() }, "{frame:?}");
            assert!(may_lack, "it forgot what it had");
            self.seq += 1;
            frame.text = text(self.seq, self.epoch, &self.committed, PROMPT.len());
            let answer = self.ask(&frame).await;
            return (frame, answer);
        }
        (frame, answer)
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Block { tokens, accepted, last, known } => {
                if self.decoding {
                    (self.decoding, self.epoch) = (false, self.epoch + 1);
                }
                let frame = VerifyFrame {
                    text: self.text(known),
                    ask: Ask::Block(Block { tokens: tokens.clone(), q: None }),
                };
                let (frame, answer) = self.ask_with_prefix(frame, self.seen == 0).await;
                self.seen = self.epoch;
                let VerifyReply::Verdict(verdict) = &answer else { panic!("{frame:?}: {answer:?}") };
                let expected = self.expected(&frame.text, &tokens);
                assert_eq!(Verdict { times: WorkerTimes::default(), ..verdict.clone() }, expected);
                let accepted = accepted.min(tokens.len());
                self.held = self.committed.len() + accepted;
                self.committed.extend(&tokens[..accepted]);
                self.committed.push(last);
                self.epoch += u64::from(accepted < tokens.len());
                self.last = Some((frame, answer));
            }
            Step::Decode { len, kept, known } => self.decode(len, kept, known).await,
            Step::Repeat => {
                if let Some((frame, answer)) = self.last.clone() {
                    assert_eq!(self.ask(&frame).await, answer, "{frame:?}");
                }
            }
            Step::OldEpoch => {
                if let Some(old) = self.seen.checked_sub(1) {
                    let mut text = self.text(0);
                    text.epoch = old;
                    let frame = VerifyFrame { text, ask: Ask::Decode { grant: self.committed.len() + 1 } };
                    let VerifyReply::Refused(refusal) = self.ask(&frame).await else { panic!("not refused") };
                    assert_eq!(refusal.kind, RefusalKind::Stale { epoch: self.seen });
                }
            }
            Step::WrongHash => {
                let mut text = self.text(0);
                (text.epoch, text.start_hash) = (self.seen, TextHash::from(1));
                let frame = VerifyFrame { text, ask: Ask::Block(Block { tokens: vec![1], q: None }) };
                let VerifyReply::Refused(refusal) = self.ask(&frame).await else { panic!("not refused") };
                assert_eq!(refusal.kind, RefusalKind::NeedPrefix { have_len: PROMPT.len() });
            }
            Step::NoSuchToken => {
                let frame = VerifyFrame {
                    text: self.text(0),
                    ask: Ask::Block(Block { tokens: vec![1, VOCAB as u32], q: None }),
                };
                let VerifyReply::Refused(refusal) = self.ask(&frame).await else { panic!("not refused") };
                assert!(matches!(refusal.kind, RefusalKind::Invalid { .. }), "{refusal:?}");
            }
            Step::Reconnect => {
                let again = self.runtime.open_verify(verify_open("s", &PROMPT, RESERVE)).await.unwrap();
                self.session = again;
            }
            Step::Replace => {
                let fresh = self.runtime.open_verify(verify_open("s", &PROMPT, RESERVE + 1)).await.unwrap();
                fresh.close();
                common::until("the session is gone", || self.runtime.stats().sessions == 0);
                self.session = self.runtime.open_verify(verify_open("s", &PROMPT, RESERVE)).await.unwrap();
                // An epoch that no worker has seen tells apart what the new one lacks from what it forgot.
                (self.seen, self.last) = (0, None);
                self.epoch += 1;
            }
        }
    }

    async fn decode(&mut self, len: usize, kept: usize, known: usize) {
        // A run of its own: an epoch for it.
        (self.decoding, self.epoch) = (true, self.epoch + 1);
        let grant = self.committed.len() + len;
        let frame = VerifyFrame { text: self.text(known), ask: Ask::Decode { grant } };
        let (frame, mut answer) = self.ask_with_prefix(frame, self.seen == 0).await;
        self.seen = self.epoch;
        let mut tokens = Vec::new();
        while let VerifyReply::Token(token) = answer {
            assert_eq!((token.position, token.epoch), (self.committed.len() + tokens.len(), self.epoch));
            tokens.push(token.token);
            answer = reply(self.session.next()).await;
        }
        let VerifyReply::Finished(finished) = &answer else { panic!("{frame:?}: {answer:?}") };
        assert_eq!((finished.seq, finished.end, finished.len), (self.seq, RunEnd::Grant, grant));
        let mut so_far = self.committed.clone();
        for &token in &tokens {
            let p = Distribution::from_logits(&logits(&so_far), &warm()).unwrap();
            assert_eq!(token, p.draw(keys().verifier().plain().coin(so_far.len() as u64, self.epoch)));
            so_far.push(token);
        }
        assert_eq!(tokens.len(), len);
        self.committed.extend(&tokens[..kept.min(len)]);
        self.held = self.committed.len();
        self.last = Some((frame, answer));
    }

    fn expected(&self, frame: &FrameText, tokens: &[u32]) -> Verdict {
        let keys = keys().verifier();
        let mut verdict = Verdict { seq: frame.seq, epoch: frame.epoch, ..Verdict::default() };
        let mut so_far = self.committed.clone();
        for &token in tokens {
            let p = Distribution::from_logits(&logits(&so_far), &warm()).unwrap();
            let coin = keys.repair().coin(so_far.len() as u64, frame.epoch);
            verdict.thresholds.push(threshold(&p, Proposal::OneHot(token), token));
            verdict.repairs.push(repair(&p, Proposal::OneHot(token), coin));
            verdict.overlaps.push(overlap(&p, Proposal::OneHot(token)));
            so_far.push(token);
        }
        let p = Distribution::from_logits(&logits(&so_far), &warm()).unwrap();
        verdict.bonus = Some(p.draw(keys.bonus().coin(so_far.len() as u64, frame.epoch)));
        verdict
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_conversation_gives_what_the_text_says(steps in prop::collection::vec(step(), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut peer = Peer::new().await;
            for step in steps {
                peer.step(step).await;
            }
        });
    }
}
