//! Three services with mutual TLS between all of them, and clients.

use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_testkit::client::{describe, generate, generate_at, ids_request};
use foretoken_testkit::cluster::{ANY_PORT, Cluster, ngram, orchestrator_secured, verifier_secured};
use foretoken_testkit::pki::{Pki, Security, Validity};
use foretoken_tests::ledger::check;
use futures_util::future::join_all;

use crate::{draft, model, until};

fn request(seed: u64) -> v1::GenerateRequest {
    v1::GenerateRequest { seed: Some(seed), rounds: true, ..ids_request(&[0, 1, 2], 40) }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_cluster_writes_what_a_plain_one_does() {
    let pki = Pki::new("a CA");
    let start = async |security: &Security| {
        Cluster::start_secured(security, model(1), vec![draft(), ngram()], Config::default()).await
    };
    let (plain, encrypted) = (start(&Security::default()).await, start(&pki.mutual()).await);
    let client = encrypted.orchestrator.channel();
    for rule in [v1::Rule::Token, v1::Rule::Block, v1::Rule::Gumbel] {
        for drafter in [v1::DrafterKind::Model, v1::DrafterKind::Ngram, v1::DrafterKind::None] {
            let ask =
                |seed| v1::GenerateRequest { rule: rule.into(), drafter: drafter.into(), ..request(seed) };
            for answer in join_all((0..4).map(|seed| generate_at(client.clone(), ask(seed)))).await {
                check(&answer.unwrap());
            }
            if rule == v1::Rule::Gumbel {
                let (ours, theirs) =
                    (generate_at(client.clone(), ask(9)).await, generate(&plain.orchestrator, ask(9)).await);
                assert_eq!(ours.unwrap().ids(), theirs.unwrap().ids());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_under_a_name_is_verified_by_its_name() {
    let pki = Pki::new("a CA");
    let named = pki.issue("named", &["localhost"], Validity::Now);
    let security =
        Security { server: Some(pki.server(&named, true)), client: Some(pki.client(Some(&named))) };
    let verifier = verifier_secured(&security, ANY_PORT, model(1)).await;
    let front = async |address: String| {
        let config = Config { verifiers: vec![address], ..Config::default() };
        orchestrator_secured(&Security { server: None, ..security.clone() }, config).await
    };
    let port = verifier.address.port();
    let by_name = front(format!("dns:///localhost:{port}")).await;
    // Clients of the orchestrator itself are not asked for anything here.
    let by_name = by_name.linked(Default::default());
    by_name.healthy().await;
    assert!(
        describe(&by_name)
            .await
            .verifiers
            .iter()
            .any(|verifier| verifier.address == format!("127.0.0.1:{port}"))
    );
    check(&generate(&by_name, request(1)).await.unwrap());

    let by_address = front(verifier.address.to_string()).await.linked(Default::default());
    until("the certificate is refused", async || {
        let states = describe(&by_address).await.verifiers;
        states[0].message.contains("is not for 127.0.0.1 but for localhost; --tls-server-name")
    })
    .await;
    // Which needs no encryption to be said.
    assert_eq!(describe(&by_address).await.verifiers[0].reason, "UNREACHABLE");
}
