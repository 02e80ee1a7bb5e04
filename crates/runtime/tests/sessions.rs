//! Who holds a session, for how long, and who must make room.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, helpers included")]

mod common;

use std::time::Duration;

use common::{CONTEXT, Watched, draft_open, drafts, reply, text, until, verify_open};
use foretoken_engine::conversation::{
    Ask, Block, DraftReply, Refusal, RefusalKind, VerifyFrame, VerifyReply,
};
use foretoken_runtime::{Ended, Event, Limits, OpenError, Runtime, RuntimeConfig, StartError};

fn block(seq: u64, tokens: &[u32]) -> VerifyFrame {
    let ask = Ask::Block(Block { tokens: tokens.to_vec(), q: None });
    VerifyFrame { text: text(seq, 0, &[0, 1], 2), ask }
}

fn start(config: &RuntimeConfig) -> (Runtime, std::sync::Arc<common::Log>) {
    let (decoder, log) = Watched::new();
    (Runtime::start(decoder, config).unwrap(), log)
}

#[tokio::test]
async fn a_broken_session_waits_for_its_peer_and_a_closed_one_does_not() {
    let (runtime, log) =
        start(&RuntimeConfig { grace: Duration::from_secs(3600), ..RuntimeConfig::default() });
    let open = || verify_open("s", &[0, 1], 64);
    let mut session = runtime.open_verify(open()).await.unwrap();
    session.send(block(1, &[2, 3])).unwrap();
    let verdict = reply(session.next()).await;
    drop(session);
    let mut again = runtime.open_verify(open()).await.unwrap();
    assert_eq!(again.cached_len(), 4);
    again.send(block(1, &[2, 3])).unwrap();
    assert_eq!(reply(again.next()).await, verdict);
    again.close();
    until("the session is gone", || runtime.stats().sessions == 0);
    assert_eq!(log.live_slots(), 0);
    assert_eq!(runtime.open_verify(open()).await.unwrap().cached_len(), 0);
}

#[tokio::test]
async fn what_was_asked_for_and_not_answered_is_dropped_with_the_stream() {
    let (runtime, log) = start(&RuntimeConfig::default());
    let open = || verify_open("s", &[0, 1], 64);
    let session = runtime.open_verify(open()).await.unwrap();
    until("the prompt is read", || log.passes().len() == 1);
    log.gate(Some(0));
    session.send(block(1, &[2, 3])).unwrap();
    session.send(block(2, &[2, 3])).unwrap();
    drop(session);
    log.gate(None);
    let mut again = runtime.open_verify(open()).await.unwrap();
    // Asked again under the same number it is answered once.
    again.send(block(1, &[2, 3])).unwrap();
    assert!(matches!(reply(again.next()).await, VerifyReply::Verdict(verdict) if verdict.seq == 1));
    again.send(block(3, &[2, 3])).unwrap();
    assert!(matches!(reply(again.next()).await, VerifyReply::Verdict(verdict) if verdict.seq == 3));
}

#[tokio::test]
async fn the_older_stream_is_told_that_it_was_taken_over() {
    let (runtime, _log) = start(&RuntimeConfig::default());
    let open = || verify_open("s", &[0, 1], 64);
    let mut older = runtime.open_verify(open()).await.unwrap();
    let newer = runtime.open_verify(open()).await.unwrap();
    assert_eq!(older.next().await, Event::Ended(Ended::TakenOver));
    // Its frames and its end no longer concern the session.
    older.send(block(7, &[2])).unwrap();
    older.close();
    let mut newer = newer;
    newer.send(block(1, &[2])).unwrap();
    assert!(matches!(reply(newer.next()).await, VerifyReply::Verdict(verdict) if verdict.seq == 1));
    assert_eq!(runtime.stats().sessions, 1);
}

#[tokio::test]
async fn both_roles_under_one_name_are_two_sessions_in_turn() {
    let (runtime, _log) = start(&RuntimeConfig::default());
    let mut verify = runtime.open_verify(verify_open("s", &[0, 1], 64)).await.unwrap();
    let mut draft = runtime.open_draft(draft_open("s", &[0, 1], 64)).await.unwrap();
    assert_eq!(verify.next().await, Event::Ended(Ended::TakenOver));
    draft.send(drafts(text(1, 0, &[0, 1], 2), 2)).unwrap();
    assert!(
        matches!(reply(draft.next()).await, DraftReply::Drafted(drafted) if drafted.block.tokens.len() == 2)
    );
}

#[tokio::test]
async fn broken_sessions_make_room_the_longest_broken_first() {
    let grace = Duration::from_secs(3600);
    let (runtime, _log) = start(&RuntimeConfig { grace, kv_tokens: Some(200), ..RuntimeConfig::default() });
    let open = |id| runtime.open_verify(verify_open(id, &[0, 1], 100));
    let first = open("first").await.unwrap();
    let second = open("second").await.unwrap();
    let full = OpenError::KvFull { needed: 100, free: 0, capacity: 200 };
    assert_eq!(open("third").await.unwrap_err(), full);
    drop(second);
    // Opening looks at the leases, also where it is refused.
    assert!(runtime.open_verify(verify_open("none", &[0], CONTEXT + 1)).await.is_err());
    drop(first);
    // `second` went first, so it makes room first; `first` is still there.
    let _third = open("third").await.unwrap();
    assert_eq!(runtime.stats().sessions, 2);
    let _first_again = open("first").await.unwrap();
    assert_eq!(open("second").await.unwrap_err(), full);
}

