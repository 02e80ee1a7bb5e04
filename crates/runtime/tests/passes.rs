//! What goes into a pass: the rows of several sessions, within the budget, prompts in chunks, nothing twice.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, helpers included")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{
    Watched, draft_open, drafts, keys, logits, reply, text, until, until_passes, verify_open, warm,
};
use foretoken_acceptance::Distribution;
use foretoken_engine::conversation::{Ask, Block, DraftReply, VerifyFrame, VerifyReply};
use foretoken_runtime::{Event, Limits, PassObserver, Runtime, RuntimeConfig, VerifySession};

fn block(text: foretoken_engine::conversation::FrameText, tokens: &[u32]) -> VerifyFrame {
    VerifyFrame { text, ask: Ask::Block(Block { tokens: tokens.to_vec(), q: None }) }
}

fn decode(text: foretoken_engine::conversation::FrameText, grant: usize) -> VerifyFrame {
    VerifyFrame { text, ask: Ask::Decode { grant } }
}

async fn verdict(session: &mut VerifySession, frame: VerifyFrame) -> foretoken_engine::conversation::Verdict {
    session.send(frame).unwrap();
    match reply(session.next()).await {
        VerifyReply::Verdict(verdict) => verdict,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sessions_share_passes_and_none_exceeds_the_budget() {
    let (decoder, log) = Watched::new();
    let config = RuntimeConfig { row_budget: 80, prefill_chunk: 16, ..RuntimeConfig::default() };
    let runtime = Runtime::start(decoder, &config).unwrap();
    let prompt = |index: usize| vec![index as u32 % 6; 3 + index * 11];
    let mut sessions = Vec::new();
    for index in 0..8 {
        sessions
            .push(runtime.open_verify(verify_open(&format!("s{index}"), &prompt(index), 300)).await.unwrap());
    }
    let read_ahead: usize = (0..8).map(|index| prompt(index).len() - 1).sum();
    until("the prompts are read", || runtime.stats().rows == read_ahead as u64);
    // While the thread is busy with the first frame the others arrive.
    log.gate(Some(0));
    for (index, session) in sessions.iter().enumerate() {
        let prompt = prompt(index);
        session.send(block(text(1, 0, &prompt, prompt.len()), &[1, 2, 3, 4, 5])).unwrap();
    }
    log.gate(None);
    for session in &mut sessions {
        assert!(matches!(reply(session.next()).await, VerifyReply::Verdict(verdict) if verdict.seq == 1));
    }
    let passes = log.passes();
    for fed in &passes {
        assert!(fed.iter().map(|&(_, rows, _)| rows).sum::<usize>() <= 80, "{fed:?}");
    }
    assert!(passes.iter().any(|fed| fed.len() >= 4), "{passes:?}");
    assert!(runtime.stats().shared_passes > 0);
    // Every row once: the prompts, and five drafted tokens each.
    let rows: usize = (0..8).map(|index| prompt(index).len() + 5).sum();
    let stats = runtime.stats();
    assert_eq!(stats.rows, rows as u64);
    assert_eq!((stats.pass_rows.count(), stats.pass_rows.sum), (stats.passes, rows as u64));
    assert_eq!((stats.pass_us.count(), stats.pass_sessions.count()), (stats.passes, stats.passes));
    assert_eq!(stats.queue_wait_us.count(), 8, "a frame waits once");
    // Passes of four sessions or more are in the buckets above two.
    until("what came to the host is told", || runtime.stats().copied_to_host == stats.passes);
    let (shared, full) = (stats.pass_sessions, passes.iter().filter(|fed| fed.len() >= 3).count());
    assert_eq!(shared.buckets[2..].iter().sum::<u64>(), full as u64, "{shared:?}");
}

#[tokio::test]
async fn a_long_prompt_goes_in_chunks_between_the_tokens_of_others() {
    let (decoder, log) = Watched::new();
    let config = RuntimeConfig { row_budget: 100, prefill_chunk: 20, ..RuntimeConfig::default() };
    let runtime = Runtime::start(decoder, &config).unwrap();
    let mut running = runtime.open_verify(verify_open("run", &[0], 200)).await.unwrap();
    // The run's first token comes; its second pass waits.
    log.gate(Some(1));
    running.send(decode(text(1, 0, &[0], 1), 60)).unwrap();
    reply(running.next()).await;
    let before = log.passes().len();
    let prompt = vec![1; 300];
    let (shared, open) = (runtime.clone(), verify_open("long", &prompt, 400));
    let opening = tokio::spawn(async move { shared.open_verify(open).await });
    // Polled once, the Open lies before the thread, which is in a pass of the run.
    tokio::task::yield_now().await;
    log.gate(None);
    let mut long = opening.await.unwrap().unwrap();
    verdict(&mut long, block(text(1, 0, &prompt, 300), &[1])).await;
    for fed in &log.passes()[before..] {
        for &(_, rows, logits) in fed {
            let beside_others = fed.len() > 1;
            assert!(!beside_others || rows - logits <= 20, "{fed:?}");
        }
    }
    // The run was not held up: most of the chunks had one of its tokens beside them.
    let shared = log.passes()[before..].iter().filter(|fed| fed.len() == 2).count();
    assert!(shared >= 10, "{:?}", log.passes());
}

#[tokio::test]
async fn every_session_has_its_turn() {
    let (decoder, log) = Watched::new();
    // A pass has room for two runs out of six.
    let limits = foretoken_runtime::Limits { max_draft_len: 1, ..foretoken_runtime::Limits::default() };
    let config = RuntimeConfig { limits, row_budget: 2, prefill_chunk: 1, ..RuntimeConfig::default() };
    let runtime = Runtime::start(decoder, &config).unwrap();
    let mut sessions = Vec::new();
    for index in 0..6 {
        sessions.push(runtime.open_verify(verify_open(&format!("s{index}"), &[index], 64)).await.unwrap());
    }
    for (index, session) in sessions.iter().enumerate() {
        session.send(decode(text(1, 0, &[index as u32], 1), 21)).unwrap();
    }
    for session in &mut sessions {
        for _ in 0..20 {
            assert!(matches!(reply(session.next()).await, VerifyReply::Token(_)));
        }
        assert!(matches!(reply(session.next()).await, VerifyReply::Finished(_)));
    }
    // While all six ran, none waited much longer than its fair share of the passes.
    let passes = log.passes();
    for slot in 1..=6 {
        let at: Vec<_> = passes
            .iter()
            .enumerate()
            .filter(|(_, fed)| fed.iter().any(|&(other, ..)| other.0 == slot))
            .collect();
        let longest = at.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
        assert!(longest <= 6, "slot {slot} waited {longest} passes");
    }
}

#[tokio::test]
async fn a_rejection_costs_the_rows_behind_it_and_no_more() {
    let (decoder, _log) = Watched::new();
    let runtime = Runtime::start(decoder, &RuntimeConfig::default()).unwrap();
    let prompt = [0, 1, 2, 3];
    let mut session = runtime.open_verify(verify_open("s", &prompt, 64)).await.unwrap();
    until_passes(&runtime, 1);
    let rows = |runtime: &Runtime| runtime.stats().rows;
    assert_eq!(rows(&runtime), 3);
    verdict(&mut session, block(text(1, 0, &prompt, 4), &[1, 2, 3])).await;
    assert_eq!(rows(&runtime), 3 + 1 + 3);
    // Two stand, the third was replaced: the replacement and the new block are fed, nothing again.
    let committed = [0, 1, 2, 3, 1, 2, 5];
    verdict(&mut session, block(text(2, 1, &committed, 6), &[4, 4])).await;
    assert_eq!(rows(&runtime), 7 + 1 + 2);
    // All pass, with a bonus: the bonus and the new block.
    let committed = [0, 1, 2, 3, 1, 2, 5, 4, 4, 0];
    verdict(&mut session, block(text(3, 1, &committed, 9), &[2])).await;
    assert_eq!(rows(&runtime), 10 + 1 + 1);
    // The same block again under a new number: its first token's row stands before it, so that row is fed.
    verdict(&mut session, block(text(4, 1, &committed, 10), &[2])).await;
    assert_eq!(rows(&runtime), 12 + 1 + 1);
}

#[tokio::test]
async fn tokens_do_not_depend_on_who_else_is_in_the_pass() {
    let alone = {
        let (decoder, _log) = Watched::new();
        let runtime = Runtime::start(decoder, &RuntimeConfig::default()).unwrap();
        run_of(&runtime, "alone", 1).await
    };
    let (decoder, _log) = Watched::new();
    let config = RuntimeConfig { row_budget: 65, prefill_chunk: 3, ..RuntimeConfig::default() };
    let runtime = Runtime::start(decoder, &config).unwrap();
    let mut all = tokio::task::JoinSet::new();
    for index in 0..6 {
        let runtime = runtime.clone();
        all.spawn(async move { (index, run_of(&runtime, &format!("s{index}"), index).await) });
    }
    let mut runs = all.join_all().await;
    runs.sort_unstable();
    assert_eq!(runs[1].1, alone);
}

async fn run_of(runtime: &Runtime, id: &str, first: u32) -> Vec<u32> {
    let prompt = [first, 0, 1];
    let mut session = runtime.open_verify(verify_open(id, &prompt, 64)).await.unwrap();
    session.send(decode(text(1, 0, &prompt, 3), 60)).unwrap();
    let mut tokens = Vec::new();
    loop {
        match reply(session.next()).await {
            VerifyReply::Token(token) => tokens.push(token.token),
            VerifyReply::Finished(_) => return tokens,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn plain_tokens_are_what_the_logits_and_the_coins_give() {
    let (decoder, _log) = Watched::new();
    let runtime = Runtime::start(decoder, &RuntimeConfig::default()).unwrap();
    let tokens = run_of(&runtime, "s", 4).await;
    let mut so_far = vec![4, 0, 1];
    for token in tokens {
        let p = Distribution::from_logits(&logits(&so_far), &warm()).unwrap();
        assert_eq!(token, p.draw(keys().verifier().plain().coin(so_far.len() as u64, 0)));
        so_far.push(token);
    }
}

#[tokio::test]
async fn a_session_that_goes_leaves_before_the_next_pass() {
    let (decoder, log) = Watched::new();
    let runtime = Runtime::start(decoder, &RuntimeConfig::default()).unwrap();
    let session = runtime.open_verify(verify_open("s", &[0], 64)).await.unwrap();
    let mut draft = runtime.open_draft(draft_open("d", &[0], 64)).await.unwrap();
    log.gate(Some(0));
    session.send(decode(text(1, 0, &[0], 1), 60)).unwrap();
    draft.send(drafts(text(1, 0, &[0], 1), 20)).unwrap();
    // One pass more may be under way; then both go.
    log.gate(Some(1));
    until("a pass is made", || !log.passes().is_empty());
    session.close();
    log.gate(Some(1));
    until("the closed session is gone", || runtime.stats().sessions == 1);
    let before = log.passes().len();
    log.gate(None);
    assert!(
        matches!(reply(draft.next()).await, DraftReply::Drafted(drafted) if drafted.block.tokens.len() == 20)
    );
    let verifier_slot = foretoken_runtime::decoder::Slot(1);
    let late = log.passes()[before..]
        .iter()
        .filter(|fed| fed.iter().any(|&(slot, ..)| slot == verifier_slot))
        .count();
    assert_eq!(late, 0);
    assert_eq!(log.live_slots(), 1);
}

#[tokio::test]
async fn the_thread_ends_with_the_last_handle() {
    let (decoder, log) = Watched::new();
    let runtime = Runtime::start(decoder, &RuntimeConfig::default()).unwrap();
    let mut session = runtime.open_verify(verify_open("s", &[0], 64)).await.unwrap();
    drop(runtime);
    // A session is a handle too.
    verdict(&mut session, block(text(1, 0, &[0], 1), &[1])).await;
    assert_eq!(log.live_slots(), 1);
    drop(session);
    until("the decoder is dropped", || log.live_slots() == usize::MAX);
}

#[tokio::test]
async fn a_peer_that_reads_nothing_loses_its_session() {
    let (decoder, log) = Watched::new();
    let runtime = Runtime::start(decoder, &RuntimeConfig::default()).unwrap();
    let mut session = runtime.open_verify(verify_open("s", &[0], 64)).await.unwrap();
    let mut ended = false;
    // A frame that repeats is answered each time; nobody reads the answers.
    for _ in 0..100_000 {
        if runtime.stats().sessions == 0 {
            ended = true;
            break;
        }
        let _full = session.send(decode(text(1, 0, &[0], 1), 1));
        std::thread::yield_now();
    }
    assert!(ended, "{:?}", runtime.stats());
    assert_eq!(log.live_slots(), 0);
    // What was answered can still be read, and then that it is over.
    loop {
        match session.next().await {
            Event::Reply(_) | Event::Passes { .. } => {}
            Event::Ended(ended) => break assert!(!format!("{ended:?}").is_empty()),
        }
    }
}

/// Sums what it is told.
#[derive(Debug, Default)]
struct Told {
    waits: AtomicUsize,
    passes: AtomicUsize,
    rows: AtomicUsize,
    sessions: AtomicUsize,
}

#[derive(Debug)]
struct Telling(Arc<Told>);

impl PassObserver for Telling {
    fn waited(&self, _queue: Duration) {
        self.0.waits.fetch_add(1, Ordering::Relaxed);
    }

    fn passed(&self, _took: Duration, rows: usize, sessions: usize) {
        self.0.passes.fetch_add(1, Ordering::Relaxed);
        self.0.rows.fetch_add(rows, Ordering::Relaxed);
        self.0.sessions.fetch_add(sessions, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn an_observer_is_told_every_pass_and_who_waits_is_counted() {
    let (decoder, log) = Watched::new();
    // Room for one session's block in a pass.
    let limits = Limits { max_draft_len: 5, ..Limits::default() };
    let config = RuntimeConfig { row_budget: 6, limits, ..RuntimeConfig::default() };
    let runtime = Runtime::start(decoder, &config).unwrap();
    let told = Arc::new(Told::default());
    runtime.counters().observe(Box::new(Telling(Arc::clone(&told))));
    let mut sessions = Vec::new();
    for index in 0..3 {
        sessions.push(runtime.open_verify(verify_open(&format!("s{index}"), &[0], 50)).await.unwrap());
    }
    log.gate(Some(0));
    for session in &sessions {
        session.send(block(text(1, 0, &[0], 1), &[1, 2, 3, 4, 5])).unwrap();
    }
    // The first may have been alone when its pass began; in the second pass one of the other two waits.
    log.gate(Some(1));
    until("one session waits", || runtime.stats().waiting == 1);
    log.gate(None);
    for session in &mut sessions {
        assert!(matches!(reply(session.next()).await, VerifyReply::Verdict(_)));
    }
    until("nobody waits", || runtime.stats().waiting == 0);
    let (seen, stats) = (|count: &AtomicUsize| count.load(Ordering::Relaxed) as u64, runtime.stats());
    assert_eq!((seen(&told.passes), seen(&told.rows)), (stats.passes, stats.rows));
    assert_eq!((seen(&told.waits), seen(&told.sessions)), (3, stats.pass_sessions.sum));
}
