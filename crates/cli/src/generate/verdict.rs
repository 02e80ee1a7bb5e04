//! Where an answer's time went, and whether speculation was worth it: two lines of the closing table.

use foretoken_proto::v1::{Ledger, Stages};

/// The stages of a stretch of time by name, in the order in which a round has them, nanoseconds.
pub(super) fn stages(stages: &Stages) -> [(&'static str, u64); 8] {
    [
        ("client", stages.client_ns),
        ("recovery", stages.recovery_ns),
        ("draft", stages.draft_ns),
        ("net", stages.net_ns),
        ("queue", stages.queue_ns),
        ("batch wait", stages.batch_wait_ns),
        ("pass", stages.pass_ns),
        ("own", stages.own_ns),
    ]
}

/// The whole stretch, nanoseconds.
pub(super) fn whole(parts: &Stages) -> u64 {
    stages(parts).iter().map(|(_, nanos)| nanos).sum()
}

/// Where the time between first and last token went, the longest first; none where there was no such time.
pub(super) fn spent(ledger: &Ledger) -> Option<String> {
    let parts = ledger.stages.as_ref()?;
    let whole = whole(parts);
    if whole == 0 {
        return None;
    }
    let mut parts = stages(parts);
    parts.sort_by_key(|&(_, nanos)| std::cmp::Reverse(nanos));
    let parts: Vec<_> = parts
        .iter()
        .map(|&(name, nanos)| (name, 100.0 * nanos as f64 / whole as f64))
        .filter(|&(_, percent)| percent >= 0.05)
        .map(|(name, percent)| format!("{name} {percent:.1} %"))
        .collect();
    Some(format!("{} of {}", parts.join(", "), time(whole as f64 / 1e9)))
}

/// Whether it was worth it, in words; none where nothing was drafted or nothing is known to compare with.
pub(super) fn verdict(ledger: &Ledger) -> Option<String> {
    let gain = ledger.gain_seconds.filter(|_| ledger.drafted > 0)?;
    let parts = ledger.stages.as_ref()?;
    let wall = whole(parts) as f64 / 1e9;
    if wall == 0.0 {
        return None;
    }
    // Plain decoding would have taken so long.
    let plain = wall + gain;
    let moving = (parts.net_ns + parts.draft_ns.saturating_sub(ledger.drafting_ns)) as f64 / 1e9;
    let worth = if gain >= 0.0 {
        format!("speculation saved {:.0} % of the wall time ({})", 100.0 * gain / plain, time(gain))
    } else {
        format!("speculation lost {:.0} % against plain decoding ({})", -100.0 * gain / plain, time(-gain))
    };
    Some(format!("{worth}; moving data cost {:.0} % ({})", 100.0 * moving / wall, time(moving)))
}

/// What moving data came to for each pass that it saved; none where none was saved.
pub(super) fn per_saved_pass(ledger: &Ledger) -> Option<String> {
    let bytes =
        ledger.draft_wire_up + ledger.draft_wire_down + ledger.verify_wire_up + ledger.verify_wire_down;
    let saved = u64::try_from(ledger.saved_passes).ok().filter(|&saved| saved > 0 && bytes > 0)?;
    Some(format!("{bytes} B on the wire, {} B for each pass saved", bytes / saved))
}

/// From where on drafting would not pay; none without blocks.
pub(super) fn break_even(ledger: &Ledger) -> Option<String> {
    let seconds = ledger.break_even_seconds?;
    Some(if seconds > 0.0 {
        format!("drafts like these pay up to {} of round trip, both links together", time(seconds))
    } else {
        "drafts like these do not pay at any distance".to_owned()
    })
}

/// Seconds as people read them.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.01 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.001 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(gain: f64) -> Ledger {
        Ledger {
            drafted: 4,
            stages: Some(Stages {
                draft_ns: 20_000_000,
                net_ns: 5_000_000,
                pass_ns: 74_990_000,
                own_ns: 10_000,
                ..Stages::default()
            }),
            drafting_ns: 15_000_000,
            gain_seconds: Some(gain),
            break_even_seconds: Some(gain),
            ..Ledger::default()
        }
    }

    #[test]
    fn it_is_told_what_was_saved_and_what_moving_cost() {
        let won = ledger(0.1);
        assert_eq!(spent(&won).unwrap(), "pass 75.0 %, draft 20.0 %, net 5.0 % of 100 ms");
        assert_eq!(
            verdict(&won).unwrap(),
            "speculation saved 50 % of the wall time (100 ms); moving data cost 10 % (10 ms)"
        );
        assert_eq!(
            break_even(&won).unwrap(),
            "drafts like these pay up to 100 ms of round trip, both links together"
        );
    }

    #[test]
    fn a_loss_is_called_one() {
        let lost = ledger(-0.02);
        assert_eq!(
            verdict(&lost).unwrap(),
            "speculation lost 25 % against plain decoding (20 ms); moving data cost 10 % (10 ms)"
        );
        assert_eq!(break_even(&lost).unwrap(), "drafts like these do not pay at any distance");
    }

    #[test]
    fn nothing_is_claimed_without_drafts_or_measure() {
        assert_eq!(verdict(&Ledger { drafted: 0, ..ledger(0.1) }), None);
        assert_eq!(verdict(&Ledger { gain_seconds: None, ..ledger(0.1) }), None);
        assert_eq!((spent(&Ledger::default()), break_even(&Ledger::default())), (None, None));
    }

    #[test]
    fn bytes_are_set_against_what_they_saved() {
        let ledger = Ledger {
            saved_passes: 4,
            draft_wire_up: 100,
            draft_wire_down: 200,
            verify_wire_up: 300,
            verify_wire_down: 400,
            ..Ledger::default()
        };
        assert_eq!(per_saved_pass(&ledger).unwrap(), "1000 B on the wire, 250 B for each pass saved");
        assert_eq!(per_saved_pass(&Ledger { saved_passes: -1, ..ledger }), None);
    }

    #[test]
    fn times_have_the_digits_that_matter() {
        for (seconds, told) in [(2.0, "2.00 s"), (0.0123, "12 ms"), (0.00123, "1.2 ms"), (0.000_9, "900 µs")]
        {
            assert_eq!(time(seconds), told);
        }
    }
}
