//! Three services as processes, the default model, and a real Jaeger between them and the test.

use std::time::Duration;

use foretoken_proto::v1;
use foretoken_telemetry::names;
use foretoken_testkit::client::generate_at;
use foretoken_tests::process::{Service, ready, test_model, until};
use tonic::transport::Channel;

use crate::query::{Dependency, Jaeger};
use crate::shape::Trace;

const ORCHESTRATOR: &str = "foretoken-orchestrator";
const VERIFIER: &str = "foretoken-target-verifier";
const DRAFT_WORKER: &str = "foretoken-draft-worker";

struct Traced {
    jaeger: Jaeger,
    _services: [Service; 3],
    channel: Channel,
}

async fn traced() -> Traced {
    let jaeger = Jaeger::start();
    // Jaeger takes no metrics.
    let export = ["--otlp-endpoint", jaeger.endpoint.as_str(), "--metrics-exporter", "none"];
    let verifier = Service::verifier_with(&export);
    let draft_worker = Service::draft_worker_with(&test_model().to_string_lossy(), &export);
    // However busy the machine is, no call is given up.
    let patient = [&export[..], &["--draft-timeout", "30s"]].concat();
    let orchestrator = Service::orchestrator(&verifier, &[&draft_worker], &patient);
    let channel = ready(&orchestrator, 1).await;
    Traced { jaeger, _services: [orchestrator, draft_worker, verifier], channel }
}

fn request(prompt: &str, max_tokens: u32) -> v1::GenerateRequest {
    v1::GenerateRequest {
        prompt: Some(v1::generate_request::Prompt::Text(prompt.into())),
        max_tokens: Some(max_tokens),
        drafter: v1::DrafterKind::Model.into(),
        draft_len: Some(3),
        ..v1::GenerateRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_JAEGER, FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn jaeger_shows_one_trace_of_three_services() {
    let traced = traced().await;
    let answer = generate_at(traced.channel.clone(), request("The capital of France is", 24)).await.unwrap();
    assert!(answer.ledger().blocks > 0, "{:?}", answer.ledger());
    let id = (names::REQUEST_ID, answer.started.request_id.as_str());
    let spans = traced.jaeger.trace(ORCHESTRATOR, id, Trace::is_whole);
    let trace = Trace(&spans);
    trace.check(answer.ledger());

    // Every span comes from the process that lived it.
    for span in &spans {
        let expected = match span.name.as_str() {
            names::SPAN_VERIFY_SESSION => VERIFIER,
            names::SPAN_DRAFT_SESSION => DRAFT_WORKER,
            names::SPAN_FRAME | names::SPAN_QUEUE | names::SPAN_PASS => {
                assert!([VERIFIER, DRAFT_WORKER].contains(&span.service.as_str()), "{span:#?}");
                continue;
            }
            _ => ORCHESTRATOR,
        };
        assert_eq!(span.service, expected, "{span:#?}");
    }
    let edge = |child: &str| Dependency { parent: ORCHESTRATOR.into(), child: child.into() };
    let expected = [edge(DRAFT_WORKER), edge(VERIFIER)];
    let mut edges = Vec::new();
    until(Duration::from_secs(20), || {
        edges = traced.jaeger.dependencies();
        edges == expected
    });
    assert_eq!(edges, expected);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FORETOKEN_TEST_JAEGER, FORETOKEN_TEST_MODEL and the foretoken binary"]
async fn jaeger_shows_who_shared_a_pass() {
    let traced = traced().await;
    let prompts = ["One, two, three,", "Monday, Tuesday,", "The sky is", "Once upon a time"];
    let together =
        prompts.map(|prompt| tokio::spawn(generate_at(traced.channel.clone(), request(prompt, 24))));
    let mut traces = Vec::new();
    for answer in together {
        let answer = answer.await.unwrap().unwrap();
        let id = (names::REQUEST_ID, answer.started.request_id.as_str());
        let spans = traced.jaeger.trace(ORCHESTRATOR, id, Trace::is_whole);
        Trace(&spans).check(answer.ledger());
        traces.push(spans);
    }
    let all: Vec<_> = traces.iter().flatten().collect();
    let mut links = 0;
    for pass in all.iter().filter(|span| span.name == names::SPAN_PASS) {
        assert!((pass.links.len() as i64) < pass.number(names::BATCH_SESSIONS), "{pass:#?}");
        for (trace_id, span_id) in &pass.links {
            let linked = all.iter().find(|span| span.trace_id == *trace_id && span.span_id == *span_id);
            let linked = linked.unwrap_or_else(|| panic!("{pass:#?} links a span that Jaeger does not know"));
            assert_eq!((linked.name.as_str(), &linked.service), (names::SPAN_FRAME, &pass.service));
            assert_ne!(linked.trace_id, pass.trace_id);
            assert!(
                linked.start_ns <= pass.start_ns && pass.end_ns <= linked.end_ns,
                "{pass:#?} was shared by {linked:#?}, which was not in work then"
            );
            links += 1;
        }
    }
    assert!(links > 0, "four answers at once shared no pass");
}
