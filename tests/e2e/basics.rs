//! Requests that go well.

use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{generate, ids_request};
use foretoken_testkit::cluster::{Cluster, host, ngram};
use foretoken_testkit::table::{TableModel, random_table};
use foretoken_testkit::vocabulary::letters;

const VOCAB: usize = 8;

async fn cluster(drafts: Vec<foretoken_draft_worker::Source>) -> Cluster {
    let tokenizer = letters(VOCAB, false).unwrap();
    let target = TableModel::new("target", VOCAB, 4096, random_table(1, VOCAB, 0));
    Cluster::start(host(target, &tokenizer, &RuntimeConfig::default()), drafts, Config::default()).await
}

fn draft_model() -> foretoken_draft_worker::Source {
    let tokenizer = letters(VOCAB, false).unwrap();
    let model = TableModel::new("draft", VOCAB, 4096, random_table(2, VOCAB, 0));
    foretoken_draft_worker::Source::Model(host(model, &tokenizer, &RuntimeConfig::default()))
}

#[tokio::test(flavor = "multi_thread")]
async fn greedy_text_does_not_depend_on_the_drafter() {
    let cluster = cluster(vec![ngram(), draft_model()]).await;
    let mut request = ids_request(&[0, 1, 2], 200);
    request.drafter = v1::DrafterKind::None.into();
    let plain = generate(&cluster.orchestrator, request.clone()).await.unwrap();
    assert_eq!(plain.tokens.len(), 200);
    assert_eq!(plain.ledger().target_passes, 200);
    for kind in [v1::DrafterKind::Ngram, v1::DrafterKind::Model] {
        for draft_len in 1..=8 {
            request.drafter = kind.into();
            request.draft_len = Some(draft_len);
            let answer = generate(&cluster.orchestrator, request.clone()).await.unwrap();
            assert_eq!(answer.ids(), plain.ids(), "{kind:?} {draft_len}");
            assert_eq!(answer.text(), plain.text());
            let ledger = answer.ledger();
            assert!(ledger.drafted > 0, "{kind:?} drafted nothing: {:?}", answer.finished);
            assert_eq!(ledger.accepted + ledger.repair + ledger.bonus + ledger.plain, 200);
            assert_eq!(i64::from(ledger.saved_passes), 200 - i64::from(ledger.target_passes));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_as_its_own_draft_is_always_accepted() {
    let tokenizer = letters(VOCAB, false).unwrap();
    let model = || TableModel::new("target", VOCAB, 4096, random_table(1, VOCAB, 0));
    let draft = foretoken_draft_worker::Source::Model(host(model(), &tokenizer, &RuntimeConfig::default()));
    let cluster = cluster(vec![draft]).await;
    let mut request = ids_request(&[0, 1, 2], 500);
    request.draft_len = Some(4);
    let answer = generate(&cluster.orchestrator, request).await.unwrap();
    let ledger = answer.ledger();
    assert_eq!(ledger.accepted, ledger.drafted);
    assert_eq!(ledger.repair, 0);
    assert!(ledger.saved_passes > 350, "{ledger:?}");
}
