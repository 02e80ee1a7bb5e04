//! What must hold of the ledger of any answer, whatever happened on its way.

use foretoken_proto::v1;
use foretoken_testkit::client::Answer;

/// The stages in the order of the proto.
#[must_use]
pub fn parts(stages: &v1::Stages) -> [u64; 8] {
    let v1::Stages { draft_ns, net_ns, queue_ns, batch_wait_ns, pass_ns, own_ns, client_ns, recovery_ns } =
        *stages;
    [draft_ns, net_ns, queue_ns, batch_wait_ns, pass_ns, own_ns, client_ns, recovery_ns]
}

/// The stretch that they make up, nanoseconds.
#[must_use]
pub fn sum(stages: &v1::Stages) -> u64 {
    parts(stages).iter().sum()
}

/// Everything that holds of any answer to a request that wanted its rounds.
///
/// # Panics
/// If something does not.
pub fn check(answer: &Answer) {
    let ledger = answer.ledger();
    let stages = ledger.stages.as_ref().expect("the stages are told");
    assert_eq!(sum(stages) / 1000, ledger.wall_us, "{ledger:?}");

    // The rounds are the ledger, round by round.
    let rounds = &answer.finished.rounds;
    assert!(!rounds.is_empty());
    let (first, rest) = rounds.split_first().expect("there are rounds");
    assert_eq!(first.kind(), v1::round::Kind::Prefill);
    assert_eq!(first.stages.as_ref(), ledger.first.as_ref());
    let total = rest.iter().map(|round| parts(round.stages.as_ref().expect("the stages are told"))).fold(
        [0; 8],
        |mut sum, round| {
            sum.iter_mut().zip(round).for_each(|(sum, part)| *sum += part);
            sum
        },
    );
    assert_eq!(total, parts(stages), "{rounds:?}");
    let count = |of: fn(&v1::Round) -> u32| rounds.iter().map(of).sum::<u32>();
    assert_eq!(count(|round| round.committed), ledger.output_tokens);
    assert_eq!(count(|round| round.passes), ledger.target_passes);
    assert_eq!(count(|round| round.accepted), ledger.accepted);
    assert_eq!(count(|round| round.drafted), ledger.drafted);
    for (round, next) in rounds.iter().zip(rest) {
        let end = round.began_us + sum(round.stages.as_ref().expect("the stages are told")) / 1000;
        assert!(next.began_us.abs_diff(end) <= 1, "{round:?} then {next:?}");
    }

    // Tokens and positions.
    assert_eq!(ledger.accepted + ledger.repair + ledger.bonus + ledger.plain, ledger.output_tokens);
    assert!(ledger.accepted <= ledger.drafted);
    let at = |of: fn(&v1::Position) -> u32| ledger.positions.iter().map(of).sum::<u32>();
    assert_eq!(at(|position| position.drafted), ledger.drafted);
    assert_eq!(at(|position| position.accepted), ledger.accepted);
    assert_eq!(at(|position| position.judged), ledger.judged);
    let overlap: f64 = ledger.positions.iter().map(|position| position.overlap_sum).sum();
    assert!((overlap - ledger.overlap_sum).abs() < 1e-9);

    // Both forms of the gain.
    let Some(step) = ledger.plain_step_ns else { panic!("no plain step was learnt: {ledger:?}") };
    let (step, after_first) = (step as f64 / 1e9, f64::from(ledger.output_tokens) - 1.0);
    let gain = after_first * step - sum(stages) as f64 / 1e9;
    let rounds_passes = f64::from(ledger.target_passes) - 1.0;
    let longer =
        (stages.pass_ns + stages.queue_ns + stages.batch_wait_ns) as f64 / 1e9 - rounds_passes * step;
    let moved = stages.draft_ns + stages.net_ns + stages.own_ns + stages.client_ns + stages.recovery_ns;
    let by_parts = (after_first - rounds_passes) * step - longer - moved as f64 / 1e9;
    for told in [gain, by_parts] {
        assert!(
            (told - ledger.gain_seconds.expect("the gain is told")).abs() < 1e-6,
            "{told} is not {:?}",
            ledger.gain_seconds
        );
    }
}
