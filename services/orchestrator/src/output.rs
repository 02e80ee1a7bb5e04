//! Committed tokens on their way to the client: text, stop strings, events.

use foretoken_engine::conversation::TokenLogprobs;
use foretoken_engine::generate::{ClientGone, FinishReason, Output};
use foretoken_engine::ledger::Origin;
use foretoken_proto::v1;
use foretoken_text::{Detokenizer, StopMatcher};
use tokio::sync::mpsc;
use tonic::Status;

use crate::account::wire_origin;

/// What a Generate stream carries.
pub type Event = Result<v1::GenerateResponse, Status>;

/// Turns tokens into text and events.
///
/// A token's text is what it lets out: nothing while a character or a possible stop string is incomplete,
/// and with its successor all that was held back. A token that ends the answer has no text of its own. The texts of
/// all tokens make up the answer.
#[derive(Debug)]
pub struct TextOutput {
    detokenizer: Detokenizer,
    stops: StopMatcher,
    stop_ids: Vec<u32>,
    sample: u32,
    pending: Vec<v1::Token>,
    stopped: bool,
    events: mpsc::Sender<Event>,
}

impl TextOutput {
    /// An output into `events`.
    #[must_use]
    pub fn new(detokenizer: Detokenizer, stops: StopMatcher, events: mpsc::Sender<Event>) -> Self {
        let (stop_ids, pending) = (Vec::new(), Vec::new());
        Self { detokenizer, stops, stop_ids, sample: 0, pending, stopped: false, events }
    }

    /// The same for one of several samples, whose answer ends at `stop_ids`.
    #[must_use]
    pub fn of_sample(self, sample: u32, stop_ids: Vec<u32>) -> Self {
        Self { sample, stop_ids, ..self }
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
    fn push(&mut self, token: u32, origin: Origin, logprobs: Option<TokenLogprobs>) -> bool {
        let mut text = String::new();
        if !self.stop_ids.contains(&token) {
            let step = self.stops.push(self.detokenizer.push(token));
            text.push_str(step.release);
            self.stopped |= step.stopped;
        }
        let origin = wire_origin(origin).into();
        self.pending.push(v1::Token { id: token, text, origin, logprobs: logprobs.map(Into::into) });
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
        let event = Some(v1::generate_response::Event::Tokens(tokens));
        let event = v1::GenerateResponse { event, sample: self.sample };
        self.events.send(Ok(event)).await.map_err(|_| ClientGone)
    }
}
