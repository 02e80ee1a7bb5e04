//! What a terminal is told: colours, and text made safe for it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// In a terminal, unless NO_COLOR is set or TERM is dumb.
    Auto,
    /// Also into files and pipes.
    Always,
    /// Not at all.
    Never,
}

impl ColorChoice {
    /// Whether to colour a stream that is, or is not, a terminal.
    pub(crate) fn enabled(self, terminal: bool) -> bool {
        self.enabled_with(terminal, |name| std::env::var_os(name))
    }

    fn enabled_with(self, terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            // no-color.org: set and not empty.
            Self::Auto => {
                terminal
                    && variable("NO_COLOR").is_none_or(|value| value.is_empty())
                    && variable("TERM").is_none_or(|value| value != "dumb")
            }
        }
    }
}

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Dim,
    Green,
    Yellow,
    Cyan,
}

impl Style {
    fn sequence(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "\x1b[2m",
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Cyan => "\x1b[36m",
        }
    }

    /// The text in this style if `color`, and reset behind it: whatever is cut off later, the terminal is left clean.
    pub(crate) fn paint(self, text: &str, color: bool) -> String {
        if color && self != Self::Plain && !text.is_empty() {
            format!("{}{text}\x1b[0m", self.sequence())
        } else {
            text.to_owned()
        }
    }
}

/// The text with its control characters made visible, all but line feed and tab: a model may write anything, and
/// a terminal would obey.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            // The control pictures follow the order of the control characters.
            '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{2426}'),
            '\x7f' => '\u{2421}',
            c if c.is_control() => '\u{2426}',
            c => c,
        })
        .collect()
}

/// Whether an output error only says that the reader has left, as `head` does: the end of the work, not a failure.
pub(crate) fn reader_left(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Writes to standard output; a reader that has left is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if !reader_left(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Writes to standard error. There is nobody left to tell when that fails.
pub(crate) fn note(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Where bars and spinners are drawn: standard error if it is a terminal and `wanted`, else nowhere.
pub(crate) fn progress(wanted: bool) -> MultiProgress {
    let target = if wanted { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    MultiProgress::with_draw_target(target)
}

/// A spinner that says what is waited for, with the seconds so far.
pub(crate) fn spinner(progress: &MultiProgress, message: impl Into<String>) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}")
        // The template is a constant; were it wrong, the plain spinner would do.
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let spinner = progress.add(ProgressBar::new_spinner().with_style(style).with_message(message.into()));
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_choice_terminal_and_environment() {
        let auto = |terminal, variables: &[(&str, &str)]| {
            ColorChoice::Auto.enabled_with(terminal, |name| {
                variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).into())
            })
        };
        assert!(auto(true, &[]));
        assert!(auto(true, &[("NO_COLOR", ""), ("TERM", "xterm")]));
        assert!(!auto(false, &[]));
        assert!(!auto(true, &[("NO_COLOR", "1")]));
        assert!(!auto(true, &[("TERM", "dumb")]));
        let no_color = |name: &str| (name == "NO_COLOR").then(|| "1".into());
        assert!(ColorChoice::Always.enabled_with(false, no_color));
        assert!(!ColorChoice::Never.enabled_with(true, |_| None));
    }

    #[test]
    fn a_terminal_is_never_commanded_by_a_model() {
        assert_eq!(harmless("a\x1b[2J\tb\r\n\x7f\u{9b}"), "a␛[2J\tb␍\n␡␦");
        assert_eq!(harmless("größer 漢字 🙂"), "größer 漢字 🙂");
    }

    #[test]
    fn paint_resets_and_leaves_plain_text_alone() {
        assert_eq!(Style::Green.paint("x", true), "\x1b[32mx\x1b[0m");
        for (style, text, color) in
            [(Style::Green, "x", false), (Style::Plain, "x", true), (Style::Green, "", true)]
        {
            assert_eq!(style.paint(text, color), text);
        }
    }
}
