//! That the G-test can tell: through the same round loop the exact rule passes it, and every wrong rule found in the
//! field falls far below the level at which one would be called wrong.

use foretoken_acceptance::{Rule as RuleName, Sampling};
use foretoken_engine::generate::Plan;
use foretoken_testkit::scripted::{Collected, ExactRule, Guess, Rule, Scripts, TableVerifier};
use foretoken_testkit::wrong_rules::{
    AcceptAll, AcceptIfArgmax, AnythingPossibleStands, BlockReadAsToken, BlockWithoutLookAhead,
    InvertedRatio, NoiseOnProbabilities, NoiseWithoutPosition, RepairFromTarget, ScalarResidual,
    TokenReadAsBlock,
};
use foretoken_tests::stats::{GTest, holm};

use crate::clocked::{ALARM, CERTAIN, Counts, PERIOD, V, draft, probabilities, target};
use crate::looped::{plan, run};

const STREAMS: usize = 3;
const SEQUENCES_IN_A_STREAM: usize = 13_440;

/// Fixed before the first run and never picked again.
const FIRST_SEED: u64 = 32_000;

/// Draws from the draft table's lattice.
fn model() -> Guess {
    Guess::Table(draft())
}

/// Guesses one-hot, a token that depends on the text and is sometimes impossible.
fn one_hot() -> Guess {
    Guess::OneHot(std::sync::Arc::new(|text| (text.len() as u32 * 7 + text[text.len() - 1]) % V as u32))
}

/// The test of many sequences judged by `rule`, and the share of drafted tokens that stood.
async fn judged_by<R: Rule + Clone>(
    name: RuleName,
    rule: R,
    guess: Guess,
    sampling: Sampling,
) -> (GTest, f64) {
    let mut counts = Counts::new();
    let (mut drafted, mut accepted) = (0, 0);
    for stream in 0..STREAMS {
        let seed = FIRST_SEED + stream as u64;
        let plan = Plan { rule: name, ..plan(sampling, seed, 1 + stream, SEQUENCES_IN_A_STREAM * PERIOD) };
        let verifier = TableVerifier::new(target(), rule.clone(), plan.verify_open());
        let run = run(&plan, verifier, Some(Scripts::steady(guess.clone())), Collected::default()).await;
        let ledger = &run.outcome.as_ref().unwrap().ledger;
        (drafted, accepted) = (drafted + ledger.drafted, accepted + ledger.accepted);
        counts.add(&run.ids());
    }
    assert!(accepted > 0, "nothing was accepted");
    (counts.test(&probabilities(&target(), &sampling)), f64::from(accepted) / f64::from(drafted))
}

fn settings() -> [(&'static str, Sampling); 3] {
    [
        ("T 1", Sampling::new(1.0, 0, 1.0, 0.0).unwrap()),
        ("T 0.7 top-k 3", Sampling::new(0.7, 3, 1.0, 0.0).unwrap()),
        ("T 1.3 top-p 0.9 min-p 0.1", Sampling::new(1.3, 0, 0.9, 0.1).unwrap()),
    ]
}

#[tokio::test]
async fn the_exact_rules_pass() {
    let (mut names, mut p_values) = (Vec::new(), Vec::new());
    for rule in [RuleName::Token, RuleName::Block, RuleName::Gumbel] {
        for (setting, sampling) in settings() {
            for (drafter, guess) in [("model", model()), ("one-hot", one_hot())] {
                let (GTest { p_value, .. }, acceptance) = judged_by(rule, ExactRule, guess, sampling).await;
                println!("{rule}, {setting}, {drafter}: p-value {p_value:.4}, acceptance {acceptance:.3}");
                names.push((rule, setting, drafter));
                p_values.push(p_value);
            }
        }
    }
    let alarms: Vec<_> = holm(&p_values, ALARM).into_iter().map(|i| (names[i], p_values[i])).collect();
    assert!(alarms.is_empty(), "off the target: {alarms:?}");
}

async fn is_caught<R: Rule + Clone>(name: &str, rule: R) {
    is_caught_as(RuleName::Token, name, rule).await;
}

/// In sessions of `session`'s rule, which is how the orchestrator reads the verdicts.
async fn is_caught_as<R: Rule + Clone>(session: RuleName, name: &str, rule: R) {
    for (setting, sampling) in settings() {
        let (test, acceptance) = judged_by(session, rule.clone(), model(), sampling).await;
        let GTest { statistic, degrees, p_value } = test;
        println!(
            "{name}, {setting}: G {statistic:.0} on {degrees}, p-value {p_value:e}, acceptance {acceptance:.3}"
        );
        assert!(p_value < CERTAIN, "{name} at {setting} passes with a p-value of {p_value:e}");
    }
}

#[tokio::test]
async fn a_repair_drawn_from_the_target_is_caught() {
    is_caught("repair from target", RepairFromTarget).await;
}

#[tokio::test]
async fn a_residual_of_one_number_is_caught() {
    is_caught("scalar residual", ScalarResidual).await;
}

#[tokio::test]
async fn an_inverted_ratio_is_caught() {
    is_caught("inverted ratio", InvertedRatio).await;
}

#[tokio::test]
async fn accepting_the_likeliest_is_caught() {
    is_caught("accept if argmax", AcceptIfArgmax).await;
}

#[tokio::test]
async fn accepting_everything_is_caught() {
    is_caught("accept all", AcceptAll).await;
}

#[tokio::test]
async fn block_thresholds_read_as_those_of_tokens_are_caught() {
    is_caught_as(RuleName::Token, "block read as token", BlockReadAsToken).await;
}

#[tokio::test]
async fn token_thresholds_read_as_those_of_a_block_are_caught() {
    is_caught_as(RuleName::Block, "token read as block", TokenReadAsBlock).await;
}

#[tokio::test]
async fn a_block_rule_that_does_not_look_ahead_is_caught() {
    is_caught_as(RuleName::Block, "block without look-ahead", BlockWithoutLookAhead).await;
}

#[tokio::test]
async fn noise_that_does_not_depend_on_the_position_is_caught() {
    is_caught_as(RuleName::Gumbel, "noise without position", NoiseWithoutPosition).await;
}

#[tokio::test]
async fn noise_on_probabilities_is_caught() {
    is_caught_as(RuleName::Gumbel, "noise on probabilities", NoiseOnProbabilities).await;
}

#[tokio::test]
async fn coupling_that_lets_anything_possible_stand_is_caught() {
    is_caught_as(RuleName::Gumbel, "anything possible stands", AnythingPossibleStands).await;
}
