//! Answers of the three services against enumerated probabilities: every sampling parameter, every drafter, every rule,
//! and drafts that stop where they are unsure.

use std::sync::Arc;

use foretoken_acceptance::Sampling;
use foretoken_proto::v1;
use foretoken_testkit::client::{Answer, ids_request};
use foretoken_tests::stats::holm;

use crate::clocked::{ALARM, Counts, PERIOD, PROMPT, V, draft, probabilities, target};
use crate::services::{AT_ONCE, answers, cluster};

/// Requests of a setting; their draft lengths go 1, 2, 3, 1, …
const STREAMS: usize = 9;
const SEQUENCES_IN_A_STREAM: usize = 4_480;
/// What a setting must reach at least.
pub(crate) const SEQUENCES: u64 = 40_000;
const LONGEST_DRAFT: usize = 3;

/// Of setting 0, stream 0; each other stream has its own. Fixed before the first run and never picked again.
const FIRST_SEED: u64 = 31_000;

/// Temperature, top-k, top-p, min-p; rule; least confidence.
pub(crate) type Setting = ((f64, u32, f64, f64), v1::Rule, f64);

const SETTINGS: [Setting; 19] = [
    ((0.7, 0, 1.0, 0.0), v1::Rule::Token, 0.0),
    ((1.0, 0, 1.0, 0.0), v1::Rule::Token, 0.0),
    ((1.3, 0, 1.0, 0.0), v1::Rule::Token, 0.0),
    ((1.0, 2, 1.0, 0.0), v1::Rule::Token, 0.0),
    ((1.0, 0, 0.8, 0.0), v1::Rule::Token, 0.0),
    ((1.0, 0, 1.0, 0.3), v1::Rule::Token, 0.0),
    ((0.7, 3, 0.9, 0.0), v1::Rule::Token, 0.0),
    ((1.3, 3, 0.95, 0.1), v1::Rule::Token, 0.0),
    ((0.7, 0, 1.0, 0.0), v1::Rule::Block, 0.0),
    ((1.0, 0, 1.0, 0.0), v1::Rule::Block, 0.0),
    ((1.3, 3, 0.95, 0.1), v1::Rule::Block, 0.0),
    ((0.7, 0, 1.0, 0.0), v1::Rule::Gumbel, 0.0),
    ((1.0, 0, 1.0, 0.0), v1::Rule::Gumbel, 0.0),
    ((1.3, 3, 0.95, 0.1), v1::Rule::Gumbel, 0.0),
    ((0.7, 0, 1.0, 0.0), v1::Rule::Token, 0.45),
    ((1.0, 0, 1.0, 0.0), v1::Rule::Token, 0.45),
    ((0.7, 0, 1.0, 0.0), v1::Rule::Block, 0.45),
    ((1.0, 0, 1.0, 0.0), v1::Rule::Block, 0.45),
    ((1.0, 0, 1.0, 0.0), v1::Rule::Gumbel, 0.45),
];

const DRAFTERS: [v1::DrafterKind; 3] =
    [v1::DrafterKind::Model, v1::DrafterKind::Ngram, v1::DrafterKind::None];

/// Who drafts: all by turns, but only a model where it stops at what it is unsure of.
fn drafters(min_confidence: f64) -> &'static [v1::DrafterKind] {
    if min_confidence > 0.0 { &DRAFTERS[..1] } else { &DRAFTERS }
}

/// What a setting's answers came to.
#[derive(Default)]
pub(crate) struct Sums {
    pub(crate) drafted: u32,
    pub(crate) accepted: u32,
    judged: u32,
    overlap: f64,
}

impl Sums {
    pub(crate) fn of(answers: &[Answer]) -> Self {
        answers.iter().map(Answer::ledger).fold(Self::default(), |sums, ledger| Self {
            drafted: sums.drafted + ledger.drafted,
            accepted: sums.accepted + ledger.accepted,
            judged: sums.judged + ledger.judged,
            overlap: sums.overlap + ledger.overlap_sum,
        })
    }

    pub(crate) fn acceptance(&self) -> String {
        match self.drafted {
            0 => "none".into(),
            drafted => format!("{:.3}", f64::from(self.accepted) / f64::from(drafted)),
        }
    }