#[tokio::test]
async fn a_session_that_has_just_ended_makes_room_at_once() {
    let limits = Limits { max_sessions: 1, ..Limits::default() };
    let (runtime, _log) = start(&RuntimeConfig { limits, ..RuntimeConfig::default() });
    for round in 0..200 {
        let session = runtime.open_verify(verify_open(&format!("s{round}"), &[0, 1], 100)).await.unwrap();
        if round % 2 == 0 {
            session.close();
        }
    }
}

#[tokio::test]
async fn sessions_and_positions_are_limited_apart() {
    let limits = Limits { max_sessions: 2, ..Limits::default() };
    let (runtime, _log) = start(&RuntimeConfig { limits, kv_tokens: Some(100), ..RuntimeConfig::default() });
    let open = |id, len| runtime.open_verify(verify_open(id, &[0, 1], len));
    assert_eq!(open("large", 101).await.unwrap_err(), OpenError::KvTooSmall { needed: 101, capacity: 100 });
    let _one = open("one", 60).await.unwrap();
    let error = open("two", 41).await.unwrap_err();
    assert_eq!(error, OpenError::KvFull { needed: 41, free: 40, capacity: 100 });
    let _two = open("two", 40).await.unwrap();
    assert_eq!(open("three", 3).await.unwrap_err(), OpenError::SessionsFull(2));
    assert_eq!(runtime.stats().kv_used, 100);
    // An open of a session that exists needs no more room.
    assert!(open("two", 40).await.is_ok());
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let (runtime, log) = start(&RuntimeConfig { queue: 2, ..RuntimeConfig::default() });
    let mut session = runtime.open_verify(verify_open("s", &[0, 1], 64)).await.unwrap();
    until("the prompt is read", || log.passes().len() == 1);
    log.gate(Some(0));
    session.send(block(1, &[2])).unwrap();
    until("the model is at work", || log.held());
    session.send(block(2, &[2])).unwrap();
    session.send(block(3, &[2])).unwrap();
    assert!(session.send(block(4, &[2])).is_err(), "a queue of two holds three");
    assert!(matches!(runtime.open_verify(verify_open("t", &[0], 9)).await, Err(OpenError::QueueFull)));
    log.gate(None);
    for seq in 1..=3 {
        assert!(matches!(reply(session.next()).await, VerifyReply::Verdict(verdict) if verdict.seq == seq));
    }
}

#[tokio::test]
async fn frames_beyond_the_window_are_overloaded() {
    let limits = Limits { max_window: 2, ..Limits::default() };
    let (runtime, log) = start(&RuntimeConfig { limits, ..RuntimeConfig::default() });
    let mut session = runtime.open_verify(verify_open("s", &[0, 1], 64)).await.unwrap();
    until("the prompt is read", || log.passes().len() == 1);
    log.gate(Some(0));
    // The first is in the pass, or waits too where the thread was slow to take it up; two may wait.
    session.send(block(1, &[2])).unwrap();
    for seq in 2..=6 {
        session.send(block(seq, &[2])).unwrap();
    }
    log.gate(None);
    let (mut verdicts, mut overloaded) = (Vec::new(), Vec::new());
    for _ in 1..=6 {
        match reply(session.next()).await {
            VerifyReply::Verdict(verdict) => verdicts.push(verdict.seq),
            VerifyReply::Refused(Refusal { seq, kind: RefusalKind::Overloaded { .. } }) => {
                overloaded.push(seq)
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((2..=3).contains(&verdicts.len()), "{verdicts:?} {overloaded:?}");
    assert!(verdicts.is_sorted() && verdicts[0] == 1, "{verdicts:?}");
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let refused = |config: RuntimeConfig| match Runtime::start(Watched::new().0, &config) {
        Err(StartError::Setting { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let config = RuntimeConfig::default;
    assert_eq!(refused(RuntimeConfig { row_budget: 64, ..config() }), "row budget");
    assert_eq!(refused(RuntimeConfig { prefill_chunk: 0, ..config() }), "prefill chunk");
    assert_eq!(refused(RuntimeConfig { queue: 0, ..config() }), "queue");
    assert_eq!(refused(RuntimeConfig { kv_tokens: Some(1), ..config() }), "kv tokens");
    let limits = |limits| RuntimeConfig { limits, ..config() };
    assert_eq!(refused(limits(Limits { max_window: 0, ..Limits::default() })), "max window");
    assert_eq!(refused(limits(Limits { max_grant: 0, ..Limits::default() })), "max grant");
    assert_eq!(refused(limits(Limits { max_sessions: 0, ..Limits::default() })), "max sessions");
}
