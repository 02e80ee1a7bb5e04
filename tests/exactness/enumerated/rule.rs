//! One round, enumerated. A [`Rule`] says how each step is done; its provided steps are the project's own, so a wrong
//! rule overrides exactly the step it gets wrong.

use foretoken_acceptance::{Distribution, Proposal, accepted_len, repair, residual, threshold};

use crate::models::{Claim, Draft, Model};
use crate::outcomes::{Closing, Outcomes};

/// The models of a round and how far to look.
pub(crate) struct Scene {
    /// The target.
    pub(crate) p: Model,
    /// The draft.
    pub(crate) q: Draft,
    /// Tokens of a full block.
    pub(crate) gamma: usize,
    /// How many tokens of the text are compared.
    pub(crate) length: usize,
}

/// A way a round may begin: what has been committed and which block is to be judged behind it.
pub(crate) struct Start {
    pub(crate) committed: Vec<u32>,
    pub(crate) block: Vec<u32>,
    /// The probability of this start.
    pub(crate) weight: f64,
    /// The accept coins, where the block was chosen in view of them; usually they are independent of it.
    pub(crate) coins: Option<Vec<f64>>,
}

impl Start {
    /// A block at the very beginning.
    pub(crate) fn of_block(block: Vec<u32>, weight: f64) -> Self {
        Self { committed: Vec::new(), block, weight, coins: None }
    }
}

/// A drafted token about to be judged.
pub(crate) struct Position<'a> {
    pub(crate) p: &'a Distribution,
    /// What the verifier is told that the token was drawn from.
    pub(crate) told: Proposal<'a>,
    pub(crate) token: u32,
}

/// The steps of a round.
pub(crate) trait Rule {
    /// All ways the round may begin. Here: `gamma` tokens, each drawn from the draft.
    fn starts(&self, scene: &Scene) -> Vec<Start> {
        drafts(scene, |text, _| text.len() == scene.gamma)
    }

    /// What is told of `token`, drafted behind `text`. Here: what it was drawn from.
    fn told(&self, scene: &Scene, text: &[u32], _token: u32) -> Claim {
        (scene.q)(text)
    }

    /// With which probability the token stands.
    fn threshold(&self, at: &Position<'_>) -> f64 {
        threshold(at.p, at.told, at.token)
    }

    /// What replaces it otherwise.
    fn repair(&self, at: &Position<'_>) -> Closing {
        let left: Vec<_> = residual(at.p, at.told).collect();
        let weights = if left.is_empty() { at.p.iter().collect() } else { left };
        by_coin(&weights, |coin| repair(at.p, at.told, coin))
    }

    /// What follows a block that stands whole, `text` being all before.
    fn bonus(&self, scene: &Scene, text: &[u32]) -> Closing {
        let p = (scene.p)(text);
        by_coin(&p.iter().collect::<Vec<_>>(), |coin| p.draw(coin))
    }

    /// The verifier's half: the thresholds, and for each number of accepted tokens what closes the round. Here: token by
    /// token.
    fn verified(&self, scene: &Scene, start: &Start) -> (Vec<f64>, Vec<Closing>) {
        let mut text = start.committed.clone();
        let mut thresholds = Vec::new();
        let mut closings = Vec::new();
        for &token in &start.block {
            let p = (scene.p)(&text);
            let told = self.told(scene, &text, token);
            let at = Position { p: &p, told: told.proposal(), token };
            thresholds.push(self.threshold(&at));
            closings.push(self.repair(&at));
            text.push(token);
        }
        closings.push(self.bonus(scene, &text));
        (thresholds, closings)
    }

    /// The orchestrator's half: how many tokens stand. Here: those in front of the first rejected one.
    fn accepted(&self, thresholds: &[f64], coins: &[f64]) -> usize {
        accepted_len(thresholds, |i| coins[i])
    }
}

/// The project's own rule.
pub(crate) struct Exact;

impl Rule for Exact {}

