//! A drain ends in time over TLS as over plaintext, and a peer that dies is noticed as over plaintext.

use std::time::{Duration, Instant};

use foretoken_orchestrator::Config;
use foretoken_testkit::client::{events_at, generate, ids_request};
use foretoken_testkit::cluster::{Cluster, ngram};
use foretoken_testkit::pki::Pki;
use foretoken_transport::{ChannelConfig, channel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{PATIENCE, ask, listening, model};

#[tokio::test(flavor = "multi_thread")]
async fn silent_and_unfinished_connections_do_not_hold_up_the_end() {
    let pki = Pki::new("a CA");
    let node = listening(Some(pki.server(&pki.loopback("server"), false))).await;
    let tls = pki.client(None);
    assert_eq!(ask(&node.address.to_string(), Some(tls.clone())).await, Ok(()));
    // One that says nothing, one in the middle of its handshake, one that does not speak TLS at all, one idle behind it.
    let mut silent = TcpStream::connect(node.address).await.unwrap();
    let mut unfinished = TcpStream::connect(node.address).await.unwrap();
    unfinished.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
    let mut foreign = TcpStream::connect(node.address).await.unwrap();
    foreign.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let idle = channel(&node.address.to_string(), &ChannelConfig::with_tls(Some(tls))).unwrap();
    foretoken_transport::wait_healthy(idle.clone(), "foretoken.v1.TargetVerifier", PATIENCE).await.unwrap();

    let begun = Instant::now();
    node.drain.begin();
    for tcp in [&mut silent, &mut unfinished, &mut foreign] {
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(PATIENCE, tcp.read_to_end(&mut rest)).await;
        closed.expect("it is closed").ok();
    }
    node.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_in_work_are_finished_and_what_lasts_too_long_is_cut() {
    let security = Pki::new("a CA").mutual();
    let cluster = Cluster::start_secured(&security, model(1), vec![ngram()], Config::default()).await;
    let mut events = events_at(cluster.orchestrator.channel(), ids_request(&[0, 1, 2], 400)).await.unwrap();
    events.message().await.unwrap().unwrap();
    cluster.orchestrator.drain.begin();
    let mut last = None;
    while let Some(event) = events.message().await.unwrap() {
        last = event.event;
    }
    assert!(matches!(last, Some(foretoken_proto::v1::generate_response::Event::Finished(_))), "{last:?}");

    // A verifier that is gone from one moment to the next breaks streams and is named; nobody hangs.
    let cluster = Cluster::start_secured(&security, model(1), vec![], Config::default()).await;
    let mut events = events_at(cluster.orchestrator.channel(), ids_request(&[0, 1, 2], 4000)).await.unwrap();
    events.message().await.unwrap().unwrap();
    let (verifier, orchestrator) = (cluster.verifier, cluster.orchestrator);
    verifier.stop().await;
    let broken = tokio::time::timeout(PATIENCE, async {
        loop {
            match events.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    });
    // It may have been quick enough.
    if let Some(status) = broken.await.unwrap() {
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    }
    let refused =
        tokio::time::timeout(PATIENCE, generate(&orchestrator, ids_request(&[0], 4))).await.unwrap();
    assert_eq!(refused.unwrap_err().code(), tonic::Code::Unavailable);
}
