//! API keys at the orchestrator.

use std::path::Path;

use foretoken_orchestrator::Config;
use foretoken_orchestrator::keys::ApiKeys;
use foretoken_proto::error::reason_of;
use foretoken_proto::v1;
use foretoken_proto::v1::orchestrator_client::OrchestratorClient;
use foretoken_testkit::client::ids_request;
use foretoken_testkit::cluster::{Node, orchestrator, verifier};
use foretoken_testkit::pki::RELOAD_PERIOD;
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use crate::{model, until};

const ALICE: &str = "alice-0123456789";
const BOB: &str = "bob-0123456789-0";

async fn guarded(path: &Path) -> (Node, Node) {
    let keys = ApiKeys::load(path, RELOAD_PERIOD).unwrap();
    let worker = verifier(model(1)).await;
    let front = orchestrator(Config { api_keys: Some(keys), ..Config::default() }, &[&worker], &[]).await;
    // Without a key: probes need none.
    front.healthy().await;
    (front, worker)
}

fn with_header<T>(message: T, authorization: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(authorization) = authorization {
        request.metadata_mut().insert("authorization", authorization.parse().unwrap());
    }
    request
}

/// An answer's last event, if it comes to that.
async fn generate(node: &Node, authorization: Option<&str>) -> Result<(), Status> {
    let request = with_header(ids_request(&[0, 1, 2], 8), authorization);
    let mut events = OrchestratorClient::new(node.channel()).generate(request).await?.into_inner();
    let mut last = None;
    while let Some(event) = events.message().await? {
        last = event.event;
    }
    assert!(matches!(last, Some(v1::generate_response::Event::Finished(_))), "{last:?}");
    Ok(())
}

async fn describe(node: &Node, authorization: Option<&str>) -> Result<(), Status> {
    let request = with_header(v1::DescribeRequest {}, authorization);
    OrchestratorClient::new(node.channel()).describe(request).await.map(|_| ())
}

#[track_caller]
fn refused(outcome: Result<(), Status>, reason: &str, text: &str) {
    let status = outcome.unwrap_err();
    assert_eq!((status.code(), reason_of(&status).as_deref()), (Code::Unauthenticated, Some(reason)));
    assert!(status.message().contains(text), "{status:?}");
    assert!(!format!("{status:?}").contains("0123456789"), "a key is shown: {status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_the_service_needs_a_key_and_no_other_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    std::fs::write(&path, format!("# clients\nalice {ALICE}\nbob {BOB}\n")).unwrap();
    let (front, _worker) = guarded(&path).await;

    for key in [ALICE, BOB] {
        let authorization = format!("Bearer {key}");
        generate(&front, Some(&authorization)).await.unwrap();
        describe(&front, Some(&authorization)).await.unwrap();
    }
    generate(&front, Some(&format!("bearer {ALICE}"))).await.unwrap();
    for outcome in [generate(&front, None).await, describe(&front, None).await] {
        refused(outcome, "API_KEY_MISSING", "send the metadata `authorization: Bearer KEY`");
    }
    let wrong = format!("Bearer {ALICE}-");
    for outcome in [generate(&front, Some(&wrong)).await, describe(&front, Some(&wrong)).await] {
        refused(outcome, "API_KEY_INVALID", "none that this orchestrator knows");
    }
    for malformed in [ALICE.to_owned(), format!("Basic {ALICE}"), "Bearer".to_owned(), String::new()] {
        refused(generate(&front, Some(&malformed)).await, "API_KEY_INVALID", "is not `Bearer KEY`");
    }
    refused(generate(&front, Some("Bearer ")).await, "API_KEY_INVALID", "`authorization`");

    // Methods that are not there tell nothing either, and reflection is open.
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut replies = ServerReflectionClient::new(front.channel())
        .server_reflection_info(tokio_stream::iter([question]))
        .await
        .unwrap()
        .into_inner();
    replies.next().await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_and_go_with_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    std::fs::write(&path, format!("alice {ALICE}")).unwrap();
    let (front, _worker) = guarded(&path).await;
    let (alice, bob) = (format!("Bearer {ALICE}"), format!("Bearer {BOB}"));
    generate(&front, Some(&alice)).await.unwrap();
    refused(generate(&front, Some(&bob)).await, "API_KEY_INVALID", "was it replaced?");

    std::fs::write(&path, format!("bob {BOB}")).unwrap();
    until("the new key is taken", async || generate(&front, Some(&bob)).await.is_ok()).await;
    refused(generate(&front, Some(&alice)).await, "API_KEY_INVALID", "was it replaced?");

    // A slip locks nobody out.
    for bad in ["", "bob short", "one two three"] {
        std::fs::write(&path, bad).unwrap();
        tokio::time::sleep(RELOAD_PERIOD * 5).await;
        generate(&front, Some(&bob)).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let load = || ApiKeys::load(&path, RELOAD_PERIOD).unwrap_err().to_string();
    assert!(load().contains("cannot be read"), "{}", load());
    std::fs::write(&path, "\nalice short").unwrap();
    let error = load();
    assert!(
        error.starts_with("--api-keys ") && error.contains("line 2: its key has 5 characters"),
        "{error}"
    );
}
