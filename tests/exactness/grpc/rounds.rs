//! Many rounds of the engine's loop under whatever a drafter may do: guess well or badly, keep silent, talk nonsense,
//! break off, not be there, come back. Greedy text is that of plain decoding, the answer ends where it must, and the
//! ledger adds up.

use std::sync::Arc;
use std::time::Duration;

use foretoken_acceptance::{Adjustments, Rule, Sampling};
use foretoken_engine::conversation::Block;
use foretoken_engine::generate::{FinishReason, GenerateError, Plan, Timeouts};
use foretoken_engine::ledger::Origin;
use foretoken_engine::{Lattice, RequestKeys};
use foretoken_testkit::scripted::{Collected, ExactRule, Guess, Script, Scripts, TableVerifier};
use foretoken_testkit::table::{Table, random_table};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use crate::clocked::PROMPT;
use crate::looped::{Run, run};

const VOCAB: usize = 12;
const LONGEST: usize = 48;

/// What a drafter says.
#[derive(Debug, Clone, Copy)]
enum Says {
    /// What a draft model of another table says.
    Model(u64),
    /// What the target says, but wrong at every multiple of this position.
    Target(usize),
    /// The same token, right or wrong.
    Token(u32),
    Nothing,
    /// A token that does not exist.
    Outside,
    /// More tokens than were asked for.
    TooMany,
    /// A token that its own proposal excludes.
    Impossible,
}

/// One opening: nobody there, or a drafter whose link breaks after so many frames.
type Opening = Option<(Says, Option<usize>)>;

#[derive(Debug, Clone)]
struct Case {
    table: u64,
    zeros: u64,
    greedy: bool,
    rule: Rule,
    min_confidence: f64,
    seed: u64,
    draft_len: usize,
    max_tokens: usize,
    stop_ids: Vec<u32>,
    /// A stop string is complete after so many tokens.
    stops_after: Option<usize>,
    /// No drafters at all, or these in turn, the last one for ever.
    openings: Option<Vec<Opening>>,
    /// The verifier's link breaks after so many frames.
    verifier_breaks: Option<usize>,
    /// The client goes after so many tokens.
    gone_after: Option<usize>,
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        4 => (0..50u64).prop_map(Says::Model),
        4 => (1..8usize).prop_map(Says::Target),
        1 => (0..VOCAB as u32).prop_map(Says::Token),
        1 => Just(Says::Nothing),
        1 => Just(Says::Outside),
        1 => Just(Says::TooMany),
        1 => Just(Says::Impossible),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let opening = option::weighted(0.8, (says(), option::weighted(0.4, 0..8usize)));
    let rule = prop::sample::select(vec![Rule::Token, Rule::Block, Rule::Gumbel]);
    let min_confidence = prop_oneof![2 => Just(0.0), 1 => 0.0..0.5];
    let answer = (any::<bool>(), 0..1000u64, 0..=8usize, 1..=LONGEST, rule, min_confidence);
    let ends = (btree_set(0..VOCAB as u32, 0..3), option::weighted(0.3, 1..=LONGEST));
    let breaks = (option::weighted(0.1, 0..12usize), option::weighted(0.1, 0..=LONGEST));
    let links = (option::weighted(0.9, vec(opening, 1..4)), breaks);
    ((0..1000u64, 0..4u64), answer, ends, links).prop_map(|(table, answer, ends, links)| Case {
        table: table.0,
        zeros: table.1,
        greedy: answer.0,
        seed: answer.1,
        draft_len: answer.2,
        max_tokens: answer.3,
        rule: answer.4,
        min_confidence: answer.5,
        stop_ids: ends.0.into_iter().collect(),
        stops_after: ends.1,
        openings: links.0,
        verifier_breaks: links.1.0,
        gone_after: links.1.1,
    })
}

fn argmax(probs: &[f64]) -> u32 {
    // The first of the largest.
    (1..probs.len()).fold(0, |best, id| if probs[id] > probs[best] { id } else { best }) as u32
}

fn guess(says: Says, target: &Table, draft_len: usize) -> Guess {
    let target = Arc::clone(target);
    match says {
        Says::Model(seed) => Guess::Table(random_table(seed, VOCAB, 2)),
        Says::Target(wrong_every) => Guess::OneHot(Arc::new(move |text| {
            let right = argmax(&target(text));
            if text.len() % wrong_every == 0 { (right + 1) % VOCAB as u32 } else { right }
        })),
        Says::Token(token) => Guess::OneHot(Arc::new(move |_| token)),
        Says::Nothing => Guess::Silence,
        Says::Outside => Guess::Malformed(Block { tokens: vec![VOCAB as u32], q: None }),
        Says::TooMany => Guess::Malformed(Block { tokens: vec![0; draft_len + 1], q: None }),
        Says::Impossible => Guess::Malformed(Block {
            tokens: vec![3],
            q: Some(vec![Lattice::from_parts(vec![1], vec![1], VOCAB).unwrap()]),
        }),
    }
}

