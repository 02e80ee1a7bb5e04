//! The text as it comes: in a terminal coloured by origin, elsewhere exactly as it is.

use std::collections::VecDeque;
use std::io::{self, Write};

use foretoken_proto::v1::Started;
use indicatif::ProgressBar;

use super::stream::{Origin, Token, View};
use crate::terminal::{Style, harmless};

impl Origin {
    /// The colour of text of this origin.
    pub(crate) fn style(self) -> Style {
        match self {
            Self::Accepted => Style::Green,
            Self::Repair => Style::Yellow,
            Self::Bonus => Style::Cyan,
            Self::Plain => Style::Plain,
        }
    }
}

/// Writes the text of tokens.
#[derive(Debug)]
pub(crate) struct TextWriter<W> {
    out: W,
    /// Mark each token's origin.
    color: bool,
    /// A terminal reads: control characters are shown, and the last line is ended.
    terminal: bool,
    /// Whether the last line is open.
    line_open: bool,
}

impl<W: Write> TextWriter<W> {
    pub(crate) fn new(out: W, color: bool, terminal: bool) -> Self {
        Self { out, color, terminal, line_open: false }
    }

    fn write(&mut self, tokens: &[Token]) -> io::Result<()> {
        let mut text = String::new();
        for token in tokens {
            let shown = if self.terminal { harmless(&token.text) } else { token.text.clone() };
            text.push_str(&token.origin.style().paint(&shown, self.color));
            if let Some(last) = shown.chars().last() {
                self.line_open = last != '\n';
            }
        }
        // One write for what belongs together, at once: tokens are for watching.
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Ends the last line for what follows in a terminal.
    fn finish(&mut self) -> io::Result<()> {
        if self.terminal { self.end_line() } else { Ok(()) }
    }

    fn end_line(&mut self) -> io::Result<()> {
        if self.line_open {
            self.line_open = false;
            self.out.write_all(b"\n")?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Says on a line of its own which of several samples follows.
    fn head(&mut self, sample: usize, samples: usize) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.out, "--- sample {} of {samples}", sample + 1)?;
        self.out.flush()
    }
}

/// A spinner until the first token, then the text, unless it is kept for the record.
#[derive(Debug)]
pub(crate) struct LiveView<W> {
    spinner: ProgressBar,
    /// `None` if the record is all that is to be printed.
    text: Option<TextWriter<W>>,
    /// Samples whose text is not yet shown whole, the first of them as it comes: what waits of each, and whether it is
    /// whole.
    waiting: VecDeque<(Vec<Token>, bool)>,
    samples: usize,
}

impl<W: Write> LiveView<W> {
    pub(crate) fn new(spinner: ProgressBar, text: Option<TextWriter<W>>, samples: usize) -> Self {
        Self { spinner, text, waiting: vec![(Vec::new(), false); samples].into(), samples }
    }

    /// The sample that is being shown.
    fn current(&self) -> usize {
        self.samples - self.waiting.len()
    }

    /// Says where a sample begins if there are several.
    fn begin_sample(&mut self) -> io::Result<()> {
        let (current, samples) = (self.current(), self.samples);
        match &mut self.text {
            Some(text) if samples > 1 && current < samples => text.head(current, samples),
            _ => Ok(()),
        }
    }

    /// Leaves the terminal ready for other output.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.spinner.finish_and_clear();
        self.text.as_mut().map_or(Ok(()), TextWriter::finish)
    }
}

impl<W: Write> View for LiveView<W> {
    fn started(&mut self, started: &Started) {
        let target = if started.target.is_empty() { "the target" } else { &started.target };
        let count = started.prompt_tokens;
        let plural = if count == 1 { "" } else { "s" };
        self.spinner.set_message(format!("{target} reads {count} prompt token{plural}"));
    }

    fn tokens(&mut self, sample: usize, tokens: &[Token]) -> io::Result<()> {
        let current = self.current();
        if self.text.is_some() && sample != current {
            if let Some((waiting, _)) = self.waiting.get_mut(sample.wrapping_sub(current)) {
                waiting.extend_from_slice(tokens);
            }
            return Ok(());
        }
        if self.text.is_some() && !self.spinner.is_finished() {
            self.spinner.finish_and_clear();
            self.begin_sample()?;
        }
        match &mut self.text {
            Some(text) => text.write(tokens),
            None => {
                self.spinner.inc(tokens.len() as u64);
                self.spinner.set_message(format!("{} tokens", self.spinner.position()));
                Ok(())
            }
        }
    }

    fn finished(&mut self, sample: usize) -> io::Result<()> {
        if let Some((_, whole)) = self.waiting.get_mut(sample.wrapping_sub(self.current())) {
            *whole = true;
        }
        while let Some((_, true)) = self.waiting.front() {
            self.waiting.pop_front();
            self.begin_sample()?;
            if let (Some(text), Some((waiting, _))) = (&mut self.text, self.waiting.front_mut()) {
                text.write(&std::mem::take(waiting))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, origin: Origin) -> Token {
        Token { id: 0, text: text.to_owned(), origin, logprobs: None }
    }

    fn written(tokens: &[Token], color: bool, terminal: bool) -> String {
        let mut out = Vec::new();
        let mut view =
            LiveView::new(ProgressBar::hidden(), Some(TextWriter::new(&mut out, color, terminal)), 1);
        for token in tokens {
            view.tokens(0, std::slice::from_ref(token)).unwrap();
        }
        view.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn origins_have_their_colours() {
        let tokens = [
            token("a", Origin::Plain),
            token(" b", Origin::Accepted),
            token("", Origin::Accepted),
            token(" c", Origin::Repair),
            token(" d", Origin::Bonus),
        ];
        assert_eq!(written(&tokens, true, true), "a\x1b[32m b\x1b[0m\x1b[33m c\x1b[0m\x1b[36m d\x1b[0m\n");
        assert_eq!(written(&tokens, false, true), "a b c d\n");
    }

    #[test]
    fn samples_are_shown_one_behind_the_other() {
        let mut out = Vec::new();
        let mut view = LiveView::new(ProgressBar::hidden(), Some(TextWriter::new(&mut out, false, false)), 3);
        let mut say = |sample, text| view.tokens(sample, &[token(text, Origin::Plain)]).unwrap();
        say(1, "x");
        say(0, "a");
        say(2, "m");
        say(0, "b");
        view.finished(2).unwrap();
        view.finished(0).unwrap();
        view.tokens(1, &[token("y", Origin::Plain)]).unwrap();
        view.finished(1).unwrap();
        view.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "--- sample 1 of 3\nab\n--- sample 2 of 3\nxy\n--- sample 3 of 3\nm");
    }

    #[test]
    fn a_pipe_gets_the_text_and_not_a_byte_more() {
        let tokens = [token("a\x1b[2J", Origin::Plain), token("b", Origin::Accepted)];
        assert_eq!(written(&tokens, false, false), "a\x1b[2Jb");
    }

    #[test]
    fn a_terminal_gets_whole_lines_and_no_commands() {
        assert_eq!(written(&[token("a\n", Origin::Plain), token("", Origin::Plain)], false, true), "a\n");
        assert_eq!(written(&[token("\x1b]0;x\x07", Origin::Plain)], false, true), "␛]0;x␇\n");
        assert_eq!(written(&[], false, true), "");
    }
}
