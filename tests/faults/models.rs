//! Models that fail: the session they fail in ends with a status, the others go on.

use std::time::Duration;

use foretoken_orchestrator::Config;
use foretoken_runtime::RuntimeConfig;
use foretoken_runtime::decoder::{Decoder, DecoderError, ModelShape, Row, SessionRows, Slot};
use foretoken_testkit::client::{generate, ids_request};
use foretoken_testkit::cluster::Cluster;
use foretoken_testkit::table::{Table, TableModel, random_table};
use foretoken_worker::Host;
use tonic::Code;
use tonic_types::StatusExt;

use crate::protocol::stream::{Verifying, block, text, verify_open, warm};
use crate::support::{CONTEXT, Pace, Reading, VOCAB, assert_status, model, plain_letters};

/// A text that begins with this token makes the model fail.
const POISON: u32 = 7;

/// A table model whose logits are no numbers for poisoned texts.
struct NotNumbers {
    inner: TableModel,
    poisoned: std::collections::HashSet<Slot>,
    rows: Vec<bool>,
    nan: Vec<f32>,
}

impl NotNumbers {
    fn new(table: Table) -> Self {
        let inner = TableModel::new("target", VOCAB, CONTEXT, table);
        Self { inner, poisoned: Default::default(), rows: Vec::new(), nan: vec![f32::NAN; VOCAB] }
    }
}

impl Decoder for NotNumbers {
    fn shape(&self) -> &ModelShape {
        self.inner.shape()
    }

    fn allocate(&mut self, capacity: usize) -> Result<Slot, DecoderError> {
        self.inner.allocate(capacity)
    }

    fn len(&self, slot: Slot) -> usize {
        self.inner.len(slot)
    }

    fn truncate(&mut self, slot: Slot, len: usize) {
        self.inner.truncate(slot, len);
    }

    fn release(&mut self, slot: Slot) {
        self.poisoned.remove(&slot);
        self.inner.release(slot);
    }

    fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
        self.rows.clear();
        for rows in batch {
            if self.inner.len(rows.slot) == 0 && rows.tokens[0] == POISON {
                self.poisoned.insert(rows.slot);
            }
            self.rows.extend(std::iter::repeat_n(self.poisoned.contains(&rows.slot), rows.logits));
        }
        self.inner.forward(batch)
    }

    fn row(&self, index: usize) -> Row<'_> {
        if self.rows[index] { Row::Host(&self.nan) } else { self.inner.row(index) }
    }
}

fn cause(status: &tonic::Status) -> String {
    let info = status.get_details_error_info().expect("an ErrorInfo");
    info.metadata.get("cause").cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn logits_that_are_no_numbers_end_their_session_and_no_other() {
    let pace = Pace::of(Duration::from_millis(1));
    let decoder = NotNumbers::new(pace.apply(random_table(1, VOCAB, 0)));
    let host = Host::start(decoder, plain_letters(), &RuntimeConfig::default()).unwrap();
    let cluster = Cluster::start(host, vec![], Config::default()).await;
    let mut healthy = Reading::start(&cluster.orchestrator, ids_request(&[0, 1], 400)).await.unwrap();
    assert!(healthy.until(|tokens| tokens.len() > 5).await.unwrap().is_none());
    for _ in 0..3 {
        let status = generate(&cluster.orchestrator, ids_request(&[POISON, 1], 20)).await.unwrap_err();
        assert_status(&status, Code::Unavailable, "VERIFIER_LOST");
        assert_eq!(cause(&status), "MODEL_FAILED");
    }
    // The same at the worker itself.
    let channel = cluster.verifier.channel();
    let (mut stream, _) =
        Verifying::open(&channel, verify_open("nan", &[POISON, 1], 32, warm())).await.unwrap();
    stream.frame(block(text(1, 0, &[POISON, 1], 2), &[4])).await;
    assert_status(&stream.message().await.unwrap_err(), Code::Internal, "MODEL_FAILED");
    pace.set(Duration::ZERO);
    healthy.finish().await.unwrap();
    assert_eq!(healthy.tokens.len(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_panics_ends_its_session_and_the_worker_goes_on() {
    let table = random_table(1, VOCAB, 0);
    let panics: Table = std::sync::Arc::new(move |text| {
        assert_ne!(text[0], POISON, "a bug in the model");
        table(text)
    });
    let host = model("target", panics, &RuntimeConfig::default());
    let runtime = host.runtime.clone();
    let cluster = Cluster::start(host, vec![], Config::default()).await;
    let channel = cluster.verifier.channel();
    let open = |id: &str, first| verify_open(id, &[first, 1], 32, warm());
    // A session that has no part in the failing pass lives through it.
    let (mut healthy, _) = Verifying::open(&channel, open("healthy", 0)).await.unwrap();
    let verdict = healthy.verdict(block(text(1, 0, &[0, 1], 2), &[4])).await;
    for _ in 0..3 {
        let (mut stream, _) = Verifying::open(&channel, open("bad", POISON)).await.unwrap();
        stream.frame(block(text(1, 0, &[POISON, 1], 2), &[4])).await;
        let status = stream.message().await.unwrap_err();
        assert_status(&status, Code::Internal, "MODEL_FAILED");
        assert!(status.message().contains("a bug in the model"), "{status:?}");
        let status = generate(&cluster.orchestrator, ids_request(&[POISON, 1], 20)).await.unwrap_err();
        assert_status(&status, Code::Unavailable, "VERIFIER_LOST");
        assert_eq!(cause(&status), "MODEL_FAILED");
    }
    let again = healthy.verdict(block(text(2, 0, &[0, 1], 2), &[4])).await;
    assert_eq!((again.thresholds, again.repairs), (verdict.thresholds, verdict.repairs));
    assert_eq!(generate(&cluster.orchestrator, ids_request(&[0, 1], 50)).await.unwrap().tokens.len(), 50);
    drop(healthy);
    crate::support::until("nothing but the healthy session is held", || runtime.stats().sessions <= 1).await;
}

/// A draft model that fails costs speculation, not the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_draft_model_that_fails_is_left() {
    let panics: Table = std::sync::Arc::new(|_| panic!("a bug in the draft model"));
    let target = crate::support::target(random_table(1, VOCAB, 0));
    let cluster = Cluster::start(target, vec![crate::support::draft(panics)], Config::default()).await;
    let answer = generate(&cluster.orchestrator, ids_request(&[0, 1], 60)).await.unwrap();
    assert_eq!(answer.tokens.len(), 60);
    let off = &answer.finished.speculation_off[0];
    assert_eq!(off.reason, "MODEL_FAILED", "{off:?}");
    assert!(off.message.contains("a bug in the draft model"), "{off:?}");
}