impl Case {
    fn target(&self) -> Table {
        random_table(self.table, VOCAB, self.zeros)
    }

    fn plan(&self) -> Plan {
        let warm = Sampling::new(1.0, 0, 0.95, 0.0).unwrap();
        Plan {
            session_id: "case".into(),
            prompt: PROMPT.to_vec(),
            sampling: if self.greedy { Sampling::GREEDY } else { warm },
            adjustments: Adjustments::default(),
            logprobs: None,
            rule: self.rule,
            min_confidence: self.min_confidence,
            keys: RequestKeys::new(self.seed, 0),
            stop_ids: self.stop_ids.clone(),
            max_tokens: self.max_tokens,
            draft_len: self.draft_len,
            vocab_size: VOCAB,
            model_fingerprint: String::new(),
            tokenizer_fingerprint: String::new(),
            // What is silent is silent for ever: there is nothing to wait for.
            timeouts: Timeouts { draft: Duration::from_millis(1), verify: Duration::from_secs(60) },
        }
    }

    fn scripts(&self) -> Option<Scripts> {
        let target = self.target();
        let script = |opening: &Opening| match *opening {
            None => Script::Absent("NOBODY"),
            Some((says, breaks)) => Script::Drafts(guess(says, &target, self.draft_len), breaks),
        };
        self.openings.as_ref().map(|openings| Scripts::new(openings.iter().map(script).collect()))
    }

    /// Why an answer ends with its `len`-th token, `token`, if it does. A stop comes before the limit.
    fn end(&self, len: usize, token: u32) -> Option<FinishReason> {
        if self.stop_ids.contains(&token) || self.stops_after == Some(len) {
            Some(FinishReason::Stop)
        } else {
            (len == self.max_tokens).then_some(FinishReason::Length)
        }
    }

    /// The greedy answer by the definition.
    fn greedy_text(&self) -> Vec<u32> {
        let (target, mut text) = (self.target(), PROMPT.to_vec());
        loop {
            let token = argmax(&target(&text));
            text.push(token);
            if self.end(text.len() - PROMPT.len(), token).is_some() {
                return text.split_off(PROMPT.len());
            }
        }
    }

    async fn run(&self) -> Run {
        self.run_with(self.scripts(), self.verifier_breaks, self.gone_after).await
    }

    /// The same answer, decoded plainly to its end.
    async fn plain(&self) -> Run {
        self.run_with(None, None, None).await
    }

    async fn run_with(
        &self,
        drafters: Option<Scripts>,
        verifier_breaks: Option<usize>,
        gone_after: Option<usize>,
    ) -> Run {
        let plan = self.plan();
        let mut verifier = TableVerifier::new(self.target(), ExactRule, plan.verify_open());
        verifier.breaks_after = verifier_breaks;
        let output = Collected { stops_after: self.stops_after, gone_after, ..Collected::default() };
        run(&plan, verifier, drafters, output).await
    }
}

/// What holds of every answer, finished or broken off.
fn check_tokens(case: &Case, run: &Run) -> Result<(), TestCaseError> {
    let ids = run.ids();
    prop_assert!(ids.len() <= case.max_tokens);
    for (index, &token) in ids.iter().enumerate().take(ids.len().saturating_sub(1)) {
        prop_assert_eq!(case.end(index + 1, token), None, "the answer goes on behind its end");
    }
    if case.greedy {
        let right = case.greedy_text();
        prop_assert!(right.starts_with(&ids), "{:?} instead of {:?}", ids, right);
    }
    // Either way there is one account, of all tokens that came.
    let ledger = match (&run.outcome, &run.broken_off) {
        (Ok(outcome), None) => &outcome.ledger,
        (Err(_), Some(ledger)) => ledger,
        _ => return Err(TestCaseError::fail("no account, or two")),
    };
    let count = |origin| run.output.tokens.iter().filter(|token| token.1 == origin).count() as u32;
    let by_origin = (ledger.accepted, ledger.repair, ledger.bonus, ledger.plain);
    let counted =
        (count(Origin::Accepted), count(Origin::Repair), count(Origin::Bonus), count(Origin::Plain));
    prop_assert_eq!(by_origin, counted);
    prop_assert_eq!(ledger.output_tokens() as usize, ids.len());
    Ok(())
}

