//! The orchestrator's half of the rules: what a verdict and the accept coins make of a block.
//!
//! Pure; what is committed of it is the round loop's business.

use foretoken_acceptance::{Rule, accepted_len, block_rule, gumbel};

use crate::conversation::{Block, Verdict};
use crate::ledger::Origin;

/// What becomes of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Decision<'a> {
    /// Drafted tokens that stand.
    pub(super) accepted: usize,
    /// The token behind them.
    pub(super) last: (u32, Origin),
    /// Positions whose acceptance could be foretold.
    pub(super) judged: usize,
    /// How likely each of them was to be accepted; behind the end, not at all.
    pub(super) foretold: &'a [f64],
}

/// Decides a block on a [checked](check) verdict. `coin` gives the accept coin of each position, counted from 0 in
/// the block.
///
/// # Errors
/// A verdict that lacks the token that is to be taken.
pub(super) fn decide<'a>(
    rule: Rule,
    verdict: &'a Verdict,
    block: &Block,
    coin: impl FnMut(usize) -> f64,
) -> Result<Decision<'a>, String> {
    let gamma = block.tokens.len();
    let accepted = match rule {
        Rule::Token => accepted_len(&verdict.thresholds, coin),
        Rule::Block => block_rule::accepted_len(&verdict.thresholds, coin),
        Rule::Gumbel => gumbel::accepted_len(&block.tokens, &verdict.repairs),
    };
    let last = if accepted == gamma {
        verdict.bonus.map(|token| (token, Origin::Bonus))
    } else {
        verdict.repairs.get(accepted).map(|&token| (token, Origin::Repair))
    };
    let last = last.ok_or_else(|| {
        format!("{accepted} of {gamma} tokens stand and the verdict has no token that goes behind them")
    })?;
    let (judged, foretold) = match rule {
        Rule::Token => {
            let judged = (accepted + 1).min(gamma);
            (judged, &verdict.overlaps[..judged])
        }
        Rule::Block => (gamma, verdict.reach.as_slice()),
        Rule::Gumbel => (0, [].as_slice()),
    };
    Ok(Decision { accepted, last, judged, foretold })
}

/// What makes a verdict unusable.
///
/// # Errors
/// Says what is wrong.
pub(super) fn check(rule: Rule, verdict: &Verdict, block: &Block, vocab_size: usize) -> Result<(), String> {
    match rule {
        Rule::Token => check_thresholds(verdict, block.tokens.len(), 0)?,
        Rule::Block => check_thresholds(verdict, block.tokens.len(), verdict.thresholds.len())?,
        Rule::Gumbel => check_emitted(verdict, block)?,
    }
    match verdict.repairs.iter().chain(&verdict.bonus).find(|&&token| token as usize >= vocab_size) {
        Some(token) => Err(format!("token {token} is outside the vocabulary of {vocab_size}")),
        None => Ok(()),
    }
}

/// Of the rules with thresholds: as many of everything, all of them probabilities, and no shorter than the block but
/// behind a threshold of 0.
fn check_thresholds(verdict: &Verdict, gamma: usize, reach_len: usize) -> Result<(), String> {
    let len = verdict.thresholds.len();
    if len > gamma
        || verdict.repairs.len() != len
        || verdict.overlaps.len() != len
        || verdict.reach.len() != reach_len
    {
        return Err(format!(
            "a verdict on {gamma} tokens has {len} thresholds, {} repairs, {} overlaps and {} reaches",
            verdict.repairs.len(),
            verdict.overlaps.len(),
            verdict.reach.len()
        ));
    }
    let mut probabilities = verdict.thresholds.iter().chain(&verdict.reach);
    if let Some(number) = probabilities.find(|number| !(0.0..=1.0).contains(*number)) {
        return Err(format!("{number} is not a probability"));
    }
    if len < gamma && verdict.thresholds.last() != Some(&0.0) {
        return Err(format!("a verdict on {gamma} tokens stops after {len} without a threshold of 0"));
    }
    Ok(())
}

