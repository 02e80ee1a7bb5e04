//! The rules beside the token rule, over real sessions: verdicts are what the rule says, Gumbel coupling needs no
//! proposals and forgets no noise, drafts stop where they are unsure.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, helpers included")]

mod common;

use common::{VOCAB, Watched, draft_open, keys, logits, reply, text, verify_open, warm};
use foretoken_acceptance::block_rule::BlockRule;
use foretoken_acceptance::{Distribution, Lattice, LatticeShape, Proposal, gumbel, overlap};
use foretoken_engine::Rule;
use foretoken_engine::conversation::{
    Ask, Block, DraftFrame, DraftOpen, DraftReply, RefusalKind, Verdict, VerifyFrame, VerifyReply,
    WorkerTimes,
};
use foretoken_runtime::{DraftSession, Runtime, RuntimeConfig, VerifySession};

const PROMPT: [u32; 3] = [0, 3, 1];

fn runtime() -> Runtime {
    Runtime::start(Watched::new().0, &RuntimeConfig::default()).unwrap()
}

async fn verifying(runtime: &Runtime, rule: Rule) -> VerifySession {
    let mut open = verify_open("v", &PROMPT, 64);
    open.session.rule = rule;
    runtime.open_verify(open).await.unwrap()
}

async fn drafting(runtime: &Runtime, rule: Rule) -> DraftSession {
    let mut open = draft_open("d", &PROMPT, 64);
    open.session.rule = rule;
    let key = if rule == Rule::Gumbel { keys().verifier().noise() } else { open.key };
    runtime.open_draft(DraftOpen { key, ..open }).await.unwrap()
}

fn p(text: &[u32]) -> Distribution {
    Distribution::from_logits(&logits(text), &warm()).unwrap()
}

async fn judged(session: &mut VerifySession, seq: u64, block: Block) -> VerifyReply {
    session.send(VerifyFrame { text: text(seq, seq, &PROMPT, 3), ask: Ask::Block(block) }).unwrap();
    reply(session.next()).await
}

async fn drafted(session: &mut DraftSession, seq: u64, draft_len: usize, min_confidence: f64) -> Block {
    session.send(DraftFrame { text: text(seq, seq, &PROMPT, 3), draft_len, min_confidence }).unwrap();
    let DraftReply::Drafted(drafted) = reply(session.next()).await else { panic!("not drafted") };
    drafted.block
}

/// Some tokens, one-hot or with what they could have been drawn from.
fn block(number: u32, with_q: bool) -> Block {
    let tokens: Vec<u32> = (0..number % 5).map(|i| (number * 5 + i * 7) % VOCAB as u32).collect();
    let q = tokens.iter().map(|&token| {
        let mut q = Lattice::default();
        q.fill(&p(&[token, number]), LatticeShape::new(VOCAB as u32, 64).unwrap());
        q
    });
    let q = Some(q.collect::<Vec<_>>()).filter(|q| with_q && !q.is_empty());
    Block { q, tokens }
}

#[tokio::test]
async fn block_verdicts_are_what_the_rule_says() {
    let runtime = runtime();
    let mut session = verifying(&runtime, Rule::Block).await;
    let keys = keys().verifier();
    for number in 1..40u64 {
        let block = block(number as u32, number % 3 > 0);
        if block.check(VOCAB).is_err() {
            continue;
        }
        let VerifyReply::Verdict(verdict) = judged(&mut session, number, block.clone()).await else {
            panic!("no verdict on {block:?}")
        };
        let mut expected = Verdict { seq: number, epoch: number, ..Verdict::default() };
        let (mut rule, mut so_far) = (BlockRule::default(), PROMPT.to_vec());
        for (i, &token) in block.tokens.iter().enumerate() {
            let q = block.q.as_ref().map_or(Proposal::OneHot(token), |q| Proposal::Lattice(&q[i]));
            let p = p(&so_far);
            let step = rule.step(&p, q, token, keys.repair().coin(so_far.len() as u64, number));
            expected.thresholds.extend(step.threshold_before);
            expected.repairs.push(step.repair);
            expected.reach.push(step.reach);
            expected.overlaps.push(overlap(&p, q));
            so_far.push(token);
        }
        expected.thresholds.extend(rule.last_threshold());
        expected.bonus = Some(p(&so_far).draw(keys.bonus().coin(so_far.len() as u64, number)));
        assert_eq!(Verdict { times: WorkerTimes::default(), ..verdict }, expected);
    }
}

