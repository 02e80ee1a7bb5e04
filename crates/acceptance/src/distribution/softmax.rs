//! From logits to probabilities. Truncations choose their tokens before anything is sorted, and only what they leave
//! is normalised; without one the whole vocabulary goes through loops that vectorise.

use super::{Distribution, Layout};
use crate::exp::exp_nonpositive;
use crate::params::Sampling;
use crate::select::{self, Scored};

/// Accumulators of the loops over the vocabulary. Fixed, because it fixes the order in which a sum is rounded.
const LANES: usize = 16;

/// How many of the likeliest tokens top-p looks at first, and by how much it widens while they are too few.
const NUCLEUS_START: usize = 64;
const NUCLEUS_GROWTH: usize = 8;

/// Logits that are no distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogitsError {
    /// A logit is not a number.
    #[error("the logit of token {token} is NaN; the model's output is unusable")]
    NotANumber {
        /// The lowest token concerned.
        token: usize,
    },
    /// A logit is +∞.
    #[error("the logit of token {token} is +inf; the model's output is unusable")]
    PositiveInfinity {
        /// The lowest token concerned.
        token: usize,
    },
    /// Every logit is −∞.
    #[error("all {vocabulary} logits are -inf; at least one token must be left unmasked")]
    AllMasked {
        /// How many logits there are.
        vocabulary: usize,
    },
    /// There are no logits.
    #[error("there are no logits; the vocabulary must have at least one token")]
    Empty,
}

/// Turns a logit into a weight: e^((l − peak) / temperature), 1 for the likeliest token.
#[derive(Clone, Copy)]
struct Weigh {
    peak: f64,
    scale: f64,
}

impl Weigh {
    fn new(peak: f32, temperature: f64) -> Self {
        // For a temperature so small that its inverse overflows, the largest float gives the same weights: 1 at the
        // peak, 0 elsewhere. Infinity would make 0 · ∞ = NaN of the peak.
        Self { peak: f64::from(peak), scale: (1.0 / temperature).min(f64::MAX) }
    }

    #[inline(always)]
    fn weight(self, logit: f64) -> f64 {
        exp_nonpositive((logit - self.peak) * self.scale)
    }
}

/// See [`Distribution::fill`].
pub(super) fn fill(out: &mut Distribution, logits: &[f32], sampling: &Sampling) -> Result<(), LogitsError> {
    let peak = peak(logits)?;
    if sampling.is_greedy() {
        out.set_one_hot(first_at(logits, peak));
        return Ok(());
    }
    let weigh = Weigh::new(peak, sampling.temperature());
    let top_k = sampling.top_k() as usize;
    if top_k > 0 && top_k < logits.len() {
        select::best(scores(logits), top_k, &mut out.best.0);
        weigh_all(&mut out.best.0, weigh);
        if sampling.top_p() < 1.0 {
            let total: f64 = out.best.0.iter().map(|s| s.score).sum();
            cut_to_mass(&mut out.best.0, sampling.top_p() * total);
        }
        settle_sparse(out, sampling.min_p());
    } else {
        let total = fill_weights(&mut out.probs, logits, weigh);
        if sampling.top_p() < 1.0 {
            nucleus(logits, weigh, sampling.top_p() * total, &mut out.best.0);
            settle_sparse(out, sampling.min_p());
        } else if sampling.min_p() > 0.0 {
            let weights = (0u32..).zip(out.probs.iter().copied());
            let kept = weights.filter(|&(_, w)| w >= sampling.min_p());
            out.best.0.clear();
            out.best.0.extend(kept.map(|(id, score)| Scored { score, id }));
            settle_sorted(out);
        } else {
            // The peak's weight is 1, so the total is at least 1.
            let inverse = 1.0 / total;
            out.probs.iter_mut().for_each(|w| *w *= inverse);
            out.layout = Layout::Dense;
        }
    }
    Ok(())
}

