//! Workers that break the protocol, by script behind the engine's traits: drafts no one may take are dropped, verdicts no
//! one may believe end the answer.

use std::sync::Arc;
use std::time::Duration;

use foretoken_engine::conversation::{Block, VerifyFrame, VerifyReply};
use foretoken_engine::generate::{FinishReason, GenerateError, Outcome, Plan, Timeouts, generate};
use foretoken_engine::link::{LinkError, Traffic, Verifier};
use foretoken_engine::{Adjustments, Lattice, RequestKeys, Rule, Sampling};
use foretoken_testkit::scripted::{Collected, ExactRule, Guess, Script, Scripts, TableVerifier};
use foretoken_testkit::table::random_table;

use crate::support::{VOCAB, within};

fn plan(max_tokens: usize) -> Plan {
    Plan {
        session_id: "s".into(),
        prompt: vec![0, 1],
        sampling: Sampling::GREEDY,
        adjustments: Adjustments::default(),
        logprobs: None,
        rule: Rule::Token,
        keys: RequestKeys::new(3, 0),
        stop_ids: Vec::new(),
        max_tokens,
        draft_len: 4,
        min_confidence: 0.0,
        vocab_size: VOCAB,
        model_fingerprint: String::new(),
        tokenizer_fingerprint: String::new(),
        timeouts: Timeouts { draft: Duration::from_millis(50), verify: Duration::from_secs(5) },
    }
}

fn verifier(plan: &Plan) -> TableVerifier<ExactRule> {
    TableVerifier::new(random_table(1, VOCAB, 0), ExactRule, plan.verify_open())
}

async fn answer(plan: &Plan, scripts: Scripts) -> (Vec<u32>, Outcome) {
    let mut output = Collected::default();
    let outcome = within(generate(plan, verifier(plan), Some(scripts), &mut output, &mut ())).await.unwrap();
    assert_eq!(outcome.ledger.output_tokens() as usize, output.tokens.len());
    (output.tokens.iter().map(|&(token, _)| token).collect(), outcome)
}

async fn plain(plan: &Plan) -> Vec<u32> {
    let mut output = Collected::default();
    let plan = Plan { draft_len: 0, ..plan.clone() };
    within(generate(&plan, verifier(&plan), None::<Scripts>, &mut output, &mut ())).await.unwrap();
    output.tokens.iter().map(|&(token, _)| token).collect()
}

fn lattice(ids: &[u32]) -> Lattice {
    Lattice::from_parts(ids.to_vec(), vec![1; ids.len()], usize::MAX).unwrap()
}

#[tokio::test]
async fn malformed_drafts_are_dropped_and_the_answer_is_right() {
    let plan = plan(40);
    let expected = plain(&plan).await;
    let bad = [
        Block { tokens: vec![VOCAB as u32], q: None },
        Block { tokens: vec![1, u32::MAX], q: None },
        Block { tokens: vec![1; 5], q: None },
        Block { tokens: vec![1; 5000], q: None },
        Block { tokens: vec![1, 2], q: Some(vec![lattice(&[1])]) },
        Block { tokens: vec![1], q: Some(vec![lattice(&[0, 2])]) },
        Block { tokens: vec![1], q: Some(vec![lattice(&[1, VOCAB as u32])]) },
        Block { tokens: vec![1], q: Some(vec![]) },
    ];
    for block in bad {
        let (ids, outcome) = answer(&plan, Scripts::steady(Guess::Malformed(block.clone()))).await;
        assert_eq!(ids, expected, "{block:?}");
        assert_eq!(outcome.finish, FinishReason::Length);
        assert_eq!(outcome.ledger.drafted, 0, "{block:?} was sent to the verifier");
        assert_eq!(outcome.speculation_off[0].reason, "DRAFTER_MALFORMED", "{block:?}");
    }
    // Without tokens a block is no guess, and no fault.
    let (ids, outcome) = answer(&plan, Scripts::steady(Guess::Malformed(Block::default()))).await;
    assert_eq!(ids, expected);
    assert!(outcome.speculation_off.is_empty());
}

/// A proposal is taken from no one under Gumbel coupling, and under the other rules from no drafter that is not trusted.
#[tokio::test]
async fn proposals_from_those_who_may_send_none_are_dropped() {
    let honest = || Block { tokens: vec![1], q: Some(vec![lattice(&[1])]) };
    let guess = || Guess::Malformed(honest());
    for rule in [Rule::Token, Rule::Block, Rule::Gumbel] {
        let plan = Plan { rule, ..plan(40) };
        let expected = plain(&plan).await;
        let (ids, outcome) = answer(&plan, Scripts::steady(guess())).await;
        assert_eq!(ids, expected, "{rule}");
        assert_eq!(outcome.speculation_off.is_empty(), rule != Rule::Gumbel, "{rule}: {outcome:?}");

        let (ids, outcome) = answer(&plan, Scripts::steady(guess()).untrusted()).await;
        assert_eq!(ids, expected, "{rule}");
        assert_eq!(outcome.ledger.drafted, 0, "{rule}: it was sent to the verifier");
        let off = &outcome.speculation_off[0];
        assert_eq!(off.reason, "DRAFTER_MALFORMED");
        assert!(off.message.contains("1 proposals came where none are taken"), "{off:?}");
    }
}

