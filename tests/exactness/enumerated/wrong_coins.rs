//! Wrong ways to use coins that only show over several rounds, enumerated: what is known of a coin is carried along.

use foretoken_acceptance::{Proposal, residual};

use crate::blocks::{InBlocks, judged};
use crate::models::{Model, V, full, probs, table};
use crate::outcomes::{Closing, Outcomes};
use crate::rule::{Exact, Rule, Scene};

/// Accept coins of the block rule keyed by position, not by round: in the next round the coins that rejected are known
/// to be large. Blocks of two tokens, texts of three.
pub(crate) fn block_coins_by_position(seed: u32) -> f64 {
    const LENGTH: usize = 3;
    let target = table("p", seed);
    let mut done = Outcomes::default();
    // A text, the least that the coin of its next position can be, and the probability of both.
    let mut open = vec![(Vec::new(), 0.0, 1.0)];
    while let Some((base, least, weight)) = open.pop() {
        if base.len() >= LENGTH {
            done.add(base[..LENGTH].to_vec(), weight);
            continue;
        }
        let behind = |name: &'static str| -> Model {
            let (model, base) = (table(name, seed), base.clone());
            Box::new(move |text: &[u32]| model(&[&base[..], text].concat()))
        };
        let scene = Scene { p: behind("p"), q: full(behind("q")), gamma: 2, length: LENGTH };
        for start in Exact.starts(&scene) {
            let block = judged(&InBlocks(&Exact), &scene, &start);
            let [h1, h2] = block.thresholds[..] else { panic!("two thresholds") };
            let first = (h1 - least).max(0.0) / (1.0 - least);
            for (stand, probability) in [(2, h2), (1, (1.0 - h2) * first), (0, (1.0 - h2) * (1.0 - first))] {
                // With no token standing, the second position is the next round's first.
                let least = if stand == 0 { h2 } else { 0.0 };
                for &(token, share) in &block.closings[stand] {
                    let text = [&base[..], &start.block[..stand], &[token]].concat();
                    let weight = weight * start.weight * probability * share;
                    if weight > 0.0 {
                        open.push((text, least, weight));
                    }
                }
            }
        }
    }
    done.total_variation(&Outcomes::target(&target, LENGTH))
}

/// The uniform number that drew a token from q also accepts it. Blocks of three tokens, texts of four.
pub(crate) fn shared_uniform(seed: u32) -> f64 {
    const LENGTH: usize = 4;
    let (p, q) = (table("up", seed), table("uq", seed));
    let mut done = Outcomes::default();
    // A text, how many of its last tokens this round accepted, and the probability of both.
    let mut open = vec![(Vec::new(), 0, 1.0)];
    while let Some((text, accepted, weight)) = open.pop() {
        if text.len() == LENGTH {
            done.add(text, weight);
            continue;
        }
        let (target, draft) = (p(&text), q(&text));
        let mut go_on = |token: u32, accepted: usize, probability: f64| {
            if probability > 0.0 {
                open.push(([&text[..], &[token]].concat(), accepted, weight * probability));
            }
        };
        if accepted == 3 {
            target.iter().for_each(|(token, p)| go_on(token, 0, p));
            continue;
        }
        let repairs = normalised(residual(&target, Proposal::Full(&draft)).collect());
        let (p, q) = (probs(&target), probs(&draft));
        let mut low = 0.0;
        for token in 0..V as usize {
            // u from low to high draws the token, u below p/q accepts it.
            let high = low + q[token];
            let passes = (high.min(p[token] / q[token]) - low).max(0.0);
            go_on(token as u32, accepted + 1, passes);
            repairs.iter().for_each(|&(repair, share)| go_on(repair, 0, (q[token] - passes) * share));
            low = high;
        }
    }
    done.total_variation(&Outcomes::target(&p, LENGTH))
}

fn normalised(weights: Closing) -> Closing {
    let total: f64 = weights.iter().map(|w| w.1).sum();
    weights.into_iter().map(|(token, weight)| (token, weight / total)).collect()
}
