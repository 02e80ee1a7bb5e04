//! What the fault tests share: models that follow a script, clusters of them, and waits that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foretoken_draft_worker::Source;
use foretoken_orchestrator::Config;
use foretoken_proto::error::reason_of;
use foretoken_proto::v1;
use foretoken_proto::v1::generate_response::Event;
use foretoken_proto::v1::orchestrator_client::OrchestratorClient;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::cluster::{Cluster, Node, host};
use foretoken_testkit::table::{Table, TableModel};
use foretoken_testkit::vocabulary::letters;
use foretoken_text::Tokenizer;
use foretoken_worker::Host;
use tonic::{Code, Status, Streaming};

/// Letters of the common vocabulary.
pub(crate) const VOCAB: usize = 8;

/// Context of table models unless a test is about it.
pub(crate) const CONTEXT: usize = 4096;

/// No wait of a test is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The future's outcome, in time.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("an answer in time")
}

/// Polls until `done`.
pub(crate) async fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// All probability on one token.
pub(crate) fn one_hot(vocab_size: usize, token: u32) -> Vec<f64> {
    (0..vocab_size).map(|id| f64::from(u8::from(id == token as usize))).collect()
}

/// A table that says one token for each text.
pub(crate) fn says(vocab_size: usize, next: impl Fn(&[u32]) -> u32 + Send + Sync + 'static) -> Table {
    Arc::new(move |text| one_hot(vocab_size, next(text)))
}

/// A model's pace: microseconds that it takes for a row whose logits are wanted.
#[derive(Clone, Default)]
pub(crate) struct Pace(Arc<AtomicU64>);

impl Pace {
    pub(crate) fn of(pause: Duration) -> Self {
        let pace = Self::default();
        pace.set(pause);
        pace
    }

    pub(crate) fn set(&self, pause: Duration) {
        self.0.store(u64::try_from(pause.as_micros()).unwrap(), Ordering::Relaxed);
    }

    /// The table, at this pace.
    pub(crate) fn apply(&self, table: Table) -> Table {
        let pace = self.clone();
        Arc::new(move |text| {
            std::thread::sleep(Duration::from_micros(pace.0.load(Ordering::Relaxed)));
            table(text)
        })
    }
}

/// A table model over the common vocabulary.
pub(crate) fn model(name: &str, table: Table, config: &RuntimeConfig) -> Host {
    host(TableModel::new(name, VOCAB, CONTEXT, table), &plain_letters(), config)
}

pub(crate) fn plain_letters() -> Tokenizer {
    letters(VOCAB, false).unwrap()
}

/// A target over the common vocabulary.
pub(crate) fn target(table: Table) -> Host {
    model("target", table, &RuntimeConfig::default())
}

/// A draft model over the common vocabulary.
pub(crate) fn draft(table: Table) -> Source {
    Source::Model(model("draft", table, &RuntimeConfig::default()))
}

/// A cluster of scripted models with an end-of-text id behind `letter_count` letters.
pub(crate) async fn scripted(letter_count: usize, target: Table, draft: Table) -> Cluster {
    let tokenizer = letters(letter_count, true).unwrap();
    let host = |name, table| {
        host(TableModel::new(name, letter_count + 1, CONTEXT, table), &tokenizer, &RuntimeConfig::default())
    };
    Cluster::start(host("target", target), vec![Source::Model(host("draft", draft))], Config::default()).await
}

/// Sampling at temperature 1.
pub(crate) fn warm() -> v1::Sampling {
    v1::Sampling { temperature: 1.0, ..v1::Sampling::default() }
}

/// The status' reason, for comparison.
pub(crate) fn reason(status: &Status) -> String {
    reason_of(status).unwrap_or_else(|| format!("no reason in {status:?}"))
}

/// Asserts a status' code and reason.
#[track_caller]
pub(crate) fn assert_status(status: &Status, code: Code, expected: &str) {
    assert_eq!((status.code(), reason(status).as_str()), (code, expected), "{status:?}");
}

/// A request whose tokens are read one by one.
pub(crate) struct Reading {
    events: Streaming<v1::GenerateResponse>,
    pub(crate) tokens: Vec<v1::Token>,
}

impl Reading {
    pub(crate) async fn start(node: &Node, request: v1::GenerateRequest) -> Result<Self, Status> {
        Self::over(node.channel(), request).await
    }

    pub(crate) async fn over(
        channel: tonic::transport::Channel,
        request: impl tonic::IntoRequest<v1::GenerateRequest>,
    ) -> Result<Self, Status> {
        let events = within(OrchestratorClient::new(channel).generate(request)).await?.into_inner();
        Ok(Self { events, tokens: Vec::new() })
    }

    /// Reads until `enough` of what has been read, or to the end.
    pub(crate) async fn until(
        &mut self,
        enough: impl Fn(&[v1::Token]) -> bool,
    ) -> Result<Option<v1::Finished>, Status> {
        while !enough(&self.tokens) {
            match within(self.events.message()).await?.and_then(|response| response.event) {
                Some(Event::Started(_)) => {}
                Some(Event::Tokens(event)) => self.tokens.extend(event.tokens),
                Some(Event::Finished(finished)) => return Ok(Some(finished)),
                None => return Err(Status::internal("the stream ended without Finished")),
            }
        }
        Ok(None)
    }

    pub(crate) async fn finish(&mut self) -> Result<v1::Finished, Status> {
        Ok(self.until(|_| false).await?.expect("only Finished ends the reading"))
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

/// Waits until the orchestrator says what is expected of itself.
pub(crate) async fn until_described(
    node: &Node,
    what: &str,
    done: impl Fn(&v1::OrchestratorDescription) -> bool,
) -> v1::OrchestratorDescription {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let description = within(foretoken_testkit::client::describe(node)).await;
        if done(&description) {
            return description;
        }
        assert!(Instant::now() < deadline, "{what}: {description:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
