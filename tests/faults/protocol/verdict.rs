//! Verdicts and drafts are the numbers that the table, the rule and the keys give, bit for bit.

use foretoken_acceptance::{
    Distribution, Lattice, LatticeShape, Proposal, Sampling, overlap, repair, threshold,
};
use foretoken_proto::v1;
use foretoken_testkit::cluster::verifier;
use foretoken_testkit::table::{Table, TableModel, random_table};

use super::stream::{Verifying, keys, text, verify_open};
use crate::support::{VOCAB, target};

const PROMPT: [u32; 4] = [3, 1, 4, 1];

fn distribution(table: &Table, text: &[u32], sampling: &Sampling) -> Distribution {
    Distribution::from_logits(&TableModel::logits_of(&table(text)), sampling).unwrap()
}

/// A block as a draft model makes it.
fn drafted(table: &Table, sampling: &Sampling, gamma: usize, epoch: u64) -> (Vec<u32>, Vec<Lattice>) {
    let (mut tokens, mut q) = (PROMPT.to_vec(), Vec::new());
    for _ in 0..gamma {
        let mut lattice = Lattice::default();
        lattice.fill(&distribution(table, &tokens, sampling), LatticeShape::default());
        tokens.push(lattice.draw(keys().draft().word(tokens.len() as u64, epoch)));
        q.push(lattice);
    }
    (tokens.split_off(PROMPT.len()), q)
}

/// What a verifier must say of the block.
fn expected(
    p: &Table,
    sampling: &Sampling,
    tokens: &[u32],
    q: Option<&[Lattice]>,
    epoch: u64,
) -> v1::Verdict {
    let keys = keys().verifier();
    let mut text = PROMPT.to_vec();
    let mut verdict = v1::Verdict::default();
    for (i, &token) in tokens.iter().enumerate() {
        let p = distribution(p, &text, sampling);
        let q = q.map_or(Proposal::OneHot(token), |q| Proposal::Lattice(&q[i]));
        verdict.thresholds.push(threshold(&p, q, token));
        verdict.repairs.push(repair(&p, q, keys.repair().coin(text.len() as u64, epoch)));
        verdict.overlaps.push(overlap(&p, q));
        if verdict.thresholds.last() == Some(&0.0) {
            return verdict;
        }
        text.push(token);
    }
    let coin = keys.bonus().coin(text.len() as u64, epoch);
    verdict.bonus = Some(distribution(p, &text, sampling).draw(coin));
    verdict
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_is_what_the_rule_says_bit_for_bit() {
    let (p, q) = (random_table(1, VOCAB, 1), random_table(2, VOCAB, 1));
    let node = verifier(target(p.clone())).await;
    node.healthy().await;
    let channel = node.channel();
    let settings =
        [(1.0, 0, 1.0, 0.0), (0.7, 5, 1.0, 0.0), (1.3, 0, 0.8, 0.0), (1.0, 0, 1.0, 0.2), (0.0, 0, 1.0, 0.0)];
    let mut cut_short = 0;
    for (number, (temperature, top_k, top_p, min_p)) in settings.into_iter().enumerate() {
        let sampling = Sampling::new(temperature, top_k, top_p, min_p).unwrap();
        let open = verify_open(&format!("s{number}"), &PROMPT, 64, sampling);
        let (mut stream, _) = Verifying::open(&channel, open).await.unwrap();
        for epoch in 0..40 {
            let gamma = 1 + epoch as usize % 8;
            let (tokens, q) = drafted(&q, &Sampling::new(1.0, 0, 1.0, 0.0).unwrap(), gamma, epoch);
            // One-hot drafts and lattices by turns.
            let q = (epoch % 3 != 0).then_some(q);
            let wire = v1::Block { tokens: tokens.clone(), q: q.iter().flatten().map(Into::into).collect() };
            let ask = Some(v1::verify_frame::Ask::Block(wire));
            let frame = v1::VerifyFrame { text: Some(text(epoch + 1, epoch, &PROMPT, 4)), ask };
            let verdict = stream.verdict(frame).await;
            let expected = expected(&p, &sampling, &tokens, q.as_deref(), epoch);
            let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&verdict.thresholds), bits(&expected.thresholds), "{number} {epoch}");
            assert_eq!(bits(&verdict.overlaps), bits(&expected.overlaps), "{number} {epoch}");
            assert_eq!(verdict.repairs, expected.repairs, "{number} {epoch}");
            assert_eq!(verdict.bonus, expected.bonus, "{number} {epoch}");
            assert_eq!((verdict.seq, verdict.epoch), (epoch + 1, epoch));
            cut_short += usize::from(verdict.bonus.is_none());
        }
    }
    assert!(cut_short > 10, "hardly any token was impossible: {cut_short}");
}
