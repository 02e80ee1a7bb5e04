//! Follows one answer from the sending of the request to its end, whichever end that is.

use std::future::Future;
use std::io;
use std::time::Duration;

use foretoken_proto::v1::generate_response::Event;
use foretoken_proto::v1::{
    FinishReason, GenerateResponse, Ledger, Origin as WireOrigin, SpeculationOff, Started, Tokens,
};
use serde::Serialize;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::failure::CallError;
use crate::interrupt::Signal;
use crate::terminal::reader_left;

/// How a token came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Origin {
    Accepted,
    Repair,
    Bonus,
    Plain,
}

/// A token of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Token {
    pub(super) id: u32,
    /// The text released by it; empty while a character or a possible stop string is incomplete.
    pub(super) text: String,
    pub(super) origin: Origin,
}

/// What came, and how it ended.
#[derive(Debug)]
pub(super) struct Answer {
    /// What the service said before the first token.
    pub(super) started: Option<Started>,
    pub(super) tokens: Vec<Token>,
    pub(super) end: End,
    /// From the sending of the request to the first token.
    pub(super) first_token: Option<Duration>,
    /// From the sending of the request to the end.
    pub(super) whole: Duration,
}

/// How an answer ended.
#[derive(Debug)]
pub(super) enum End {
    /// Whole.
    Complete(Box<Complete>),
    /// By a signal to this process.
    Interrupted(Signal),
    /// Whoever read our output has left.
    ReaderLeft,
    /// Our output could not be written.
    Unwritable(io::Error),
    /// By the service or the way to it.
    Failed(CallError),
}

/// What the service says at the end of a whole answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Complete {
    /// Whether an end-of-text token or a stop string ended it; otherwise it is as long as it may be.
    pub(super) stopped: bool,
    pub(super) ledger: Ledger,
    pub(super) drafter: String,
    pub(super) speculation_off: Vec<SpeculationOff>,
}

/// Sees an answer while it comes.
pub(super) trait View {
    /// The request was taken.
    fn started(&mut self, started: &Started);

    /// More of the text.
    fn tokens(&mut self, tokens: &[Token]) -> io::Result<()>;
}

/// Makes the call and shows the answer to `view` until it ends or `interrupted` resolves. Dropping the call, which
/// every end does, cancels the request.
pub(super) async fn follow<S>(
    call: impl Future<Output = Result<S, Status>>,
    view: &mut impl View,
    interrupted: impl Future<Output = Signal>,
) -> Answer
where
    S: Stream<Item = Result<GenerateResponse, Status>> + Unpin,
{
    let mut follower =
        Follower { sent: Instant::now(), started: None, tokens: Vec::new(), first_token: None };
    let end = tokio::select! {
        signal = interrupted => End::Interrupted(signal),
        end = follower.run(call, view) => end,
    };
    let Follower { sent, started, tokens, first_token } = follower;
    Answer { started, tokens, end, first_token, whole: sent.elapsed() }
}

struct Follower {
    sent: Instant,
    started: Option<Started>,
    tokens: Vec<Token>,
    first_token: Option<Duration>,
}

impl Follower {
    async fn run<S>(&mut self, call: impl Future<Output = Result<S, Status>>, view: &mut impl View) -> End
    where
        S: Stream<Item = Result<GenerateResponse, Status>> + Unpin,
    {
        let mut events = match call.await {
            Ok(events) => events,
            Err(status) => return End::Failed((&status).into()),
        };
        loop {
            let event = match events.next().await {
                Some(Ok(response)) => response.event,
                Some(Err(status)) => return End::Failed((&status).into()),
                None => {
                    return End::Failed(CallError::protocol(
                        "the service ended the stream in the middle of the answer",
                    ));
                }
            };
            match event {
                Some(Event::Started(started)) => {
                    view.started(&started);
                    self.started = Some(started);
                }
                Some(Event::Tokens(tokens)) => {
                    if let Err(end) = self.take(tokens, view) {
                        return end;
                    }
                }
                Some(Event::Finished(finished)) => {
                    return complete(finished)
                        .unwrap_or_else(|message| End::Failed(CallError::protocol(message)));
                }
                // An event of a later version that this one can do without.
                None => {}
            }
        }
    }

    fn take(&mut self, tokens: Tokens, view: &mut impl View) -> Result<(), End> {
        let before = self.tokens.len();
        for token in tokens.tokens {
            let origin = match token.origin() {
                WireOrigin::Accepted => Origin::Accepted,
                WireOrigin::Repair => Origin::Repair,
                WireOrigin::Bonus => Origin::Bonus,
                WireOrigin::Plain => Origin::Plain,
                WireOrigin::Unspecified => {
                    let text = format!("token {} has an origin that this version does not know", token.id);
                    return Err(End::Failed(CallError::protocol(text)));
                }
            };
            self.tokens.push(Token { id: token.id, text: token.text, origin });
        }
        let new = &self.tokens[before..];
        if !new.is_empty() {
            self.first_token.get_or_insert_with(|| self.sent.elapsed());
        }
        view.tokens(new)
            .map_err(|error| if reader_left(&error) { End::ReaderLeft } else { End::Unwritable(error) })
    }
}

