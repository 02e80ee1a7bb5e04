//! Follows a request's answer from its sending to the end, whichever end that is. An answer has one sample or several.

use std::future::Future;
use std::io;
use std::time::Duration;

use foretoken_proto::v1::generate_response::Event;
use foretoken_proto::v1::{
    FinishReason, Finished, GenerateResponse, Ledger, Origin as WireOrigin, Round, SpeculationOff, Started,
    Token as WireToken, TokenLogprob, Tokens,
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
pub(crate) enum Origin {
    /// Drafted, and it stands.
    Accepted,
    /// In place of a draft that does not.
    Repair,
    /// Behind a block that stands whole.
    Bonus,
    /// Decoded without a draft.
    Plain,
}

/// A token of the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Token {
    pub(crate) id: u32,
    /// The text released by it; empty while a character or a possible stop string is incomplete.
    pub(crate) text: String,
    pub(crate) origin: Origin,
    /// Where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logprobs: Option<Logprobs>,
}

/// How likely a token was: after all parameters, and to the model itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Logprobs {
    logprob: f32,
    raw_logprob: f32,
    top: Vec<Alternative>,
    raw_top: Vec<Alternative>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Alternative {
    id: u32,
    logprob: f32,
}

/// One of the answers to a prompt.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) tokens: Vec<Token>,
    /// What the service said at its end.
    pub(crate) complete: Option<Complete>,
}

/// What came, and how it ended.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What the service said before the first token.
    pub(crate) started: Option<Started>,
    /// As many as were asked for.
    pub(crate) samples: Vec<Sample>,
    pub(crate) end: End,
    /// From the sending of the request to the first token.
    pub(crate) first_token: Option<Duration>,
    /// From the sending of the request to the end.
    pub(crate) whole: Duration,
}

/// How an answer ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Whole.
    Complete,
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
pub(crate) struct Complete {
    /// Whether an end-of-text token or a stop string ended it; otherwise it is as long as it may be.
    pub(crate) stopped: bool,
    pub(crate) ledger: Ledger,
    pub(crate) drafter: String,
    pub(crate) speculation_off: Vec<SpeculationOff>,
    /// Where they were asked for.
    pub(crate) rounds: Vec<Round>,
}

/// Sees an answer while it comes.
pub(crate) trait View {
    /// The request was taken.
    fn started(&mut self, started: &Started);

    /// More of a sample's text.
    fn tokens(&mut self, sample: usize, tokens: &[Token]) -> io::Result<()>;

    /// A sample is whole.
    fn finished(&mut self, sample: usize) -> io::Result<()>;
}

impl Answer {
    /// Tokens of all samples.
    pub(crate) fn token_count(&self) -> usize {
        self.samples.iter().map(|sample| sample.tokens.len()).sum()
    }
}

/// Makes the call for so many samples and shows the answer to `view` until it ends or `interrupted` resolves. Dropping the call, which
/// every end does, cancels the request.
pub(crate) async fn follow<S>(
    call: impl Future<Output = Result<S, Status>>,
    samples: usize,
    view: &mut impl View,
    interrupted: impl Future<Output = Signal>,
) -> Answer
where
    S: Stream<Item = Result<GenerateResponse, Status>> + Unpin,
{
    let samples = (0..samples).map(|_| Sample::default()).collect();
    let mut follower = Follower { sent: Instant::now(), started: None, samples, first_token: None };
    let end = tokio::select! {
        signal = interrupted => End::Interrupted(signal),
        end = follower.run(call, view) => end,
    };
    let Follower { sent, started, samples, first_token } = follower;
    Answer { started, samples, end, first_token, whole: sent.elapsed() }
}

struct Follower {
    sent: Instant,
    started: Option<Started>,
    samples: Vec<Sample>,
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
            let (index, event) = match events.next().await {
                Some(Ok(response)) => (response.sample as usize, response.event),
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
                    if let Err(end) = self.take(index, tokens, view) {
                        return end;
                    }
                }
                Some(Event::Finished(finished)) => {
                    if let Err(end) = self.finish(index, finished, view) {
                        return end;
                    }
                    if self.samples.iter().all(|sample| sample.complete.is_some()) {
                        return End::Complete;
                    }
                }
                // An event of a later version that this one can do without.
                None => {}
            }
        }
    }

    fn sample(&mut self, index: usize) -> Result<&mut Sample, End> {
        self.samples.get_mut(index).ok_or_else(|| {
            End::Failed(CallError::protocol(format!(
                "the service sent sample {index}, which nobody asked for"
            )))
        })
    }

    fn take(&mut self, index: usize, tokens: Tokens, view: &mut impl View) -> Result<(), End> {
        let sent = self.sent;
        let sample = self.sample(index)?;
        let before = sample.tokens.len();
        for mut token in tokens.tokens {
            let logprobs = logprobs(&mut token);
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
            sample.tokens.push(Token { id: token.id, text: token.text, origin, logprobs });
        }
        let new = &sample.tokens[before..];
        let shown = view.tokens(index, new).map_err(unwritten);
        if !new.is_empty() {
            self.first_token.get_or_insert_with(|| sent.elapsed());
        }
        shown
    }

    fn finish(&mut self, index: usize, finished: Finished, view: &mut impl View) -> Result<(), End> {
        let sample = self.sample(index)?;
        sample.complete =
            Some(complete(finished).map_err(|message| End::Failed(CallError::protocol(message)))?);
        view.finished(index).map_err(unwritten)
    }
}

fn unwritten(error: io::Error) -> End {
    if reader_left(&error) { End::ReaderLeft } else { End::Unwritable(error) }
}

