//! The whole path with real coins, by every rule: draws by draft coins, thresholds and repairs by the verifier's, the decision by the
//! orchestrator's, switches to plain decoding in between. Texts are then compared with the target's probabilities.
//!
//! The models have a clock: what follows depends only on the tokens since the last multiple of 5, so that one text
//! holds independent sequences of 5 tokens, with the borders of rounds and bonus tokens inside them.

use std::collections::BTreeMap;

use foretoken_acceptance::block_rule::{self, BlockRule};
use foretoken_acceptance::{
    CoinKey, Distribution, Lattice, Proposal, RequestKeys, Rule, accepted_len, gumbel, repair, threshold,
};
use foretoken_tests::stats::{g_test, holm};

use crate::models::{Claim, Draft, Model, V, lattice, table};
use crate::outcomes::Outcomes;

const SEQUENCE: usize = 5;
const SEQUENCES_IN_A_TEXT: usize = 200;
const TEXTS: u32 = 200;
const GAMMA: usize = 3;

/// The right path may raise an alarm with this probability, over all its settings together; wrong paths must fall
/// below the other. Seeds were fixed before.
const ALARM: f64 = 1e-4;
const CERTAIN: f64 = 1e-9;

/// Which coins the draft draws with.
#[derive(Clone, Copy, PartialEq)]
enum DraftCoins {
    Own,
    /// The accept coins: draft and verifier share one uniform number.
    Accept,
}

/// Both models for every text of up to 4 tokens, looked up instead of computed.
struct Clocked {
    p: BTreeMap<Vec<u32>, Distribution>,
    q: BTreeMap<Vec<u32>, Lattice>,
}

impl Clocked {
    fn new(p: &Model, q: &Draft) -> Self {
        let mut texts = vec![Vec::new()];
        let mut begin = 0;
        for _ in 1..SEQUENCE {
            let end = texts.len();
            for i in begin..end {
                texts.extend((0..V).map(|token| [&texts[i][..], &[token]].concat()).collect::<Vec<_>>());
            }
            begin = end;
        }
        let lattice_of = |text: &Vec<u32>| match q(text) {
            Claim::Lattice(lattice) => lattice,
            other => panic!("not a lattice: {other:?}"),
        };
        Self {
            p: texts.iter().map(|text| (text.clone(), p(text))).collect(),
            q: texts.iter().map(|text| (text.clone(), lattice_of(text))).collect(),
        }
    }

    fn p(&self, text: &[u32]) -> &Distribution {
        &self.p[since_the_clock(text)]
    }

    fn q(&self, text: &[u32]) -> &Lattice {
        &self.q[since_the_clock(text)]
    }
}

fn since_the_clock(text: &[u32]) -> &[u32] {
    &text[text.len() / SEQUENCE * SEQUENCE..]
}

/// A text in the making, as the orchestrator has it.
struct Request<'a> {
    models: &'a Clocked,
    rule: Rule,
    text: Vec<u32>,
    epoch: u64,
    accept: CoinKey,
    draft: CoinKey,
    repair: CoinKey,
    bonus: CoinKey,
    plain: CoinKey,
    noise: CoinKey,
}

impl<'a> Request<'a> {
    fn new(models: &'a Clocked, rule: Rule, keys: &RequestKeys, coins: DraftCoins) -> Self {
        let draft = if coins == DraftCoins::Own { keys.draft() } else { keys.accept() };
        let verifier = keys.verifier();
        Self {
            models,
            rule,
            text: Vec::new(),
            epoch: 0,
            accept: keys.accept(),
            draft,
            repair: verifier.repair(),
            bonus: verifier.bonus(),
            plain: verifier.plain(),
            noise: verifier.noise(),
        }
    }

    fn block(&mut self, gamma: usize) {
        let base = self.text.len();
        let mut ahead = self.text.clone();
        for _ in 0..gamma {
            ahead.push(self.drafted(&ahead));
        }
        let accept = |i| self.accept.coin((base + i) as u64, self.epoch);
        let (mut thresholds, mut closings, mut blocks) = (Vec::new(), Vec::new(), BlockRule::default());
        for position in base..base + gamma {
            let p = self.models.p(&ahead[..position]);
            let q = Proposal::Lattice(self.models.q(&ahead[..position]));
            let coin = self.repair.coin(position as u64, self.epoch);
            match self.rule {
                Rule::Token => {
                    thresholds.push(threshold(p, q, ahead[position]));
                    closings.push(repair(p, q, coin));
                }
                Rule::Block => {
                    let step = blocks.step(p, q, ahead[position], coin);
                    thresholds.extend(step.threshold_before);
                    closings.push(step.repair);
                }
                Rule::Gumbel => closings.push(self.emitted(&ahead[..position])),
            }
        }
        thresholds.extend(blocks.last_threshold());
        closings.push(match self.rule {
            Rule::Gumbel => self.emitted(&ahead),
            _ => self.models.p(&ahead).draw(self.bonus.coin(ahead.len() as u64, self.epoch)),
        });

        let accepted = match self.rule {
            Rule::Token => accepted_len(&thresholds, accept),
            Rule::Block => block_rule::accepted_len(&thresholds, accept),
            Rule::Gumbel => gumbel::accepted_len(&ahead[base..], &closings),
        };
        self.text.extend(&ahead[base..base + accepted]);
        self.text.push(closings[accepted]);
        if accepted < gamma {
            self.epoch += 1;
        }
    }