/// What the target emits by the noise alone, behind the prompt.
fn coupled(len: usize) -> Vec<u32> {
    let (mut so_far, noise) = (PROMPT.to_vec(), keys().verifier().noise());
    for _ in 0..len {
        so_far.push(gumbel::draw(&p(&so_far), &mut noise.noise(so_far.len() as u64)));
    }
    so_far.split_off(PROMPT.len())
}

#[tokio::test]
async fn coupled_text_is_the_same_in_verdicts_runs_and_drafts() {
    let runtime = runtime();
    let mut session = verifying(&runtime, Rule::Gumbel).await;
    let right = coupled(5);
    // Right up to some token: what is emitted there instead, and nothing behind it. In every epoch the same.
    for (seq, right_len) in (1..).zip(0..=4) {
        let mut tokens = right[..4].to_vec();
        if let Some(token) = tokens.get_mut(right_len) {
            *token = (*token + 1) % VOCAB as u32;
        }
        let VerifyReply::Verdict(verdict) = judged(&mut session, seq, Block { tokens, q: None }).await else {
            panic!("no verdict")
        };
        assert_eq!(verdict.repairs, right[..(right_len + 1).min(4)]);
        assert_eq!(verdict.bonus, (right_len == 4).then_some(right[4]));
        assert!(verdict.thresholds.is_empty() && verdict.overlaps.is_empty() && verdict.reach.is_empty());
    }
    session
        .send(VerifyFrame { text: text(9, 9, &PROMPT, 3), ask: Ask::Decode { grant: PROMPT.len() + 5 } })
        .unwrap();
    for &token in &right {
        let VerifyReply::Token(run) = reply(session.next()).await else { panic!("no token") };
        assert_eq!(run.token, token);
    }
    // The target as its own draft guesses every token, and sends no proposals.
    let mut drafter = drafting(&runtime, Rule::Gumbel).await;
    assert_eq!(drafted(&mut drafter, 1, 5, 0.0).await, Block { tokens: right, q: None });
}

#[tokio::test]
async fn proposals_are_refused_under_gumbel_coupling() {
    let runtime = runtime();
    let mut session = verifying(&runtime, Rule::Gumbel).await;
    let q = vec![Lattice::from_parts(vec![1], vec![1], VOCAB).unwrap()];
    let VerifyReply::Refused(refusal) = judged(&mut session, 1, Block { tokens: vec![1], q: Some(q) }).await
    else {
        panic!("not refused")
    };
    let RefusalKind::Invalid { reason, field, .. } = refusal.kind else { panic!("{refusal:?}") };
    assert_eq!((&*reason, &*field), ("MALFORMED_BLOCK", "block.q"));
}

/// A session is another one under another rule: what was remembered of it is not taken over.
#[tokio::test]
async fn a_session_does_not_change_its_rule() {
    let runtime = runtime();
    let mut first = verifying(&runtime, Rule::Token).await;
    judged(&mut first, 1, Block { tokens: vec![1, 2], q: None }).await;
    assert!(verifying(&runtime, Rule::Token).await.cached_len() > 0);
    assert_eq!(verifying(&runtime, Rule::Block).await.cached_len(), 0);
}

#[tokio::test]
async fn a_draft_stops_in_front_of_the_first_token_it_is_unsure_of() {
    let runtime = runtime();
    for rule in [Rule::Token, Rule::Block, Rule::Gumbel] {
        let mut session = drafting(&runtime, rule).await;
        let whole = drafted(&mut session, 1, 8, 0.0).await;
        assert_eq!(whole.tokens.len(), 8);
        // Of the same epoch, so with the same coins.
        let mut lengths = Vec::new();
        for (seq, tenths) in (2..).zip(1..=10) {
            let least = f64::from(tenths) / 10.0;
            let frame = DraftFrame { text: text(seq, 1, &PROMPT, 3), draft_len: 8, min_confidence: least };
            session.send(frame).unwrap();
            let DraftReply::Drafted(drafted) = reply(session.next()).await else { panic!("not drafted") };
            let mut so_far = PROMPT.to_vec();
            let sure = whole.tokens.iter().take_while(|&&token| {
                let sure = p(&so_far).confidence() >= least;
                so_far.push(token);
                sure
            });
            let expected = whole.tokens[..sure.count()].to_vec();
            assert_eq!(drafted.block.tokens, expected, "{rule}, least confidence {least}");
            assert_eq!(drafted.block.q.map_or(expected.len(), |q| q.len()), expected.len());
            lengths.push(expected.len());
        }
        assert!(lengths[0] == 8 && lengths[9] == 0, "{lengths:?}");
    }
}