    /// The acceptance is what was foretold, within five standard deviations: Σ min(p, q) by the token rule, Σ P by the
    /// block rule. The ledger has no Σ β(1 − β); by concavity it is at most n times what the mean β gives. What is
    /// accepted of a block by the block rule hangs together: its variance is at most γ times the sum of the positions'.
    /// Gumbel coupling foretells nothing.
    pub(crate) fn check(&self, rule: v1::Rule) {
        if rule == v1::Rule::Gumbel {
            assert_eq!((self.judged, self.overlap), (0, 0.0));
            return;
        }
        let n = f64::from(self.judged);
        let together = if rule == v1::Rule::Block { LONGEST_DRAFT as f64 } else { 1.0 };
        let deviation = (together * self.overlap * (1.0 - self.overlap / n)).max(0.0).sqrt();
        let apart = (f64::from(self.accepted) - self.overlap).abs();
        assert!(apart <= 5.0 * deviation, "{} accepted of {n}, expected {}", self.accepted, self.overlap);
    }
}

pub(crate) fn requests(
    setting: usize,
    wire: v1::Sampling,
    (_, rule, min_confidence): Setting,
    kind: v1::DrafterKind,
) -> impl Iterator<Item = v1::GenerateRequest> {
    (0..STREAMS).map(move |stream| v1::GenerateRequest {
        sampling: Some(wire.clone()),
        seed: Some(FIRST_SEED + (setting * STREAMS + stream) as u64),
        drafter: kind.into(),
        rule: rule.into(),
        min_confidence: Some(min_confidence),
        draft_len: Some((1 + stream % LONGEST_DRAFT) as u32),
        ..ids_request(&PROMPT, (SEQUENCES_IN_A_STREAM * PERIOD) as u32)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_follow_the_target() {
    let cluster = Arc::new(cluster(V, target(), draft()).await);
    let (mut names, mut p_values) = (Vec::new(), Vec::new());
    for setting in SETTINGS {
        let ((temperature, top_k, top_p, min_p), rule, min_confidence) = setting;
        let sampling = Sampling::new(temperature, top_k, top_p, min_p).unwrap();
        let wire = v1::Sampling { temperature, top_k, top_p: Some(top_p), min_p, ..v1::Sampling::default() };
        let probabilities = probabilities(&target(), &sampling);
        // All drafters of a setting at once: the verifier's passes mix their sessions.
        let first = p_values.len();
        let drafters = drafters(min_confidence);
        let all = drafters
            .iter()
            .enumerate()
            .flat_map(|(i, &kind)| requests(first + i, wire.clone(), setting, kind));
        let answers = answers(&cluster, all, AT_ONCE).await;
        for (kind, answers) in drafters.iter().zip(answers.chunks(STREAMS)) {
            let name = format!(
                "T {temperature} top-k {top_k} top-p {top_p} min-p {min_p} {rule:?} confidence {min_confidence} {kind:?}"
            );
            let mut counts = Counts::new();
            for answer in answers {
                counts.add(&answer.ids());
                assert_eq!(answer.finished.speculation_off, [], "{name} decoded plainly");
            }
            let sums = Sums::of(answers);
            let n = counts.total();
            let p_value = counts.test(&probabilities).p_value;
            println!("{name}: n {n}, p-value {p_value:.4}, acceptance {}", sums.acceptance());
            assert!(n >= SEQUENCES);
            assert_eq!(counts.impossible(&probabilities), 0, "{name}: a sequence of probability 0 came");
            if *kind == v1::DrafterKind::None {
                assert_eq!(sums.drafted, 0, "{name} drafted");
            } else {
                assert!(sums.accepted > 0, "{name} accepted nothing");
                sums.check(rule);
            }
            names.push(name);
            p_values.push(p_value);
        }
    }
    let alarms: Vec<_> = holm(&p_values, ALARM).into_iter().map(|i| (&names[i], p_values[i])).collect();
    assert!(alarms.is_empty(), "off the target: {alarms:?}");
    assert!(cluster.runtime.stats().shared_passes > 0, "no pass was shared between sessions");
}
