//! The cluster that the suites call, and many requests at once.

use std::sync::Arc;
use std::time::Duration;

use foretoken_draft_worker::Source;
use foretoken_engine::generate::Timeouts;
use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{Answer, generate};
use foretoken_testkit::cluster::{Cluster, host, ngram};
use foretoken_testkit::table::{Table, TableModel};
use foretoken_testkit::vocabulary::letters;
use foretoken_worker::Host;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Requests in work at once, unless a suite says otherwise: enough that passes are shared between sessions.
pub(crate) const AT_ONCE: usize = 24;

/// So long that one answer can hold thousands of sequences.
const CONTEXT: usize = 1 << 20;

/// A verifier over `target`, a draft worker over `draft`, and one that looks up n-grams.
pub(crate) async fn cluster(vocab: usize, target: Table, draft: Table) -> Cluster {
    cluster_of(vocab, target, vec![ngram(), Source::Model(served("draft", vocab, draft))]).await
}

/// A verifier over `target`, and these drafters.
pub(crate) async fn cluster_of(vocab: usize, target: Table, drafts: Vec<Source>) -> Cluster {
    Cluster::start(served("target", vocab, target), drafts, patient()).await
}

fn served(name: &str, vocab: usize, table: Table) -> Host {
    let config = RuntimeConfig { kv_tokens: Some(64 * CONTEXT), ..RuntimeConfig::default() };
    host(TableModel::new(name, vocab, CONTEXT, table), &letters(vocab, false).unwrap(), &config)
}

/// A busy machine is no fault here, nor one that stops for a while: nobody is given up for being slow.
pub(crate) fn patient() -> Config {
    let patience = Duration::from_secs(1800);
    Config { timeouts: Timeouts { draft: patience, verify: patience }, ..Config::default() }
}

/// The answers to `requests`, in their order, `at_once` in work at a time.
pub(crate) async fn answers(
    cluster: &Arc<Cluster>,
    requests: impl IntoIterator<Item = v1::GenerateRequest>,
    at_once: usize,
) -> Vec<Answer> {
    let room = Arc::new(Semaphore::new(at_once));
    let mut tasks = JoinSet::new();
    for (index, request) in requests.into_iter().enumerate() {
        let (cluster, room) = (Arc::clone(cluster), Arc::clone(&room));
        tasks.spawn(async move {
            let _place = room.acquire().await.unwrap();
            (index, generate(&cluster.orchestrator, request).await.unwrap())
        });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
