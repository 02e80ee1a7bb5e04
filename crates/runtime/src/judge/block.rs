//! The verifier's half of the block rule over a session's rows.

use foretoken_acceptance::block_rule::BlockRule;
use foretoken_acceptance::{LogitsError, overlap};
use foretoken_engine::conversation::Verdict;

use super::{Asked, Judge, drafted};
use crate::decoder::Decoder;

impl Judge {
    /// As [`verdict`](Judge::verdict), by the block rule.
    pub(super) fn block_verdict<D: Decoder>(
        &mut self,
        decoder: &D,
        asked: Asked<'_>,
    ) -> Result<Verdict, LogitsError> {
        let Asked { first_row, sampling, keys, block, at: (start, epoch) } = asked;
        if sampling.is_greedy() && block.q.is_none() {
            // Everything is 0 or 1, and there the rules agree. A device answers this without giving rows away.
            let verdict = self.token_verdict(decoder, asked)?;
            return Ok(Verdict { reach: verdict.thresholds.clone(), ..verdict });
        }
        let gamma = block.tokens.len();
        let (repairs, bonus) = (keys.repair(), keys.bonus());
        let mut verdict = Verdict {
            thresholds: Vec::with_capacity(gamma),
            repairs: Vec::with_capacity(gamma),
            overlaps: Vec::with_capacity(gamma),
            reach: Vec::with_capacity(gamma),
            ..Verdict::default()
        };
        let mut rule = BlockRule::default();
        for i in 0..gamma {
            self.read(decoder, first_row + i, sampling)?;
            let (token, q) = drafted(block, i);
            let step = rule.step(&self.p, q, token, repairs.coin((start + i) as u64, epoch));
            verdict.thresholds.extend(step.threshold_before);
            verdict.repairs.push(step.repair);
            verdict.overlaps.push(overlap(&self.p, q));
            verdict.reach.push(step.reach);
            if step.reach == 0.0 {
                // Nothing from here on can stand, so nothing behind it can matter.
                break;
            }
        }
        verdict.thresholds.extend(rule.last_threshold());
        if rule.last_threshold() != Some(0.0) {
            self.read(decoder, first_row + gamma, sampling)?;
            verdict.bonus = Some(self.p.draw(bonus.coin((start + gamma) as u64, epoch)));
        }
        Ok(verdict)
    }
}
