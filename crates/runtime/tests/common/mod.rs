//! A decoder that keeps watch over its own contract, and the orchestrator's side of a conversation.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use foretoken_engine::conversation::{DraftFrame, DraftOpen, FrameText, SessionOpen, TextHash, VerifyOpen};
use foretoken_engine::{Adjustments, RequestKeys, Rule, Sampling};
use foretoken_runtime::decoder::{Decoder, DecoderError, ModelShape, Row, SessionRows, Slot};
use foretoken_runtime::{Event, Runtime};

pub(crate) const VOCAB: usize = 6;
pub(crate) const CONTEXT: usize = 512;

/// Logits that depend on the whole text and on nothing else.
pub(crate) fn logits(text: &[u32]) -> Vec<f32> {
    (0..VOCAB as u32)
        .map(|id| {
            let hash = TextHash::EMPTY.then_all(text).then(id + 100).value();
            (hash >> 48) as f32 / 8192.0
        })
        .collect()
}

/// What a pass was fed: slot, rows, rows with logits.
pub(crate) type Fed = Vec<(Slot, usize, usize)>;

/// What the decoder did, for the test to look at.
#[derive(Default)]
pub(crate) struct Log {
    passes: Mutex<Vec<Fed>>,
    /// Passes that may go on; none is no limit.
    gate: Mutex<Option<usize>>,
    opened: Condvar,
    /// Whether a pass stands before the gate.
    held: AtomicBool,
    live: Mutex<usize>,
}

impl Log {
    pub(crate) fn passes(&self) -> Vec<Fed> {
        self.passes.lock().unwrap().clone()
    }

    /// Slots that were allocated and not released.
    pub(crate) fn live_slots(&self) -> usize {
        *self.live.lock().unwrap()
    }

    /// Lets `passes` more begin, or all.
    pub(crate) fn gate(&self, passes: Option<usize>) {
        *self.gate.lock().unwrap() = passes;
        self.opened.notify_all();
    }

    /// Whether the model's thread stands before the gate: until it opens, the thread takes nothing up.
    pub(crate) fn held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    fn enter(&self) {
        let mut gate = self.gate.lock().unwrap();
        while *gate == Some(0) {
            self.held.store(true, Ordering::SeqCst);
            gate = self.opened.wait_timeout(gate, Duration::from_secs(20)).unwrap().0;
        }
        self.held.store(false, Ordering::SeqCst);
        if let Some(left) = gate.as_mut() {
            *left -= 1;
        }
    }
}

/// A decoder over [`logits`] that fails the test when its contract is broken.
pub(crate) struct Watched {
    shape: ModelShape,
    log: Arc<Log>,
    slots: HashMap<Slot, (Vec<u32>, usize)>,
    next: u32,
    rows: Vec<Vec<f32>>,
}

impl Watched {
    pub(crate) fn new() -> (Self, Arc<Log>) {
        let shape = ModelShape {
            name: "watched".into(),
            fingerprint: "f00d".into(),
            vocab_size: VOCAB,
            max_context: CONTEXT,
            weight_bytes: 0,
            kv_bytes_per_token: 1,
            device: "cpu".into(),
        };
        let log = Arc::new(Log::default());
        let decoder = Self { shape, log: Arc::clone(&log), slots: HashMap::new(), next: 0, rows: Vec::new() };
        (decoder, log)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        *self.log.live.lock().unwrap() = usize::MAX;
    }
}