/// The total variation between texts that begin with a round of `rule` and the target's.
pub(crate) fn error(rule: &dyn Rule, scene: &Scene) -> f64 {
    let ours = round(rule, scene).finish(&scene.p, scene.length);
    assert!((ours.total() - 1.0).abs() < 1e-12, "outcomes sum to {}", ours.total());
    ours.total_variation(&Outcomes::target(&scene.p, scene.length))
}

/// Blocks drawn token by token until `stop(block, q of the next token)` says so before a token is drawn.
pub(crate) fn drafts(scene: &Scene, stop: impl Fn(&[u32], &Claim) -> bool) -> Vec<Start> {
    let mut done = Vec::new();
    let mut open = vec![(Vec::new(), 1.0)];
    while let Some((block, weight)) = open.pop() {
        let q = (scene.q)(&block);
        if stop(&block, &q) {
            done.push(Start::of_block(block, weight));
            continue;
        }
        for (token, probability) in q.drawn() {
            let longer = block.iter().copied().chain([token]).collect();
            open.push((longer, weight * probability));
        }
    }
    done
}

/// All texts a round may leave. In the two halves the services have: first the verifier's, for every position of the
/// block whatever becomes of those before, then the orchestrator's, over all outcomes of its coins.
fn round(rule: &dyn Rule, scene: &Scene) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for start in rule.starts(scene) {
        for Decided { accepted, closing, weight } in decided(rule, scene, &start) {
            for (token, probability) in closing {
                let mut text = start.committed.clone();
                text.extend(&start.block[..accepted]);
                text.push(token);
                outcomes.add(text, weight * probability);
            }
        }
    }
    outcomes
}

/// What may become of a start.
pub(crate) struct Decided {
    pub(crate) accepted: usize,
    /// What follows the accepted tokens.
    pub(crate) closing: Closing,
    /// The probability of this, the start's included.
    pub(crate) weight: f64,
}

/// Both halves of the rule over one start.
pub(crate) fn decided(rule: &dyn Rule, scene: &Scene, start: &Start) -> Vec<Decided> {
    let (thresholds, closings) = rule.verified(scene, start);
    let outcomes = coin_outcomes(start, &thresholds).into_iter();
    outcomes
        .map(|(coins, weight)| {
            let accepted = rule.accepted(&thresholds, &coins);
            Decided { accepted, closing: closings[accepted].clone(), weight: start.weight * weight }
        })
        .collect()
}

/// How many drafted tokens stand on average.
pub(crate) fn mean_accepted(rule: &dyn Rule, scene: &Scene) -> f64 {
    let starts = rule.starts(scene);
    let all = starts.iter().flat_map(|start| decided(rule, scene, start));
    all.map(|decided| decided.weight * decided.accepted as f64).sum()
}

/// Coins standing for all coins, with the probability of theirs: at each position either one below the threshold or
/// one not below it.
fn coin_outcomes(start: &Start, thresholds: &[f64]) -> Vec<(Vec<f64>, f64)> {
    if let Some(coins) = &start.coins {
        return vec![(coins.clone(), 1.0)];
    }
    // 0 is below every threshold but 0; the largest coin is below none but 1.
    let (below, not_below) = (0.0, 1.0 - f64::EPSILON / 2.0);
    let mut all = vec![(Vec::new(), 1.0)];
    for &threshold in thresholds {
        let mut longer = Vec::new();
        for (coins, weight) in all {
            for (coin, probability) in [(below, threshold), (not_below, 1.0 - threshold)] {
                if probability > 0.0 {
                    longer.push(([&coins[..], &[coin]].concat(), weight * probability));
                }
            }
        }
        all = longer;
    }
    all
}

/// `weights` normalised, after seeing that `draw` gives each token for the coins of its share.
pub(crate) fn by_coin(weights: &[(u32, f64)], draw: impl Fn(f64) -> u32) -> Closing {
    let total: f64 = weights.iter().map(|w| w.1).sum();
    let mut begin = 0.0;
    for &(token, weight) in weights {
        let middle = (begin + weight / 2.0) / total;
        assert_eq!(draw(middle), token, "coin {middle}");
        begin += weight;
    }
    weights.iter().map(|&(token, weight)| (token, weight / total)).collect()
}
