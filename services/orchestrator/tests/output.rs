//! Committed tokens to events: what each token lets out, and what the last one does.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, helpers included")]

use foretoken_engine::generate::{FinishReason, Output};
use foretoken_engine::ledger::Origin;
use foretoken_orchestrator::output::{Event, TextOutput};
use foretoken_proto::v1;
use foretoken_testkit::vocabulary::letters;
use foretoken_text::StopMatcher;
use tokio::sync::mpsc;

fn output(stops: &[&str]) -> (TextOutput, mpsc::Receiver<Event>) {
    let (events, received) = mpsc::channel(16);
    let stops = StopMatcher::new(stops.iter().map(ToString::to_string).collect()).unwrap();
    (TextOutput::new(letters(6, true).unwrap().detokenizer(), stops, events), received)
}

fn tokens(event: Event) -> Vec<v1::Token> {
    match event.unwrap().event.unwrap() {
        v1::generate_response::Event::Tokens(tokens) => tokens.tokens,
        other => panic!("{other:?}"),
    }
}

fn texts(tokens: &[v1::Token]) -> Vec<&str> {
    tokens.iter().map(|token| token.text.as_str()).collect()
}

#[tokio::test]
async fn one_event_for_all_tokens_since_the_last() {
    let (mut output, mut received) = output(&[]);
    assert!(!output.push(0, Origin::Plain, None));
    output.emit(None).await.unwrap();
    assert!(!output.push(1, Origin::Accepted, None));
    assert!(!output.push(2, Origin::Repair, None));
    assert!(!output.push(3, Origin::Bonus, None));
    output.emit(Some(FinishReason::Length)).await.unwrap();
    drop(output);
    let first = tokens(received.recv().await.unwrap());
    let second = tokens(received.recv().await.unwrap());
    assert!(received.recv().await.is_none());
    assert_eq!((texts(&first), texts(&second)), (vec!["a"], vec!["b", "c", "d"]));
    let origins: Vec<_> = first.iter().chain(&second).map(v1::Token::origin).collect();
    assert_eq!(origins, [v1::Origin::Plain, v1::Origin::Accepted, v1::Origin::Repair, v1::Origin::Bonus]);
}

#[tokio::test]
async fn nothing_new_is_no_event() {
    let (mut output, mut received) = output(&[]);
    output.emit(None).await.unwrap();
    output.emit(Some(FinishReason::Stop)).await.unwrap();
    drop(output);
    assert!(received.recv().await.is_none());
}

#[tokio::test]
async fn what_may_become_a_stop_string_comes_with_its_successor() {
    let (mut output, mut received) = output(&["bcd"]);
    for token in [0, 1, 2, 4, 1] {
        assert!(!output.push(token, Origin::Plain, None));
    }
    output.emit(Some(FinishReason::Length)).await.unwrap();
    // The last b was held back, and belongs to the answer after all.
    assert_eq!(texts(&tokens(received.recv().await.unwrap())), ["a", "", "", "bce", "b"]);
}

#[tokio::test]
async fn behind_a_stop_string_nothing_is_let_out() {
    let (mut output, mut received) = output(&["bcd"]);
    assert!(!output.push(0, Origin::Plain, None));
    assert!(!output.push(1, Origin::Plain, None));
    assert!(!output.push(2, Origin::Plain, None));
    assert!(output.push(3, Origin::Plain, None));
    assert!(output.push(5, Origin::Plain, None), "a stop stays one");
    output.emit(Some(FinishReason::Stop)).await.unwrap();
    assert_eq!(texts(&tokens(received.recv().await.unwrap())), ["a", "", "", "", ""]);
}

#[tokio::test]
async fn an_end_of_text_has_no_text_and_lets_out_what_was_held_back() {
    let (mut output, mut received) = output(&["bcd"]);
    output.push(1, Origin::Accepted, None);
    output.push(6, Origin::Accepted, None);
    output.emit(Some(FinishReason::Stop)).await.unwrap();
    let tokens = tokens(received.recv().await.unwrap());
    assert_eq!(texts(&tokens), ["", "b"]);
    assert_eq!(tokens[1].id, 6);
}

#[tokio::test]
async fn a_client_that_is_gone_is_noticed_and_a_slow_one_waited_for() {
    let (mut output, received) = output(&[]);
    for _ in 0..16 {
        output.push(0, Origin::Plain, None);
        output.emit(None).await.unwrap();
    }
    output.push(0, Origin::Plain, None);
    let waits = tokio::time::timeout(std::time::Duration::from_millis(20), output.emit(None));
    assert!(waits.await.is_err(), "the channel is full");
    drop(received);
    output.push(0, Origin::Plain, None);
    assert!(output.emit(None).await.is_err());
}
