//! `generate --trace`: an answer's rounds as a timeline, a line each.

use foretoken_proto::v1::round::Kind;
use foretoken_proto::v1::{Origin, Round, Stages};

use super::verdict::{stages, time, whole};
use crate::terminal::Style;

/// Cells of the longest round.
const WIDTH: u64 = 48;

/// How each stage is drawn: told apart without colour too.
const MARKS: [(&str, char, Style); 8] = [
    ("client", '_', Style::Dim),
    ("recovery", 'x', Style::Yellow),
    ("draft", '▒', Style::Cyan),
    ("net", '~', Style::Yellow),
    ("queue", '.', Style::Dim),
    ("batch wait", ':', Style::Dim),
    ("pass", '█', Style::Green),
    ("own", '|', Style::Plain),
];

/// The timeline; empty without rounds.
pub(super) fn timeline(rounds: &[Round], color: bool) -> String {
    let longest = rounds.iter().map(length).max().unwrap_or(0);
    if longest == 0 {
        return String::new();
    }
    let mut text = "\n".to_owned();
    for (number, round) in rounds.iter().enumerate() {
        let line = format!(
            "{number:>5} {:>8} {:>8}  {:<28} ",
            time(round.began_us as f64 / 1e6),
            time(length(round) as f64 / 1e9),
            what(round)
        );
        text.push_str(&Style::Dim.paint(&line, color));
        text.push_str(&bar(round.stages.as_ref(), longest, color));
        text.push('\n');
    }
    let legend: Vec<_> = MARKS
        .iter()
        .map(|(name, mark, style)| format!("{} {name}", style.paint(&mark.to_string(), color)))
        .collect();
    text.push_str(&format!(
        "{:>5} {:>8} {:>8}  {:<28} {}\n",
        "round",
        "began",
        "took",
        "",
        legend.join("  ")
    ));
    text
}

/// What a round was, in words.
fn what(round: &Round) -> String {
    match round.kind() {
        Kind::Prefill => "prompt read, 1 token".to_owned(),
        Kind::Block => {
            let closing = match round.closing() {
                Origin::Repair => " + repair",
                Origin::Bonus => " + bonus",
                // The block was cut where the answer ended.
                _ => "",
            };
            format!("{} of {} accepted{closing}", round.accepted, round.drafted)
        }
        Kind::Run | Kind::Unspecified => format!("{} plain", round.committed),
    }
}

fn length(round: &Round) -> u64 {
    round.stages.as_ref().map_or(0, whole)
}

/// The stages side by side. Borders are rounded, not lengths, so that rounding never adds up.
fn bar(parts: Option<&Stages>, longest: u64, color: bool) -> String {
    let Some(parts) = parts else { return String::new() };
    let cell =
        |nanos: u64| (u128::from(nanos) * u128::from(WIDTH) + u128::from(longest) / 2) / u128::from(longest);
    let mut bar = String::new();
    let mut before = 0;
    for ((_, nanos), (_, mark, style)) in stages(parts).into_iter().zip(MARKS) {
        let cells = cell(before + nanos) - cell(before);
        before += nanos;
        let cells: String = (0..cells).map(|_| mark).collect();
        bar.push_str(&style.paint(&cells, color));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(kind: Kind, pass_ms: u64, draft_ms: u64) -> Round {
        Round {
            kind: kind.into(),
            began_us: 1_500,
            stages: Some(Stages {
                pass_ns: pass_ms * 1_000_000,
                draft_ns: draft_ms * 1_000_000,
                ..Stages::default()
            }),
            drafted: 4,
            accepted: 3,
            committed: 4,
            closing: Origin::Repair.into(),
            ..Round::default()
        }
    }

    #[test]
    fn marks_are_in_the_order_of_the_stages() {
        let names = stages(&Stages::default()).map(|(name, _)| name);
        assert_eq!(MARKS.map(|(name, ..)| name), names);
    }

    #[test]
    fn a_line_for_each_round_and_the_longest_fills_the_width() {
        let rounds = [round(Kind::Prefill, 48, 0), round(Kind::Block, 12, 6), round(Kind::Run, 6, 0)];
        let text = timeline(&rounds, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[1].contains("prompt read") && lines[1].ends_with(&"█".repeat(48)), "{text}");
        assert!(lines[2].contains("3 of 4 accepted + repair"), "{text}");
        assert!(lines[2].ends_with(&format!(" {}{}", "▒".repeat(6), "█".repeat(12))), "{text}");
        assert!(lines[3].contains("4 plain") && lines[3].ends_with(&format!(" {}", "█".repeat(6))), "{text}");
        assert!(lines[4].contains("█ pass"), "{text}");
        assert_eq!(timeline(&[], false), "");
    }

    #[test]
    fn stages_too_short_to_see_take_no_room() {
        let mut thin = round(Kind::Block, 48, 0);
        let parts = thin.stages.as_mut().unwrap();
        (parts.own_ns, parts.net_ns, parts.queue_ns) = (100_000, 100_000, 100_000);
        let text = timeline(&[thin], false);
        assert_eq!(
            text.lines().nth(1).unwrap().chars().filter(|&c| c == '█' || c == '|').count(),
            48,
            "{text}"
        );
    }
}