/// Under Gumbel coupling: emitted tokens up to the first that is not the drafted one.
fn check_emitted(verdict: &Verdict, block: &Block) -> Result<(), String> {
    let (gamma, len) = (block.tokens.len(), verdict.repairs.len());
    let same = gumbel::accepted_len(&block.tokens, &verdict.repairs);
    if len > gamma || !verdict.thresholds.is_empty() {
        return Err(format!(
            "a verdict on {gamma} tokens has {len} emitted tokens and {} thresholds",
            verdict.thresholds.len()
        ));
    }
    if same == len && len < gamma {
        return Err(format!("a verdict on {gamma} tokens stops after {len} that were all drafted"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        Block { tokens: vec![1, 2, 3], q: None }
    }

    fn verdict(thresholds: &[f64], repairs: &[u32], bonus: Option<u32>) -> Verdict {
        let overlaps = vec![0.5; thresholds.len()];
        Verdict {
            thresholds: thresholds.to_vec(),
            repairs: repairs.to_vec(),
            bonus,
            overlaps,
            ..Verdict::default()
        }
    }

    fn of_block(verdict: Verdict) -> Verdict {
        Verdict { reach: vec![0.25; verdict.thresholds.len()], ..verdict }
    }

    /// Checked, then decided with the same coin everywhere.
    fn decided(rule: Rule, verdict: &Verdict, coin: f64) -> Result<Decision<'_>, String> {
        check(rule, verdict, &block(), 10)?;
        decide(rule, verdict, &block(), |_| coin)
    }

    #[test]
    fn each_rule_reads_its_own_verdict() {
        let token = verdict(&[0.9, 0.1, 0.9], &[4, 5, 6], Some(7));
        let decision = decided(Rule::Token, &token, 0.5).unwrap();
        assert_eq!((decision.accepted, decision.last), (1, (5, Origin::Repair)));
        assert_eq!((decision.judged, decision.foretold), (2, [0.5, 0.5].as_slice()));

        let of_block = of_block(token);
        let decision = decided(Rule::Block, &of_block, 0.5).unwrap();
        assert_eq!((decision.accepted, decision.last), (3, (7, Origin::Bonus)));
        assert_eq!((decision.judged, decision.foretold), (3, [0.25; 3].as_slice()));

        let emitted = verdict(&[], &[1, 5], None);
        let decision = decided(Rule::Gumbel, &emitted, 0.5).unwrap();
        assert_eq!((decision.accepted, decision.last), (1, (5, Origin::Repair)));
        assert_eq!((decision.judged, decision.foretold.len()), (0, 0));
        let emitted = verdict(&[], &[1, 2, 3], Some(4));
        assert_eq!(decided(Rule::Gumbel, &emitted, 0.5).unwrap().last, (4, Origin::Bonus));
    }

    #[test]
    fn verdicts_that_contradict_themselves_are_refused() {
        let whole = verdict(&[1.0; 3], &[4, 5, 6], Some(7));
        let no_reach = whole.clone();
        let beyond = Verdict { reach: vec![0.5, 0.5, 1.5], ..whole.clone() };
        for (rule, verdict, told) in [
            (Rule::Token, verdict(&[1.0; 4], &[4; 4], Some(7)), "4 thresholds"),
            (Rule::Token, verdict(&[1.0; 3], &[4; 2], Some(7)), "2 repairs"),
            (Rule::Token, verdict(&[1.0; 2], &[4; 2], None), "without a threshold of 0"),
            (Rule::Token, verdict(&[f64::NAN; 3], &[4; 3], Some(7)), "not a probability"),
            (Rule::Token, verdict(&[1.0; 3], &[4; 3], Some(10)), "outside the vocabulary"),
            (Rule::Token, verdict(&[1.0; 3], &[4; 3], None), "no token that goes behind"),
            (Rule::Token, of_block(whole.clone()), "3 reaches"),
            (Rule::Block, no_reach, "0 reaches"),
            (Rule::Block, beyond, "1.5 is not a probability"),
            (Rule::Block, of_block(verdict(&[0.0, 1.0], &[4; 2], None)), "without a threshold of 0"),
            (Rule::Gumbel, whole, "3 thresholds"),
            (Rule::Gumbel, verdict(&[], &[1, 2], None), "all drafted"),
            (Rule::Gumbel, verdict(&[], &[1, 2, 3, 4], None), "4 emitted"),
            (Rule::Gumbel, verdict(&[], &[1, 2, 3], None), "no token that goes behind"),
            (Rule::Gumbel, verdict(&[], &[1, 11], None), "outside the vocabulary"),
        ] {
            let error = decided(rule, &verdict, 0.5).unwrap_err();
            assert!(error.contains(told), "{rule}: {error:?} does not say {told:?}");
        }
    }
}