fn complete(finished: foretoken_proto::v1::Finished) -> Result<End, &'static str> {
    let stopped = match finished.finish_reason() {
        FinishReason::Stop => true,
        FinishReason::Length => false,
        FinishReason::Unspecified => {
            return Err("the service gave a finish reason that this version does not know");
        }
    };
    let ledger = finished.ledger.ok_or("the service finished without a ledger")?;
    let (drafter, speculation_off) = (finished.drafter, finished.speculation_off);
    Ok(End::Complete(Box::new(Complete { stopped, ledger, drafter, speculation_off })))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use foretoken_proto::v1::{Finished, Token as WireToken};
    use std::future::{pending, ready};

    /// An event as the service sends it.
    pub(in crate::generate) fn event(event: Event) -> Result<GenerateResponse, Status> {
        Ok(GenerateResponse { event: Some(event) })
    }

    pub(in crate::generate) fn tokens(
        tokens: &[(u32, &str, WireOrigin)],
    ) -> Result<GenerateResponse, Status> {
        let wire = |&(id, text, origin): &(u32, &str, WireOrigin)| WireToken {
            id,
            text: text.to_owned(),
            origin: origin.into(),
        };
        event(Event::Tokens(Tokens { tokens: tokens.iter().map(wire).collect() }))
    }

    /// Keeps what it is shown; fails from a given token on.
    #[derive(Default)]
    pub(in crate::generate) struct Seen {
        text: String,
        started: bool,
        fails: Option<io::ErrorKind>,
    }

    impl View for Seen {
        fn started(&mut self, _: &Started) {
            self.started = true;
        }

        fn tokens(&mut self, tokens: &[Token]) -> io::Result<()> {
            if let Some(kind) = self.fails {
                return Err(kind.into());
            }
            self.text.extend(tokens.iter().map(|token| token.text.as_str()));
            Ok(())
        }
    }

    pub(in crate::generate) async fn answer(
        events: Vec<Result<GenerateResponse, Status>>,
        view: &mut Seen,
    ) -> Answer {
        follow(ready(Ok(tokio_stream::iter(events))), view, pending()).await
    }

    pub(in crate::generate) fn started() -> Result<GenerateResponse, Status> {
        event(Event::Started(Started { seed: 7, prompt_tokens: 3, max_tokens: 9, ..Started::default() }))
    }

    pub(in crate::generate) fn finished(
        reason: FinishReason,
        ledger: Ledger,
    ) -> Result<GenerateResponse, Status> {
        event(Event::Finished(Finished {
            finish_reason: reason.into(),
            ledger: Some(ledger),
            drafter: "ngram".to_owned(),
            speculation_off: Vec::new(),
        }))
    }

    #[tokio::test]
    async fn a_whole_answer_is_collected_and_shown() {
        let ledger = Ledger { output_tokens: 3, ..Ledger::default() };
        let mut seen = Seen::default();
        let events = vec![
            started(),
            tokens(&[(1, "a", WireOrigin::Plain)]),
            Ok(GenerateResponse { event: None }),
            tokens(&[(2, "b", WireOrigin::Accepted), (3, "", WireOrigin::Bonus)]),
            finished(FinishReason::Stop, ledger),
        ];
        let answer = answer(events, &mut seen).await;
        assert!(seen.started);
        assert_eq!(seen.text, "ab");
        assert_eq!(answer.tokens.len(), 3);
        assert!(answer.first_token.unwrap() <= answer.whole);
        let End::Complete(complete) = answer.end else { panic!("{:?}", answer.end) };
        assert!(complete.stopped && complete.ledger == ledger && complete.drafter == "ngram");
    }

    #[tokio::test]
    async fn every_failure_keeps_what_came_before() {
        let first = || tokens(&[(1, "a", WireOrigin::Plain)]);
        for (last, told) in [
            (Some(Err(Status::unavailable("gone"))), "gone (UNAVAILABLE)"),
            (None, "in the middle of the answer"),
            (Some(tokens(&[(2, "b", WireOrigin::Unspecified)])), "token 2 has an origin"),
            (Some(event(Event::Finished(Finished::default()))), "finish reason"),
            (
                Some(event(Event::Finished(Finished {
                    finish_reason: FinishReason::Stop.into(),
                    ..Finished::default()
                }))),
                "without a ledger",
            ),
        ] {
            let answer =
                answer([Some(first()), last].into_iter().flatten().collect(), &mut Seen::default()).await;
            assert_eq!(answer.tokens[0].text, "a");
            let End::Failed(error) = answer.end else { panic!("{:?}", answer.end) };
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[tokio::test]
    async fn an_interrupt_ends_a_call_that_hangs() {
        type Events = tokio_stream::Iter<std::vec::IntoIter<Result<GenerateResponse, Status>>>;
        let call = pending::<Result<Events, Status>>();
        let answer = follow(call, &mut Seen::default(), ready(Signal::Interrupt)).await;
        assert!(matches!(answer.end, End::Interrupted(Signal::Interrupt)) && answer.first_token.is_none());
    }

    #[tokio::test]
    async fn a_reader_that_left_is_no_failure() {
        for (kind, quiet) in [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::StorageFull, false)] {
            let mut seen = Seen { fails: Some(kind), ..Seen::default() };
            let answer = answer(vec![tokens(&[(1, "a", WireOrigin::Plain)])], &mut seen).await;
            assert_eq!(matches!(answer.end, End::ReaderLeft), quiet);
            assert_eq!(matches!(answer.end, End::Unwritable(_)), !quiet);
        }
    }
}
