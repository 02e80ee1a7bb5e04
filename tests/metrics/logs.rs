//! Log lines lead to traces, and name the request.

use std::time::Duration;

use foretoken_proto::v1;
use foretoken_telemetry::names::REQUEST_ID;
use foretoken_tests::process::until;

use crate::measured::{Cluster, request};

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn lines_of_a_sampled_request_have_its_trace_and_its_id() {
    // Nobody listens there: that must matter to nobody.
    let cluster = Cluster::start(&["--otlp-endpoint", "http://127.0.0.1:9"]);
    let request = v1::GenerateRequest { request_id: "of-this-test".into(), ..request(8) };
    cluster.ask(request).unwrap();
    let mut lines = Vec::new();
    let told = until(Duration::from_secs(5), || {
        lines = cluster.orchestrator.lines();
        lines.iter().any(|line| line["fields"]["message"] == "answer finished")
    });
    assert!(told, "{lines:#?}");
    let line = lines.iter().find(|line| line["fields"]["message"] == "answer finished").unwrap();
    let hex = |field: &str, len| {
        line[field]
            .as_str()
            .is_some_and(|id| id.len() == len && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    assert!(hex("trace_id", 32) && hex("span_id", 16), "{line:#}");
    assert_eq!(line["span"][REQUEST_ID], "of-this-test", "{line:#}");
    let outside = lines.iter().find(|line| line["fields"]["message"] == "serving").unwrap();
    assert!(outside.get("trace_id").is_none(), "{outside:#}");
}