    fn plain_run(&mut self, tokens: usize) {
        self.epoch += 1;
        for _ in 0..tokens {
            self.text.push(self.emitted(&self.text));
        }
        self.epoch += 1;
    }

    /// What the target says behind `text` by itself.
    fn emitted(&self, text: &[u32]) -> u32 {
        let (p, position) = (self.models.p(text), text.len() as u64);
        match self.rule {
            Rule::Gumbel => gumbel::draw(p, &mut self.noise.noise(position)),
            _ => p.draw(self.plain.coin(position, self.epoch)),
        }
    }

    /// What the draft guesses behind `text`.
    fn drafted(&self, text: &[u32]) -> u32 {
        let (q, position) = (self.models.q(text), text.len() as u64);
        match self.rule {
            Rule::Gumbel => {
                let probs: Vec<_> = (0..V).map(|token| q.prob(token)).collect();
                gumbel::draw(&Distribution::from_probs(&probs), &mut self.noise.noise(position))
            }
            _ => q.draw(self.draft.word(position, self.epoch)),
        }
    }
}

/// Counts the sequences of many texts. `plain_every`: after so many blocks comes a run of plain decoding.
fn counts(
    models: &Clocked,
    rule: Rule,
    seed: u64,
    coins: DraftCoins,
    plain_every: usize,
) -> BTreeMap<Vec<u32>, u64> {
    let mut counts = BTreeMap::new();
    for sample in 0..TEXTS {
        let mut request = Request::new(models, rule, &RequestKeys::new(seed, sample), coins);
        let mut blocks = 0;
        while request.text.len() < SEQUENCE * SEQUENCES_IN_A_TEXT {
            request.block(1 + blocks % GAMMA);
            blocks += 1;
            if plain_every > 0 && blocks % plain_every == 0 {
                request.plain_run(3);
            }
        }
        for sequence in request.text.chunks_exact(SEQUENCE).take(SEQUENCES_IN_A_TEXT) {
            *counts.entry(sequence.to_vec()).or_default() += 1;
        }
    }
    counts
}

/// The p-value of the texts under the target, and their total variation from it.
fn compare(
    models_seed: u32,
    rule: Rule,
    target: &str,
    shape: (u32, u32),
    coins: DraftCoins,
    plain_every: usize,
) -> (f64, f64) {
    let p = table(target, models_seed);
    let models = Clocked::new(&p, &lattice(table("q", models_seed), shape.0, shape.1));
    let counts = counts(&models, rule, 20 + u64::from(models_seed), coins, plain_every);
    let n = u64::from(TEXTS) * SEQUENCES_IN_A_TEXT as u64;
    let target = Outcomes::target(&p, SEQUENCE);
    let impossible = counts.keys().find(|text| target.iter().all(|(possible, _)| possible != *text));
    assert_eq!(impossible, None, "a text of probability 0");
    let cells: Vec<(u64, f64)> =
        target.iter().map(|(text, weight)| (counts.get(text).copied().unwrap_or(0), weight)).collect();
    let apart =
        cells.iter().map(|&(count, weight)| (count as f64 / n as f64 - weight).abs()).sum::<f64>() / 2.0;
    (g_test(&cells).p_value, apart)
}

#[test]
fn texts_follow_the_target() {
    let mut settings = Vec::new();
    for models_seed in 0..2 {
        for target in ["p", "pz"] {
            for (shape, plain_every) in [((32, 4096), 0), ((2, 8), 4)] {
                for rule in [Rule::Token, Rule::Block, Rule::Gumbel] {
                    settings.push((models_seed, rule, target, shape, plain_every));
                }
            }
        }
    }
    let mut p_values = Vec::new();
    for &(models_seed, rule, target, shape, plain_every) in &settings {
        let (p_value, apart) = compare(models_seed, rule, target, shape, DraftCoins::Own, plain_every);
        println!("{rule} {target}{models_seed} {shape:?}: p-value {p_value:.3}, total variation {apart:.4}");
        p_values.push(p_value);
    }
    let alarms: Vec<_> = holm(&p_values, ALARM).into_iter().map(|i| (settings[i], p_values[i])).collect();
    assert!(alarms.is_empty(), "off the target: {alarms:?}");
}

#[test]
fn a_uniform_shared_by_draft_and_verifier_is_seen() {
    for models_seed in 0..2 {
        let (p_value, apart) = compare(models_seed, Rule::Token, "p", (32, 4096), DraftCoins::Accept, 0);
        println!("shared uniform {models_seed}: p-value {p_value:e}, total variation {apart:.3}");
        assert!(p_value < CERTAIN, "p-value {p_value:e}");
        assert!(apart > 0.1, "total variation {apart}");
    }
}
