//! Answers drafted from a table of n-grams: what is sent as q is what was drawn from, so they follow the target and are
//! accepted as often as Σ min(p, q) says, also where the text's own counts are mixed in, and one-hot guesses with drawn
//! ones in a block.

use std::sync::Arc;

use foretoken_acceptance::Sampling;
use foretoken_draft_worker::Source;
use foretoken_draft_worker::ngram::Ngram;
use foretoken_engine::ngram::{NgramConfig, Table};
use foretoken_proto::v1;
use foretoken_testkit::ngrams;
use foretoken_testkit::vocabulary::letters;
use foretoken_tests::stats::holm;

use crate::clocked::{ALARM, Counts, V, probabilities, target};
use crate::served::{SEQUENCES, Sums, requests};
use crate::services::{AT_ONCE, answers, cluster_of};

/// Of the first setting's seeds; `served` has those before. Fixed before the first run and never picked again.
const FIRST_SETTING: usize = 100;

const SAMPLINGS: [(f64, u32, f64, f64); 3] = [(0.7, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (1.3, 3, 0.95, 0.1)];

/// A table of contexts up to two tokens, counted from a text in which every token follows every other, some more often.
fn table() -> Arc<Table> {
    let mut state = 1u32;
    let text: Vec<u32> = (0..4_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // The smaller of two, so that low ids come more often.
            ((state >> 20) % V as u32).min((state >> 27) % V as u32)
        })
        .collect();
    Arc::new(ngrams::table(3, &letters(V, false).unwrap(), &[&text]))
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_drafted_from_a_table_follow_the_target() {
    let config = NgramConfig::default();
    let drafters = [
        ("table", NgramConfig { max_places: 0, ..config }),
        // Runs of six tokens repeat now and then: both kinds of guess in one block.
        ("text and table", NgramConfig { min_match: 6, ..config }),
    ];
    let (mut names, mut p_values) = (Vec::new(), Vec::new());
    for (drafter, config) in drafters {
        let ngram = Ngram { config, table: Some(table()), ..Ngram::default() };
        let cluster = Arc::new(cluster_of(V, target(), vec![Source::Ngram(ngram)]).await);
        for (temperature, top_k, top_p, min_p) in SAMPLINGS {
            let sampling = Sampling::new(temperature, top_k, top_p, min_p).unwrap();
            let wire =
                v1::Sampling { temperature, top_k, top_p: Some(top_p), min_p, ..v1::Sampling::default() };
            let setting = FIRST_SETTING + names.len();
            let answers = answers(
                &cluster,
                requests(
                    setting,
                    wire,
                    ((temperature, top_k, top_p, min_p), v1::Rule::Token, 0.0),
                    v1::DrafterKind::Ngram,
                ),
                AT_ONCE,
            )
            .await;
            let name = format!("{drafter}, T {temperature} top-k {top_k} top-p {top_p} min-p {min_p}");
            let mut counts = Counts::new();
            for answer in &answers {
                counts.add(&answer.ids());
                assert_eq!(answer.finished.speculation_off, [], "{name} decoded plainly");
                assert_eq!(answer.finished.drafter, "ngram+table");
            }
            let right = probabilities(&target(), &sampling);
            let (sums, n) = (Sums::of(&answers), counts.total());
            let p_value = counts.test(&right).p_value;
            println!("{name}: n {n}, p-value {p_value:.4}, acceptance {}", sums.acceptance());
            assert!(n >= SEQUENCES);
            assert_eq!(counts.impossible(&right), 0, "{name}: a sequence of probability 0 came");
            assert!(sums.accepted > 0 && sums.accepted < sums.drafted);
            sums.check(v1::Rule::Token);
            names.push(name);
            p_values.push(p_value);
        }
    }
    let alarms: Vec<_> = holm(&p_values, ALARM).into_iter().map(|i| (&names[i], p_values[i])).collect();
    assert!(alarms.is_empty(), "off the target: {alarms:?}");
}