impl Decoder for Watched {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, capacity: usize) -> Result<Slot, DecoderError> {
        self.next += 1;
        self.slots.insert(Slot(self.next), (Vec::new(), capacity));
        *self.log.live.lock().unwrap() = self.slots.len();
        Ok(Slot(self.next))
    }

    fn len(&self, slot: Slot) -> usize {
        self.slots[&slot].0.len()
    }

    fn truncate(&mut self, slot: Slot, len: usize) {
        self.slots.get_mut(&slot).expect("a live slot").0.truncate(len);
    }

    fn release(&mut self, slot: Slot) {
        assert!(self.slots.remove(&slot).is_some(), "{slot:?} was released twice");
        *self.log.live.lock().unwrap() = self.slots.len();
    }

    fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
        self.log.enter();
        self.rows.clear();
        let mut fed = Fed::new();
        for rows in batch {
            assert!(!rows.tokens.is_empty() && rows.logits <= rows.tokens.len(), "{rows:?}");
            assert!(fed.iter().all(|&(slot, ..)| slot != rows.slot), "{:?} twice in a pass", rows.slot);
            fed.push((rows.slot, rows.tokens.len(), rows.logits));
            let (text, capacity) = self.slots.get_mut(&rows.slot).expect("a live slot");
            for (index, &token) in rows.tokens.iter().enumerate() {
                text.push(token);
                if index >= rows.tokens.len() - rows.logits {
                    self.rows.push(logits(text));
                }
            }
            assert!(text.len() <= *capacity, "{} positions of {capacity}", text.len());
        }
        self.log.passes.lock().unwrap().push(fed);
        Ok(())
    }

    /// A byte for each pass, as it were.
    fn copied_to_host(&self) -> u64 {
        self.log.passes().len() as u64
    }

    fn row(&self, index: usize) -> Row<'_> {
        Row::Host(&self.rows[index])
    }
}

pub(crate) fn keys() -> RequestKeys {
    RequestKeys::new(9, 0)
}

pub(crate) fn warm() -> Sampling {
    Sampling::new(1.0, 0, 1.0, 0.0).unwrap()
}

fn session(id: &str, prompt: &[u32], reserve_len: usize) -> SessionOpen {
    SessionOpen {
        session_id: id.into(),
        prompt: prompt.to_vec(),
        reserve_len,
        sampling: warm(),
        adjustments: Adjustments::default(),
        rule: Rule::Token,
        model_fingerprint: String::new(),
        tokenizer_fingerprint: String::new(),
    }
}

pub(crate) fn verify_open(id: &str, prompt: &[u32], reserve_len: usize) -> VerifyOpen {
    VerifyOpen {
        session: session(id, prompt, reserve_len),
        keys: keys().verifier(),
        stop_ids: Vec::new(),
        logprobs: None,
    }
}

pub(crate) fn draft_open(id: &str, prompt: &[u32], reserve_len: usize) -> DraftOpen {
    DraftOpen { session: session(id, prompt, reserve_len), key: keys().draft() }
}

/// Asks for a draft, however unsure.
pub(crate) fn drafts(text: FrameText, draft_len: usize) -> DraftFrame {
    DraftFrame { text, draft_len, min_confidence: 0.0 }
}

/// The text of a frame: `tokens` are committed, those from `known` on are told.
pub(crate) fn text(seq: u64, epoch: u64, tokens: &[u32], known: usize) -> FrameText {
    FrameText {
        seq,
        epoch,
        committed_len: tokens.len(),
        tail: tokens[known..].to_vec(),
        start: tokens.len(),
        start_hash: TextHash::EMPTY.then_all(tokens),
        span_id: None,
        budget_ms: 0,
    }
}

/// The reply in time; a session that ended instead fails the test.
pub(crate) async fn reply<R: std::fmt::Debug>(next: impl Future<Output = Event<R>>) -> R {
    match tokio::time::timeout(Duration::from_secs(20), next).await.expect("a reply in time") {
        Event::Reply(reply) => reply,
        Event::Passes { .. } => panic!("nothing here is traced"),
        Event::Ended(ended) => panic!("the session ended: {ended:?}"),
    }
}

pub(crate) fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until everything told so far has been taken up: the counters no longer change by it.
pub(crate) fn until_passes(runtime: &Runtime, passes: u64) {
    until(&format!("{passes} passes"), || runtime.stats().passes >= passes);
}
