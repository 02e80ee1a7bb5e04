//! What a client is told when a connection cannot be secured, and that the server serves on.

use std::time::{Duration, Instant};

use foretoken_testkit::pki::{Pki, Validity};
use foretoken_transport::{ChannelConfig, ServerTls, channel, wait_healthy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{PATIENCE, ask, listening};

#[track_caller]
fn told(outcome: Result<(), String>, text: &str) {
    let error = outcome.unwrap_err();
    assert!(error.contains(text), "{text:?} is not in {error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_disagreement_is_told_with_what_to_do() {
    let (ours, others) = (Pki::new("a CA"), Pki::new("another CA"));
    let server = ours.loopback("server");
    let own = ours.loopback("client");
    let foreign = others.loopback("client");
    let past = ours.issue("past", &["127.0.0.1"], Validity::Past);
    let elsewhere = ours.issue("elsewhere", &["verifier.example"], Validity::Now);

    let plain = listening(None).await;
    let encrypted = listening(Some(ours.server(&server, false))).await;
    let mutual = listening(Some(ours.server(&server, true))).await;
    let expired = listening(Some(ours.server(&past, false))).await;
    let misnamed = listening(Some(ours.server(&elsewhere, false))).await;
    let at = |node: &foretoken_testkit::cluster::Node| node.address.to_string();

    let trusting = || Some(ours.client(None));
    for round in 0..3 {
        told(ask(&at(&encrypted), None).await, "the server speaks TLS; give --tls-ca");
        told(
            ask(&format!("http://{}", at(&encrypted)), trusting()).await,
            "the server speaks TLS; give --tls-ca",
        );
        told(ask(&format!("https://{}", at(&encrypted)), None).await, "give --tls-ca");
        told(
            ask(&at(&plain), trusting()).await,
            "the server does not speak TLS; for a connection without, write http://",
        );
        told(ask(&at(&encrypted), Some(others.client(None))).await, "not signed by a CA that --tls-ca names");
        told(
            ask(&at(&misnamed), trusting()).await,
            "is not for 127.0.0.1 but for verifier.example; --tls-server-name",
        );
        told(ask(&at(&expired), trusting()).await, "the server's certificate has expired");
        told(
            ask(&at(&mutual), trusting()).await,
            "the server asks for a certificate; give --tls-client-cert",
        );
        let foreign = Some(foreign_client(&ours, &foreign));
        told(ask(&at(&mutual), foreign).await, "does not take our certificate: it is not signed by a CA");
        let gone = Some(foreign_client(&ours, &past));
        told(ask(&at(&mutual), gone).await, "does not take our certificate: it has expired");

        // None of which troubles anybody else.
        assert_eq!(ask(&at(&plain), None).await, Ok(()), "round {round}");
        assert_eq!(ask(&format!("http://{}", at(&plain)), trusting()).await, Ok(()));
        assert_eq!(ask(&at(&encrypted), trusting()).await, Ok(()));
        assert_eq!(ask(&format!("https://{}", at(&encrypted)), trusting()).await, Ok(()));
        assert_eq!(ask(&at(&mutual), Some(ours.client(Some(&own)))).await, Ok(()));
        let renamed = ours.client(None).verifying("verifier.example").unwrap();
        assert_eq!(ask(&at(&misnamed), Some(renamed)).await, Ok(()));
    }
}

/// Trusts one authority and shows a certificate of any.
fn foreign_client(trusted: &Pki, shown: &foretoken_testkit::pki::Identity) -> foretoken_transport::ClientTls {
    let identity = Some((shown.certificate.as_path(), shown.key.as_path()));
    foretoken_transport::ClientTls::load(&trusted.ca(), identity, Duration::from_secs(1)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let tls = Some(Pki::new("a CA").client(None));
    let config =
        ChannelConfig { connect_timeout: Duration::from_millis(100), ..ChannelConfig::with_tls(tls) };
    let channel = channel(&address, &config).unwrap();
    let error = wait_healthy(channel, "test.v1.Test", Duration::from_millis(400)).await.unwrap_err();
    assert!(error.to_string().ends_with("no connection with TLS within 100ms"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_dawdles_holds_up_nobody() {
    let pki = Pki::new("a CA");
    let node = listening(Some(pki.server(&pki.loopback("server"), false))).await;
    // More than may be in a handshake at once: some say nothing, some begin and stop.
    let mut dawdlers = Vec::new();
    for number in 0..600 {
        let mut tcp = TcpStream::connect(node.address).await.unwrap();
        if number % 2 == 0 {
            tcp.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
        }
        dawdlers.push(tcp);
    }
    let begun = Instant::now();
    assert_eq!(ask(&node.address.to_string(), Some(pki.client(None))).await, Ok(()));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // The oldest have been given up for it.
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, dawdlers[0].read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the first of them is still open");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_are_named_with_the_reason() {
    let (ours, others) = (Pki::new("a CA"), Pki::new("another CA"));
    let (one, two) = (ours.loopback("one"), others.loopback("two"));
    let write = |name: &str, text: &str| {
        let path = ours.path(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (empty, missing) = (write("empty.pem", ""), ours.path("missing.pem"));
    let broken = write("broken.pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
    let encrypted = write(
        "encrypted.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let no_der = write("no_der.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let ca = ours.ca();
    for (certificate, key, client_ca, parts) in [
        (&missing, &one.key, None, ["--tls-cert ", "missing.pem: it cannot be read"]),
        (&empty, &one.key, None, ["--tls-cert ", "empty.pem: it holds no certificate; give a PEM file"]),
        (&broken, &one.key, None, ["--tls-cert ", "broken.pem: it is no PEM file"]),
        (&no_der, &one.key, None, ["--tls-cert ", "no_der.pem: its first certificate is not valid"]),
        (&one.certificate, &missing, None, ["--tls-key ", "missing.pem: it cannot be read"]),
        (&one.certificate, &ca, None, ["--tls-key ", "ca.pem: it holds no private key; give a PEM file"]),
        (&one.certificate, &encrypted, None, ["--tls-key ", "encrypted.key: it holds no private key"]),
        (
            &one.certificate,
            &two.key,
            None,
            ["--tls-key ", "two.key: it is not the key of the first certificate in"],
        ),
        (
            &one.certificate,
            &one.key,
            Some(&empty),
            ["--tls-client-ca ", "empty.pem: it holds no certificate"],
        ),
        (
            &one.certificate,
            &one.key,
            Some(&no_der),
            ["--tls-client-ca ", "no_der.pem: a certificate in it cannot be trusted"],
        ),
    ] {
        let client_ca = client_ca.map(std::path::PathBuf::as_path);
        let loaded = ServerTls::load(certificate, key, client_ca, PATIENCE);
        let error = loaded.unwrap_err().to_string();
        assert!(error.starts_with(parts[0]) && error.contains(parts[1]), "{parts:?}: {error}");
    }
    for (ca, identity, parts) in [
        (&missing, None, ["--tls-ca ", "missing.pem: it cannot be read"]),
        (&empty, None, ["--tls-ca ", "empty.pem: it holds no certificate"]),
        (&ca, Some((&one.certificate, &two.key)), ["--tls-client-key ", "two.key: it is not the key of"]),
        (&ca, Some((&one.key, &one.key)), ["--tls-client-cert ", "one.key: it holds no certificate"]),
    ] {
        let identity = identity.map(|(certificate, key)| (certificate.as_path(), key.as_path()));
        let error = foretoken_transport::ClientTls::load(ca, identity, PATIENCE).unwrap_err().to_string();
        assert!(error.starts_with(parts[0]) && error.contains(parts[1]), "{parts:?}: {error}");
    }
}