/// The largest logit, once all are known to be usable.
fn peak(logits: &[f32]) -> Result<f32, LogitsError> {
    let mut peaks = [f32::NEG_INFINITY; LANES];
    let mut bad = [false; LANES];
    for chunk in logits.chunks(LANES) {
        for ((peak, bad), &logit) in peaks.iter_mut().zip(&mut bad).zip(chunk) {
            *peak = if logit > *peak { logit } else { *peak };
            *bad |= unusable(logit);
        }
    }
    if bad.contains(&true) {
        return Err(first_unusable(logits));
    }
    let peak = peaks.into_iter().fold(f32::NEG_INFINITY, f32::max);
    match logits.len() {
        0 => Err(LogitsError::Empty),
        vocabulary if peak == f32::NEG_INFINITY => Err(LogitsError::AllMasked { vocabulary }),
        _ => Ok(peak),
    }
}

#[inline(always)]
fn unusable(logit: f32) -> bool {
    logit.is_nan() | (logit == f32::INFINITY)
}

/// Names the first logit that is NaN or +∞; called only where there is one.
#[cold]
fn first_unusable(logits: &[f32]) -> LogitsError {
    let token = logits.iter().position(|&l| unusable(l)).unwrap_or(0);
    if logits.get(token).is_some_and(|l| l.is_nan()) {
        LogitsError::NotANumber { token }
    } else {
        LogitsError::PositiveInfinity { token }
    }
}

/// The lowest token whose logit is `peak`.
fn first_at(logits: &[f32], peak: f32) -> u32 {
    (0u32..).zip(logits).find(|&(_, &logit)| logit == peak).map_or(0, |(id, _)| id)
}

fn scores(logits: &[f32]) -> impl Iterator<Item = (u32, f64)> + '_ {
    (0u32..).zip(logits.iter().map(|&logit| f64::from(logit)))
}

/// Writes every token's weight and returns their sum, added in an order that does not depend on the machine.
fn fill_weights(weights: &mut Vec<f64>, logits: &[f32], weigh: Weigh) -> f64 {
    weights.resize(logits.len(), 0.0);
    for (weight, &logit) in weights.iter_mut().zip(logits) {
        *weight = weigh.weight(f64::from(logit));
    }
    let mut sums = [0.0; LANES];
    for chunk in weights.chunks(LANES) {
        for (sum, &weight) in sums.iter_mut().zip(chunk) {
            *sum += weight;
        }
    }
    sums.into_iter().sum()
}

/// Replaces logits, the scores so far, by weights.
fn weigh_all(best: &mut [Scored], weigh: Weigh) {
    for scored in best {
        scored.score = weigh.weight(scored.score);
    }
}

/// Leaves in `best` the shortest prefix of the likeliest tokens whose weights reach `goal`, looking at ever longer
/// prefixes instead of sorting the vocabulary. Where rounding keeps even all of them below it, all stay.
fn nucleus(logits: &[f32], weigh: Weigh, goal: f64, best: &mut Vec<Scored>) {
    let mut size = NUCLEUS_START;
    loop {
        select::best(scores(logits), size, best);
        weigh_all(best, weigh);
        if cut_to_mass(best, goal) || size >= logits.len() {
            return;
        }
        size = size.saturating_mul(NUCLEUS_GROWTH);
    }
}

/// Cuts `best`, best first, behind the token at which its weights reach `goal`; false if they never do.
fn cut_to_mass(best: &mut Vec<Scored>, goal: f64) -> bool {
    let mut mass = 0.0;
    for (i, scored) in best.iter().enumerate() {
        mass += scored.score;
        if mass >= goal {
            best.truncate(i + 1);
            return true;
        }
    }
    false
}

/// Applies min-p to the chosen tokens, which stand best first, and makes them the distribution.
fn settle_sparse(out: &mut Distribution, min_p: f64) {
    // The likeliest token's weight is 1, so min_p is the least weight kept. Weights of 0 are outside the support.
    out.best.0.retain(|s| s.score >= min_p && s.score > 0.0);
    out.best.0.sort_unstable_by_key(|s| s.id);
    settle_sorted(out);
}

/// Normalises the chosen tokens, which stand in order of ids, and makes them the distribution.
fn settle_sorted(out: &mut Distribution) {
    let chosen = &out.best.0;
    let inverse = 1.0 / chosen.iter().map(|s| s.score).sum::<f64>();
    out.ids.clear();
    out.ids.extend(chosen.iter().map(|s| s.id));
    out.probs.clear();
    out.probs.extend(chosen.iter().map(|s| s.score * inverse));
    out.layout = Layout::Sparse;
}