#[tokio::test]
async fn a_silent_drafter_is_left_after_its_time() {
    let plan = plan(40);
    let (ids, outcome) = answer(&plan, Scripts::steady(Guess::Silence)).await;
    assert_eq!(ids, plain(&plan).await);
    assert_eq!(outcome.speculation_off[0].reason, "DRAFTER_TIMEOUT");
}

#[tokio::test]
async fn drafters_may_break_at_any_frame_and_come_back() {
    let plan = plan(120);
    let expected = plain(&plan).await;
    let guess = Guess::OneHot(Arc::new(|text| text.len() as u32 % VOCAB as u32));
    for breaks_after in 0..6 {
        let scripts = vec![
            Script::Drafts(guess.clone(), Some(breaks_after)),
            Script::Absent("SCRIPTED_ABSENCE"),
            Script::Drafts(guess.clone(), Some(3)),
            Script::Drafts(Guess::Table(random_table(1, VOCAB, 0)), None),
        ];
        let (ids, outcome) = answer(&plan, Scripts::new(scripts)).await;
        assert_eq!(ids, expected, "{breaks_after}");
        assert_eq!(outcome.speculation_off[0].reason, "SCRIPTED");
        let mut before = 0;
        for off in &outcome.speculation_off {
            assert!(off.at_token >= before, "{:?}", outcome.speculation_off);
            before = off.until_token.unwrap_or(off.at_token);
            assert!(before >= off.at_token);
        }
    }
}

/// A verifier whose every reply is spoilt.
struct Spoilt {
    inner: TableVerifier<ExactRule>,
    spoil: fn(&mut VerifyReply),
}

impl Verifier for Spoilt {
    async fn send(&mut self, frame: VerifyFrame) -> Result<(), LinkError> {
        self.inner.send(frame).await
    }

    async fn receive(&mut self) -> Result<VerifyReply, LinkError> {
        let mut reply = self.inner.receive().await?;
        (self.spoil)(&mut reply);
        Ok(reply)
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

#[tokio::test]
async fn verdicts_no_one_may_believe_end_the_answer() {
    let spoils: [fn(&mut VerifyReply); 9] = [
        |reply| {
            if let VerifyReply::Verdict(verdict) = reply {
                verdict.thresholds[0] = f64::NAN
            }
        },
        |reply| {
            if let VerifyReply::Verdict(verdict) = reply {
                verdict.thresholds[0] = 1.5
            }
        },
        |reply| {
            if let VerifyReply::Verdict(verdict) = reply {
                verdict.thresholds[0] = -0.5
            }
        },
        |reply| {
            if let VerifyReply::Verdict(verdict) = reply {
                verdict.thresholds.push(1.0)
            }
        },
        |reply| {
            if let VerifyReply::Verdict(verdict) = reply {
                verdict.thresholds.clear()
            }
        },
        |reply| {
            if let VerifyReply::Verdict(verdict) = reply {
                verdict.repairs.clear()
            }
        },
        |reply| {
            if let VerifyReply::Verdict(verdict) = reply {
                verdict.overlaps.clear()
            }
        },
        |reply| {
            if let VerifyReply::Verdict(verdict) = reply {
                verdict.repairs[0] = VOCAB as u32
            }
        },
        |reply| {
            if let VerifyReply::Verdict(verdict) = reply {
                (verdict.thresholds, verdict.bonus) = (vec![1.0; verdict.thresholds.len()], None);
            }
        },
    ];
    let plan = plan(40);
    for (number, spoil) in spoils.into_iter().enumerate() {
        let mut output = Collected::default();
        let verifier = Spoilt { inner: verifier(&plan), spoil };
        let scripts = Scripts::steady(Guess::Table(random_table(1, VOCAB, 0)));
        let error = within(generate(&plan, verifier, Some(scripts), &mut output, &mut ())).await.unwrap_err();
        assert!(matches!(error, GenerateError::VerifierProtocol(_)), "{number}: {error:?}");
        assert_eq!(output.tokens.len(), 1, "{number}: nothing of a spoilt verdict is committed");
    }
}

#[tokio::test]
async fn run_tokens_out_of_place_end_the_answer() {
    let spoils: [fn(&mut VerifyReply); 2] = [
        |reply| {
            if let VerifyReply::Token(token) = reply {
                token.position += 1
            }
        },
        |reply| {
            if let VerifyReply::Token(token) = reply {
                token.token = VOCAB as u32
            }
        },
    ];
    let plan = plan(40);
    for spoil in spoils {
        let mut output = Collected::default();
        let verifier = Spoilt { inner: verifier(&plan), spoil };
        let error =
            within(generate(&plan, verifier, None::<Scripts>, &mut output, &mut ())).await.unwrap_err();
        assert!(matches!(error, GenerateError::VerifierProtocol(_)), "{error:?}");
        assert!(output.tokens.is_empty());
    }
    // Of another epoch it is dropped unseen, and a verifier that says nothing else is given up.
    let late = Plan { timeouts: Timeouts { verify: Duration::from_millis(50), ..plan.timeouts }, ..plan };
    let spoil: fn(&mut VerifyReply) = |reply| match reply {
        VerifyReply::Token(token) => token.epoch += 1,
        VerifyReply::Finished(finished) => finished.seq += 1000,
        _ => {}
    };
    let mut output = Collected::default();
    let verifier = Spoilt { inner: verifier(&late), spoil };
    let error = within(generate(&late, verifier, None::<Scripts>, &mut output, &mut ())).await.unwrap_err();
    assert!(matches!(error, GenerateError::VerifierTimeout(_)), "{error:?}");
}