fn logprobs(token: &mut WireToken) -> Option<Logprobs> {
    let wire = token.logprobs.take()?;
    let alternatives = |top: Vec<TokenLogprob>| {
        top.into_iter().map(|TokenLogprob { id, logprob }| Alternative { id, logprob }).collect()
    };
    Some(Logprobs {
        logprob: wire.logprob,
        raw_logprob: wire.raw_logprob,
        top: alternatives(wire.top),
        raw_top: alternatives(wire.raw_top),
    })
}

fn complete(finished: Finished) -> Result<Complete, &'static str> {
    let stopped = match finished.finish_reason() {
        FinishReason::Stop => true,
        FinishReason::Length => false,
        FinishReason::Unspecified => {
            return Err("the service gave a finish reason that this version does not know");
        }
    };
    let ledger = finished.ledger.ok_or("the service finished without a ledger")?;
    let Finished { drafter, speculation_off, rounds, .. } = finished;
    Ok(Complete { stopped, ledger, drafter, speculation_off, rounds })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::future::{pending, ready};

    /// An event as the service sends it.
    pub(in crate::generate) fn event(event: Event) -> Result<GenerateResponse, Status> {
        Ok(GenerateResponse { event: Some(event), sample: 0 })
    }

    pub(in crate::generate) fn tokens(
        tokens: &[(u32, &str, WireOrigin)],
    ) -> Result<GenerateResponse, Status> {
        let wire = |&(id, text, origin): &(u32, &str, WireOrigin)| WireToken {
            id,
            text: text.to_owned(),
            origin: origin.into(),
            logprobs: None,
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

        fn tokens(&mut self, sample: usize, tokens: &[Token]) -> io::Result<()> {
            if let Some(kind) = self.fails {
                return Err(kind.into());
            }
            if sample == 0 {
                self.text.extend(tokens.iter().map(|token| token.text.as_str()));
            }
            Ok(())
        }

        fn finished(&mut self, _: usize) -> io::Result<()> {
            Ok(())
        }
    }

    pub(in crate::generate) async fn answer(
        events: Vec<Result<GenerateResponse, Status>>,
        view: &mut Seen,
    ) -> Answer {
        answers(events, 1, view).await
    }

    pub(in crate::generate) async fn answers(
        events: Vec<Result<GenerateResponse, Status>>,
        samples: usize,
        view: &mut Seen,
    ) -> Answer {
        follow(ready(Ok(tokio_stream::iter(events))), samples, view, pending()).await
    }

    /// The same event, of another sample.
    pub(in crate::generate) fn of_sample(
        sample: u32,
        event: Result<GenerateResponse, Status>,
    ) -> Result<GenerateResponse, Status> {
        event.map(|event| GenerateResponse { sample, ..event })
    }

    pub(in crate::generate) fn started() -> Result<GenerateResponse, Status> {
        event(Event::Started(Started {
            seed: 7,
            prompt_tokens: 3,
            max_tokens: 9,
            rule: foretoken_proto::v1::Rule::Gumbel.into(),
            reproducible: true,
            ..Started::default()
        }))
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
            reproducible: true,
            rounds: Vec::new(),
        }))
    }

    #[tokio::test]
    async fn a_whole_answer_is_collected_and_shown() {
        let ledger = Ledger { output_tokens: 3, ..Ledger::default() };
        let mut seen = Seen::default();
        let events = vec![
            started(),
            tokens(&[(1, "a", WireOrigin::Plain)]),
            Ok(GenerateResponse::default()),
            tokens(&[(2, "b", WireOrigin::Accepted), (3, "", WireOrigin::Bonus)]),
            finished(FinishReason::Stop, ledger.clone()),
        ];
        let answer = answer(events, &mut seen).await;
        assert!(seen.started);
        assert_eq!(seen.text, "ab");
        assert_eq!(answer.token_count(), 3);
        assert!(answer.first_token.unwrap() <= answer.whole);
        assert!(matches!(answer.end, End::Complete), "{:?}", answer.end);
        let complete = answer.samples[0].complete.as_ref().unwrap();
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
            assert_eq!(answer.samples[0].tokens[0].text, "a");
            let End::Failed(error) = answer.end else { panic!("{:?}", answer.end) };
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[tokio::test]
    async fn samples_are_told_apart_and_the_last_to_finish_ends_the_answer() {
        let events = vec![
            started(),
            of_sample(1, tokens(&[(1, "x", WireOrigin::Plain)])),
            tokens(&[(1, "a", WireOrigin::Plain)]),
            of_sample(1, finished(FinishReason::Stop, Ledger::default())),
            tokens(&[(2, "b", WireOrigin::Plain)]),
            finished(FinishReason::Length, Ledger::default()),
        ];
        let answer = answers(events, 2, &mut Seen::default()).await;
        assert!(matches!(answer.end, End::Complete), "{:?}", answer.end);
        let text = |sample: &Sample| sample.tokens.iter().map(|token| token.text.clone()).collect::<String>();
        assert_eq!(answer.samples.iter().map(text).collect::<Vec<_>>(), ["ab", "x"]);
        let stopped: Vec<_> =
            answer.samples.iter().map(|sample| sample.complete.as_ref().unwrap().stopped).collect();
        assert_eq!(stopped, [false, true]);
        let unasked = vec![started(), of_sample(1, tokens(&[(1, "x", WireOrigin::Plain)]))];
        let End::Failed(error) = answers(unasked, 1, &mut Seen::default()).await.end else { panic!("taken") };
        assert!(error.to_string().contains("sample 1"), "{error}");
    }

    #[tokio::test]
    async fn an_interrupt_ends_a_call_that_hangs() {
        type Events = tokio_stream::Iter<std::vec::IntoIter<Result<GenerateResponse, Status>>>;
        let call = pending::<Result<Events, Status>>();
        let answer = follow(call, 1, &mut Seen::default(), ready(Signal::Interrupt)).await;
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
