//! Stop strings: the answer ends before the first one that becomes complete.
//!
//! Text that may be the beginning of a stop string is held back until it is decided, and only that. The outcome is that
//! of reading the text byte by byte, so it does not depend on how the text was cut into pieces: the stop string that is
//! complete first ends the answer; of several complete at the same byte the longest does.

use crate::error::TextError;

/// At most this many stop strings.
pub const MAX_STOPS: usize = 16;
/// A stop string has at most this many bytes.
pub const MAX_STOP_BYTES: usize = 256;

/// Watches the text of one answer for its stop strings.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// Text released by the last call, then text held back.
    text: String,
    /// Where the held-back text starts.
    released: usize,
    stopped: bool,
}

/// What a piece of text led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopStep<'a> {
    /// Text that is now certain to belong to the answer.
    pub release: &'a str,
    /// A stop string is complete: nothing after `release` belongs to the answer.
    pub stopped: bool,
}

impl StopMatcher {
    /// A matcher for these stop strings; with none it passes everything on.
    ///
    /// # Errors
    /// More than [`MAX_STOPS`] stop strings, an empty one, or one longer than [`MAX_STOP_BYTES`].
    pub fn new(stops: Vec<String>) -> Result<Self, TextError> {
        let refuse = |detail| Err(TextError::Stop { detail });
        if stops.len() > MAX_STOPS {
            return refuse(format!("{} stop strings exceed the limit of {MAX_STOPS}", stops.len()));
        }
        for (index, stop) in stops.iter().enumerate() {
            if stop.is_empty() {
                return refuse(format!("stop string {index} is empty"));
            }
            if stop.len() > MAX_STOP_BYTES {
                let length = stop.len();
                return refuse(format!(
                    "stop string {index} has {length} bytes; the limit is {MAX_STOP_BYTES}"
                ));
            }
        }
        Ok(Self { stops, text: String::new(), released: 0, stopped: false })
    }

    /// Takes the next piece of text. After a stop nothing more is released.
    pub fn push(&mut self, text: &str) -> StopStep<'_> {
        self.text.drain(..self.released);
        self.released = 0;
        if self.stopped {
            return StopStep { release: "", stopped: true };
        }
        self.text.push_str(text);
        if let Some(start) = self.first_stop() {
            self.stopped = true;
            self.text.truncate(start);
        }
        self.released = if self.stopped { self.text.len() } else { self.undecided() };
        StopStep { release: self.text.get(..self.released).unwrap_or_default(), stopped: self.stopped }
    }

    /// Ends the answer: what was held back belongs to it after all.
    pub fn finish(&mut self) -> &str {
        self.text.drain(..self.released);
        self.released = self.text.len();
        &self.text
    }

    /// Where the stop string starts that is complete first.
    fn first_stop(&self) -> Option<usize> {
        let found = self
            .stops
            .iter()
            .filter_map(|stop| self.text.find(stop).map(|start| (start + stop.len(), start)));
        found.min().map(|(_, start)| start)
    }

    /// Where the longest suffix starts that is the beginning of a stop string.
    fn undecided(&self) -> usize {
        let bytes = self.text.as_bytes();
        let earliest = bytes.len().saturating_sub(MAX_STOP_BYTES - 1);
        let begins_a_stop = |start: &usize| {
            let suffix = bytes.get(*start..).unwrap_or_default();
            self.stops.iter().any(|stop| stop.as_bytes().starts_with(suffix))
        };
        (earliest..bytes.len()).find(begins_a_stop).unwrap_or(bytes.len())
    }
}
