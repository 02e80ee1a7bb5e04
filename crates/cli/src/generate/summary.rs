//! The closing table: what the answer cost and what the drafts saved. It is the legend of the colours, too.

use std::time::Duration;

use foretoken_proto::v1::{Ledger, SpeculationOff, Started};

use super::stream::{Answer, Complete, End, Origin, Sample};
use super::verdict::{break_even, per_saved_pass, spent, verdict};
use crate::rounds::Rule;
use crate::terminal::{Style, harmless};

/// Width of the column of names.
const NAMES: usize = 12;

/// The table below an answer, or what to say of one that broke off; `legend` explains the colours of the text above.
pub(crate) fn summary(answer: &Answer, color: bool, legend: bool) -> String {
    match &answer.end {
        End::Complete => tables(answer, color, legend),
        End::Interrupted(_) => {
            let count = answer.token_count();
            format!("\ninterrupted after {count} token{}\n", if count == 1 { "" } else { "s" })
        }
        // The error has the last word, on a line of its own.
        End::Failed(_) if answer.token_count() > 0 => "\n".to_owned(),
        End::Failed(_) | End::ReaderLeft | End::Unwritable(_) => String::new(),
    }
}

/// The table of each sample.
fn tables(answer: &Answer, color: bool, legend: bool) -> String {
    let several = answer.samples.len() > 1;
    let samples = answer.samples.iter().enumerate();
    samples
        .filter_map(|(index, sample)| {
            let complete = sample.complete.as_ref()?;
            let number = several.then(|| ("sample", (index + 1).to_string()));
            Some(table(answer, sample, complete, number, (color, legend)))
        })
        .collect()
}

fn table(
    answer: &Answer,
    sample: &Sample,
    complete: &Complete,
    number: Option<(&'static str, String)>,
    (color, legend): (bool, bool),
) -> String {
    let ledger = &complete.ledger;
    let mut rows: Vec<_> = number.into_iter().collect();
    rows.extend([
        ("tokens", tokens(ledger, color && legend)),
        ("target", passes(ledger)),
        ("acceptance", acceptance(ledger)),
        ("draft link", bytes_both_ways(ledger.draft_bytes_up, ledger.draft_bytes_down)),
        ("verify link", bytes_both_ways(ledger.verify_bytes_up, ledger.verify_bytes_down)),
        ("time", times(answer, sample)),
    ]);
    rows.extend(per_saved_pass(ledger).map(|moved| ("moved", moved)));
    rows.extend(spent(ledger).map(|spent| ("spent", spent)));
    rows.extend(verdict(ledger).map(|verdict| ("verdict", verdict)));
    rows.extend(break_even(ledger).map(|distance| ("break-even", distance)));
    rows.push(("drafter", harmless(&complete.drafter)));
    rows.extend(complete.speculation_off.iter().map(|off| ("", speculation_off(off))));
    if let Some(started) = &answer.started {
        rows.extend(rule(started).map(|rule| ("rule", rule)));
        rows.push(("seed", started.seed.to_string()));
    }
    let rows = rows.iter().map(|(name, value)| row(name, value, color));
    ["\n".to_owned()].into_iter().chain(rows).collect()
}

/// A line of the table.
pub(super) fn row(name: &str, value: &str, color: bool) -> String {
    format!("{}{value}\n", Style::Dim.paint(&format!("{name:NAMES$}"), color))
}

/// The rule, and what the seed is worth under it; none of a later version.
fn rule(started: &Started) -> Option<String> {
    let worth = if started.reproducible {
        "the seed gives this text again, whoever drafts"
    } else {
        "the seed gives this text again with the same drafts only"
    };
    Rule::of_wire(started.rule()).map(|rule| format!("{}: {worth}", rule.name()))
}

fn tokens(ledger: &Ledger, color: bool) -> String {
    let parts = [
        (Origin::Accepted, ledger.accepted, "accepted"),
        (Origin::Repair, ledger.repair, "repair"),
        (Origin::Bonus, ledger.bonus, "bonus"),
        (Origin::Plain, ledger.plain, "plain"),
    ];
    let parts = parts.map(|(origin, count, name)| origin.style().paint(&format!("{count} {name}"), color));
    format!("{} = {}", ledger.output_tokens, parts.join(" + "))
}

fn passes(ledger: &Ledger) -> String {
    let (passes, saved) = (ledger.target_passes, ledger.saved_passes);
    let share = percent(f64::from(saved), f64::from(ledger.output_tokens));
    format!("{passes} passes, {saved} saved ({share} of the passes of plain decoding)")
}

fn acceptance(ledger: &Ledger) -> String {
    if ledger.drafted == 0 {
        return "nothing was drafted".to_owned();
    }
    let (accepted, drafted) = (ledger.accepted, ledger.drafted);
    let mut text =
        format!("{} ({accepted} of {drafted} drafted tokens)", percent(accepted.into(), drafted.into()));
    if ledger.judged > 0 {
        let expected = percent(ledger.overlap_sum, ledger.judged.into());
        text.push_str(&format!(", expected {expected} of the {} judged", ledger.judged));
    }
    text
}

fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 {
        return "0 %".to_owned();
    }
    format!("{:.1} %", 100.0 * part / whole)
}

