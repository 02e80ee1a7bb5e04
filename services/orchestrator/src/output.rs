//! Committed tokens on their way to the client: text, stop strings, events.

use foretoken_engine::generate::{ClientGone, FinishReason, Output};
use foretoken_engine::ledger::Origin;
use foretoken_proto::v1;
use foretoken_text::{Detokenizer, StopMatcher};
use tokio::sync::mpsc;
use tonic::Status;

/// What a Generate stream carries.
pub type Event = Result<v1::GenerateResponse, Status>;

/// Turns tokens into text and events.
///
/// A token's text is what it lets out: nothing while a character or a possible stop string is incomplete,
/// and with its successor all that was held back. The texts of all tokens make up the answer.
#[derive(Debug)]
pub struct TextOutput {
    detokenizer: Detokenizer,
    stops: StopMatcher,
    pending: Vec<v1::Token>,
    stopped: bool,
    events: mpsc::Sender<Event>,
}

impl TextOutput {
    /// An output into `events`.
    #[must_use]
    pub fn new(detokenizer: Detokenizer, stops: StopMatcher, events: mpsc::Sender<Event>) -> Self {
        Self { detokenizer, stops, pending: Vec::new(), stopped: false, events }
    }

    /// Lets out what is still held back, as part of the last token.
    fn flush(&mut self) {
        let Some(last) = self.pending.last_mut() else { return };
        if self.stopped {
            return;
        }
        let step = self.stops.push(self.detokenizer.finish());
        last.text.push_str(step.release);
        if !step.stopped {
            last.text.push_str(self.stops.finish());
        }
    }
}

impl Output for TextOutput {
    fn push(&mut self, token: u32, origin: Origin) -> bool {
        let step = self.stops.push(self.detokenizer.push(token));
        let text = step.release.to_owned();
        self.stopped |= step.stopped;
        self.pending.push(v1::Token { id: token, text, origin: wire_origin(origin).into() });
        self.stopped
    }

    async fn emit(&mut self, finish: Option<FinishReason>) -> Result<(), ClientGone> {
        if finish.is_some() {
            self.flush();
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        let tokens = v1::Tokens { tokens: std::mem::take(&mut self.pending) };
        let event = v1::GenerateResponse { event: Some(v1::generate_response::Event::Tokens(tokens)) };
        self.events.send(Ok(event)).await.map_err(|_| ClientGone)
    }
}

fn wire_origin(origin: Origin) -> v1::Origin {
    match origin {
        Origin::Accepted => v1::Origin::Accepted,
        Origin::Repair => v1::Origin::Repair,
        Origin::Bonus => v1::Origin::Bonus,
        Origin::Plain => v1::Origin::Plain,
    }
}
