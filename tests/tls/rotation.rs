//! Certificates change under running services, as a Kubernetes Secret's do.

use std::path::Path;
use std::time::Duration;

use foretoken_proto::service_name;
use foretoken_testkit::pki::{Pki, RELOAD_PERIOD};
use foretoken_transport::{ChannelConfig, channel, wait_healthy};

use crate::{ask, listening, until};

/// Puts a copy of one file in another's place.
fn replace(place: &Path, with: &Path) {
    let beside = place.with_extension("beside");
    std::fs::copy(with, &beside).unwrap();
    std::fs::rename(beside, place).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_for_new_connections_and_a_bad_one_for_none() {
    let (old, new) = (Pki::new("the old CA"), Pki::new("the new CA"));
    let (served, next) = (old.loopback("server"), new.loopback("server"));
    let node = listening(Some(old.server(&served, false))).await;
    let address = node.address.to_string();
    let established = channel(&address, &ChannelConfig::with_tls(Some(old.client(None)))).unwrap();
    let still_there = async || {
        wait_healthy(established.clone(), service_name::TARGET_VERIFIER, Duration::from_secs(5))
            .await
            .unwrap();
    };
    still_there().await;

    // A pair that does not fit is not used, in the middle of a rotation or for good.
    replace(&served.certificate, &next.certificate);
    tokio::time::sleep(RELOAD_PERIOD * 5).await;
    assert_eq!(ask(&address, Some(old.client(None))).await, Ok(()));

    replace(&served.key, &next.key);
    until("the new certificate is served", async || ask(&address, Some(new.client(None))).await.is_ok())
        .await;
    let refused = ask(&address, Some(old.client(None))).await.unwrap_err();
    assert!(refused.contains("--tls-ca"), "{refused}");
    // It could not connect again: it never had to.
    still_there().await;

    for bad in ["", "no certificate at all"] {
        std::fs::write(&served.certificate, bad).unwrap();
        tokio::time::sleep(RELOAD_PERIOD * 5).await;
        assert_eq!(ask(&address, Some(new.client(None))).await, Ok(()));
    }
    std::fs::remove_file(&served.certificate).unwrap();
    tokio::time::sleep(RELOAD_PERIOD * 5).await;
    assert_eq!(ask(&address, Some(new.client(None))).await, Ok(()));
    replace(&served.certificate, &next.certificate);
    still_there().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_follows_its_files_too() {
    let (old, new) = (Pki::new("the old CA"), Pki::new("the new CA"));
    let node = listening(Some(new.server(&new.loopback("server"), true))).await;
    let address = node.address.to_string();
    let identity = old.loopback("client");
    let tls = old.client(Some(&identity));
    let refused = ask(&address, Some(tls.clone())).await.unwrap_err();
    assert!(refused.contains("--tls-ca"), "{refused}");

    replace(&old.ca(), &new.ca());
    until("the new CA is trusted", async || {
        let refused = ask(&address, Some(tls.clone())).await.unwrap_err();
        refused.contains("does not take our certificate")
    })
    .await;
    let next = new.loopback("client");
    replace(&identity.certificate, &next.certificate);
    replace(&identity.key, &next.key);
    until("the new certificate is shown", async || ask(&address, Some(tls.clone())).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_removed_authority_get_in_no_more() {
    let (old, new) = (Pki::new("the old CA"), Pki::new("the new CA"));
    let server = old.loopback("server");
    let node = listening(Some(old.server(&server, true))).await;
    let address = node.address.to_string();
    let client = old.loopback("client");
    // A copy, so that only the server's view changes.
    let trusted = old.path("trusted.pem");
    std::fs::copy(old.ca(), &trusted).unwrap();
    let identity = Some((client.certificate.as_path(), client.key.as_path()));
    let tls = foretoken_transport::ClientTls::load(&trusted, identity, RELOAD_PERIOD).unwrap();
    assert_eq!(ask(&address, Some(tls.clone())).await, Ok(()));
    replace(&old.ca(), &new.ca());
    until("the client is refused", async || {
        ask(&address, Some(tls.clone()))
            .await
            .is_err_and(|error| error.contains("does not take our certificate"))
    })
    .await;
}