fn bytes_both_ways(up: u64, down: u64) -> String {
    format!("{} up, {} down", bytes(up), bytes(down))
}

fn bytes(count: u64) -> String {
    // Exact only below 2^53, far beyond what is shown.
    let value = count as f64;
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        _ => format!("{:.1} MB", value / 1e6),
    }
}

fn times(answer: &Answer, sample: &Sample) -> String {
    let Some(first) = answer.first_token else { return format!("{} in all", duration(answer.whole)) };
    let mut text = format!("first token {}, in all {}", duration(first), duration(answer.whole));
    let (more, rest) = (sample.tokens.len().saturating_sub(1), answer.whole.saturating_sub(first));
    if more > 0 && !rest.is_zero() {
        text.push_str(&format!(", then {:.1} tokens/s", more as f64 / rest.as_secs_f64()));
    }
    text
}

/// A time as people read it.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// Where and why nobody drafted.
pub(crate) fn speculation_off(off: &SpeculationOff) -> String {
    let until = off.until_token.map(|token| format!(" to {token}")).unwrap_or_default();
    format!("off from token {}{until}: {} ({})", off.at_token, harmless(&off.message), harmless(&off.reason))
}

#[cfg(test)]
mod tests {
    use super::super::stream::Token;
    use super::*;
    use foretoken_proto::v1::{Rule as WireRule, Stages};

    fn complete() -> Answer {
        let ledger = Ledger {
            output_tokens: 10,
            accepted: 6,
            repair: 2,
            bonus: 1,
            plain: 1,
            drafted: 8,
            target_passes: 4,
            saved_passes: 6,
            draft_bytes_up: 999,
            draft_bytes_down: 1_234,
            verify_bytes_up: 2_500_000,
            overlap_sum: 5.6,
            judged: 7,
            stages: Some(Stages { pass_ns: 80_000_000, draft_ns: 20_000_000, ..Stages::default() }),
            drafting_ns: 19_000_000,
            gain_seconds: Some(0.1),
            break_even_seconds: Some(0.02),
            ..Ledger::default()
        };
        let off = SpeculationOff {
            at_token: 8,
            reason: "DRAFTER_LOST".to_owned(),
            message: "it broke off".to_owned(),
            until_token: Some(9),
        };
        Answer {
            started: Some(Started { seed: 42, rule: WireRule::Token.into(), ..Started::default() }),
            samples: vec![Sample {
                tokens: vec![
                    Token { id: 1, text: "x".to_owned(), origin: Origin::Plain, logprobs: None };
                    10
                ],
                complete: Some(Complete {
                    stopped: true,
                    ledger,
                    drafter: "ngram".to_owned(),
                    speculation_off: vec![off],
                    rounds: Vec::new(),
                }),
            }],
            end: End::Complete,
            first_token: Some(Duration::from_millis(250)),
            whole: Duration::from_millis(1_150),
        }
    }

    #[test]
    fn the_table_tells_what_it_cost_and_saved() {
        let expected = "
tokens      10 = 6 accepted + 2 repair + 1 bonus + 1 plain
target      4 passes, 6 saved (60.0 % of the passes of plain decoding)
acceptance  75.0 % (6 of 8 drafted tokens), expected 80.0 % of the 7 judged
draft link  999 B up, 1.2 kB down
verify link 2.5 MB up, 0 B down
time        first token 250 ms, in all 1.15 s, then 10.0 tokens/s
spent       pass 80.0 %, draft 20.0 % of 100 ms
verdict     speculation saved 50 % of the wall time (100 ms); moving data cost 1 % (1.0 ms)
break-even  drafts like these pay up to 20 ms of round trip, both links together
drafter     ngram
            off from token 8 to 9: it broke off (DRAFTER_LOST)
rule        token: the seed gives this text again with the same drafts only
seed        42
";
        assert_eq!(summary(&complete(), false, false), expected);
    }

    #[test]
    fn several_samples_have_a_table_each() {
        let mut answer = complete();
        answer.samples.extend(complete().samples);
        let text = summary(&answer, false, false);
        assert!(
            text.starts_with("\nsample      1\ntokens ") && text.contains("\n\nsample      2\n"),
            "{text}"
        );
    }

    #[test]
    fn the_line_of_tokens_is_the_legend() {
        let text = summary(&complete(), true, true);
        assert!(text.contains("\x1b[32m6 accepted\x1b[0m + \x1b[33m2 repair\x1b[0m"), "{text}");
        assert!(!summary(&complete(), true, false).contains("\x1b[32m"));
    }

    #[test]
    fn an_answer_without_drafts_or_tokens_has_a_table_too() {
        let mut answer = complete();
        answer.samples[0].tokens.clear();
        answer.first_token = None;
        answer.samples[0].complete.as_mut().unwrap().ledger = Ledger::default();
        let text = summary(&answer, false, false);
        assert!(text.contains("nothing was drafted") && text.contains("1.15 s in all"), "{text}");
        assert!(text.contains("0 saved (0 %"), "{text}");
    }
}
