//! Acceptance is Σ min(p, q): at each position of a block, |mean(accept − β)| ≤ 5·√(Σ β(1 − β)) / n.
//!
//! Accept bits are read off the answer, β off the verdicts; and β itself is compared with what the two tables give.

use foretoken_acceptance::{Distribution, Lattice, LatticeShape, Sampling};
use foretoken_engine::conversation::Block;
use foretoken_engine::ledger::Origin;
use foretoken_orchestrator::Config;
use foretoken_orchestrator::pool::Pool;
use foretoken_proto::v1;
use foretoken_testkit::scripted::{Collected, ExactRule, Guess, Scripts, TableVerifier};
use foretoken_testkit::table::{Table, TableModel};
use foretoken_transport::HealthSwitch;

use crate::clocked::{PROMPT, V, draft, target};
use crate::looped::{Judgement, Run, plan, run};
use crate::services::{cluster, patient};

const TOKENS: usize = 60_000;
const DEVIATIONS: f64 = 5.0;

/// Fixed before the first run and never picked again.
const SEED: u64 = 33_000;

/// What is known of one position of all blocks that reached it.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    judged: u32,
    accepted: u32,
    overlap: f64,
    variance: f64,
}

fn sampling() -> Sampling {
    Sampling::new(0.9, 0, 0.95, 0.0).unwrap()
}

fn distribution(table: &Table, text: &[u32]) -> Distribution {
    Distribution::from_logits(&TableModel::logits_of(&table(text)), &sampling()).unwrap()
}

/// Σ min(p, q), by its definition, at the text before a drafted token.
fn overlap(text: &[u32], block: &Block, index: usize) -> f64 {
    let p = distribution(&target(), text);
    if block.q.is_none() {
        return p.prob(block.tokens[index]);
    }
    let mut q = Lattice::default();
    q.fill(&distribution(&draft(), text), LatticeShape::default());
    (0..V as u32).map(|token| p.prob(token).min(q.prob(token))).sum()
}

/// The positions of one block that the rule reached, added to `positions`.
fn add(positions: &mut [Position], judgement: &Judgement, text: &[u32], origins: &[Origin]) {
    let Judgement { start, block, verdict } = judgement;
    for (index, position) in positions.iter_mut().enumerate().take(block.tokens.len()) {
        let at = start + index;
        let beta = verdict.overlaps[index];
        let right = overlap(&text[..at], block, index);
        assert!((beta - right).abs() < 1e-12, "overlap {beta} instead of {right} at {at}");
        let accepted = origins[at - PROMPT.len()] == Origin::Accepted;
        position.judged += 1;
        position.accepted += u32::from(accepted);
        position.overlap += beta;
        position.variance += beta * (1.0 - beta);
        if !accepted {
            assert_eq!(origins[at - PROMPT.len()], Origin::Repair);
            return;
        }
    }
}

fn check(name: &str, run: &Run, gamma: usize) {
    let text = [&PROMPT[..], &run.ids()].concat();
    let origins: Vec<_> = run.output.tokens.iter().map(|&(_, origin)| origin).collect();
    let mut positions = vec![Position::default(); gamma];
    run.judgements.iter().for_each(|judgement| add(&mut positions, judgement, &text, &origins));
    for (index, position) in positions.iter().enumerate() {
        let n = f64::from(position.judged);
        let apart = (f64::from(position.accepted) - position.overlap) / n;
        let limit = DEVIATIONS * position.variance.sqrt() / n;
        println!(
            "{name}, position {index}: n {n}, mean overlap {:.4}, off by {apart:+.5}, limit {limit:.5}",
            position.overlap / n
        );
        assert!(n > 100.0, "{name}: position {index} was hardly reached");
        assert!(apart.abs() <= limit, "{name}, position {index}: off by {apart} where {limit} is allowed");
    }
    let ledger = &run.outcome.as_ref().unwrap().ledger;
    let sum = positions.iter().map(|position| position.overlap).sum::<f64>();
    assert_eq!(ledger.judged, positions.iter().map(|position| position.judged).sum::<u32>());
    assert_eq!(ledger.accepted, positions.iter().map(|position| position.accepted).sum::<u32>());
    assert!((ledger.overlap_sum - sum).abs() < 1e-6 * sum);
}

#[tokio::test]
async fn at_every_position_in_the_round_loop() {
    for gamma in [1, 3, 6] {
        let plan = plan(sampling(), SEED, gamma, TOKENS);
        let verifier = TableVerifier::new(target(), ExactRule, plan.verify_open());
        let drafters = Scripts::steady(Guess::Table(draft()));
        let run = run(&plan, verifier, Some(drafters), Collected::default()).await;
        check(&format!("draft length {gamma}"), &run, gamma);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_every_position_over_grpc() {
    let cluster = cluster(V, target(), draft()).await;
    let config = Config {
        verifiers: vec![cluster.verifier.address.to_string()],
        draft_workers: cluster.draft_workers.iter().map(|node| node.address.to_string()).collect(),
        ..patient()
    };
    // The orchestrator's own client of its workers, with the verdicts kept on the way.
    let pool = Pool::connect(&config, HealthSwitch::new()).unwrap();
    while pool.states().1.iter().any(|worker| !worker.ready) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for kind in [v1::DrafterKind::Model, v1::DrafterKind::Ngram] {
        for gamma in [1, 4] {
            let plan = plan(sampling(), SEED + 1, gamma, TOKENS);
            let verifier = pool.open_verifier(&plan.verify_open()).await.unwrap();
            let run = run(&plan, verifier, Some(pool.drafters(kind)), Collected::default()).await;
            check(&format!("{kind:?}, draft length {gamma}"), &run, gamma);
        }
    }
}
