//! Connections against the kernel, and the two ends of one against each other.

use std::sync::Arc;

use foretoken_orchestrator::Config;
use foretoken_testkit::client::{generate_at, ids_request};
use foretoken_testkit::cluster::{Cluster, ngram};
use foretoken_testkit::pki::{Pki, Security};
use foretoken_transport::{WireConnection, WireRole, wire_connections, wire_totals};

use crate::{draft, kernel, only_one_to, target, until};

fn counted(connection: &WireConnection) -> (u64, u64) {
    (connection.bytes().sent(), connection.bytes().received())
}

/// The other end of a connection, which is in this process too.
fn other_end(connection: &WireConnection) -> Arc<WireConnection> {
    let is_it = |other: &WireConnection| {
        other.role() == WireRole::Server
            && (other.local(), other.peer()) == (connection.peer(), connection.local())
    };
    wire_connections().into_iter().find(|other| is_it(other)).expect("both ends are counted")
}

/// Waits for a moment at which nothing is on its way, and compares. A count that is wrong stays wrong.
async fn check(connection: &WireConnection) {
    let other = other_end(connection);
    let (sent, received) = until("the kernel's count is ours", || {
        let ours = counted(connection);
        let kernels = kernel::count(connection.local(), connection.peer());
        let others = kernel::count(other.local(), other.peer());
        (kernels == ours && others == counted(&other) && counted(connection) == ours).then_some(ours)
    })
    .await;
    assert_eq!(counted(&other), (received, sent), "the two ends differ");
    assert!(sent > 100 && received > 100, "{connection:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_is_counted_as_by_the_kernel_at_both_ends() {
    compare_with_the_kernel(&Security::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn below_tls_too() {
    compare_with_the_kernel(&Pki::new("a CA").mutual()).await;
}

async fn compare_with_the_kernel(security: &Security) {
    let cluster = Cluster::start_secured(security, target(), vec![ngram(), draft()], Config::default()).await;
    let client = cluster.orchestrator.channel();
    let totals = [WireRole::Client, WireRole::Server].map(|role| (role, wire_totals(role).sent()));
    for round in 0..3 {
        let request = || generate_at(client.clone(), ids_request(&[0, 1, 2], 60 + round));
        let (a, b, c, d) = tokio::join!(request(), request(), request(), request());
        for answer in [a, b, c, d] {
            assert_eq!(answer.unwrap().ids().len(), 60 + round as usize);
        }
        for node in [&cluster.orchestrator, &cluster.verifier].into_iter().chain(&cluster.draft_workers) {
            check(&*only_one_to(node.address.port()).await).await;
        }
    }
    for (role, before) in totals {
        assert!(wire_totals(role).sent() > before + 10_000, "{role:?}");
    }
    drop(client);
}