/// What holds of a finished answer.
fn check_finished(case: &Case, run: &Run) -> Result<(), TestCaseError> {
    let outcome = run.outcome.as_ref().unwrap();
    let tokens = &run.output.tokens;
    let &(last, _) = tokens.last().unwrap();
    prop_assert_eq!(Some(outcome.finish), case.end(tokens.len(), last));
    prop_assert_eq!(run.output.finish, Some(outcome.finish));

    let ledger = &outcome.ledger;
    prop_assert_eq!(ledger.blocks as usize, run.judgements.len());
    prop_assert_eq!(ledger.target_passes(), ledger.blocks + ledger.plain);
    prop_assert_eq!(ledger.saved_passes(), tokens.len() as i64 - i64::from(ledger.target_passes()));
    prop_assert!(ledger.saved_passes() >= 0);
    let drafted: usize = run.judgements.iter().map(|judgement| judgement.block.tokens.len()).sum();
    prop_assert_eq!(ledger.drafted as usize, drafted);
    if case.rule == Rule::Gumbel {
        prop_assert_eq!((ledger.judged, ledger.overlap_sum), (0, 0.0));
    } else {
        prop_assert!(ledger.accepted <= ledger.judged && ledger.judged <= ledger.drafted);
    }
    prop_assert!(ledger.repair + ledger.bonus <= ledger.blocks);
    prop_assert!(run.judgements.iter().all(|judgement| judgement.block.tokens.len() <= case.draft_len));

    let wanted = case.draft_len > 0 && case.openings.is_some();
    if !wanted {
        prop_assert_eq!(ledger.plain as usize, tokens.len());
        prop_assert!(outcome.speculation_off.is_empty());
    } else if tokens.len() > 1 && case.openings.as_ref().is_some_and(|openings| openings[0].is_none()) {
        prop_assert_eq!(outcome.speculation_off[0].reason.as_str(), "NOBODY");
        prop_assert_eq!(outcome.speculation_off[0].at_token, 1);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_whole_and_accounted_for(case in case()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let run = runtime.block_on(case.run());
        check_tokens(&case, &run)?;
        match &run.outcome {
            Ok(_) => check_finished(&case, &run)?,
            Err(GenerateError::VerifierLost(_)) => prop_assert!(case.verifier_breaks.is_some()),
            Err(GenerateError::ClientGone(_)) => prop_assert!(case.gone_after.is_some()),
            Err(other) => prop_assert!(false, "{other}"),
        }
        // Whatever drafters did and whoever was lost: the text is that of plain decoding, as far as it came.
        if case.greedy || case.rule == Rule::Gumbel {
            let plain = runtime.block_on(case.plain());
            prop_assert!(plain.ids().starts_with(&run.ids()), "{:?} instead of {:?}", run.ids(), plain.ids());
            prop_assert!(run.outcome.is_err() || plain.ids() == run.ids());
            prop_assert!(!case.greedy || plain.ids() == case.greedy_text());
        }
    }
}

#[tokio::test]
async fn a_perfect_guess_saves_all_passes_it_can() {
    for draft_len in 1..=8 {
        let case = Case {
            table: 5,
            zeros: 0,
            greedy: true,
            rule: Rule::Token,
            min_confidence: 0.0,
            seed: 0,
            draft_len,
            // The first token is plain, then whole blocks.
            max_tokens: 1 + 6 * (draft_len + 1),
            stop_ids: Vec::new(),
            stops_after: None,
            openings: Some(vec![Some((Says::Target(usize::MAX), None))]),
            verifier_breaks: None,
            gone_after: None,
        };
        let run = case.run().await;
        let ledger = &run.outcome.as_ref().unwrap().ledger;
        assert_eq!((ledger.blocks, ledger.plain, ledger.repair), (6, 1, 0), "draft length {draft_len}");
        assert_eq!(ledger.accepted as usize, 6 * draft_len);
    }
}

#[tokio::test]
async fn a_drafter_that_only_opens_costs_little_time() {
    let case = Case {
        table: 6,
        zeros: 0,
        greedy: true,
        rule: Rule::Token,
        min_confidence: 0.0,
        seed: 0,
        draft_len: 4,
        max_tokens: 4_000,
        stop_ids: Vec::new(),
        stops_after: None,
        openings: Some(vec![Some((Says::Nothing, None))]),
        verifier_breaks: None,
        gone_after: None,
    };
    let run = case.run().await;
    let outcome = run.outcome.as_ref().unwrap();
    assert_eq!(run.ids(), case.greedy_text());
    assert_eq!(outcome.speculation_off[0].reason, "DRAFTER_TIMEOUT");
    // Asked again and again, but ever more seldom: not once for every token or two.
    assert!(outcome.speculation_off.len() < 20, "given up {} times", outcome.speculation_off.len());
}
