//! A Jaeger of our own, and what its query API says.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use foretoken_testkit::otlp::SeenSpan;
use foretoken_tests::process::until;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A running Jaeger. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Jaeger {
    child: Child,
    /// Where services export to.
    pub(crate) endpoint: String,
    /// Where its API is, and its pages where they were built in.
    pub(crate) address: String,
}

/// One edge of the graph of services.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dependency {
    pub(crate) parent: String,
    pub(crate) child: String,
}

impl Jaeger {
    /// Starts the binary that `tests/jaeger/build` made and waits until it answers.
    pub(crate) fn start() -> Self {
        let binary = std::env::var_os("FORETOKEN_TEST_JAEGER").map(PathBuf::from);
        let binary =
            binary.expect("FORETOKEN_TEST_JAEGER names Jaeger's binary; tests/jaeger/build makes it");
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("jaeger/config.yaml");
        let [otlp, http, grpc] = free_ports();
        let child = Command::new(binary)
            .arg("--config")
            .arg(config)
            .env("JAEGER_OTLP_PORT", otlp.to_string())
            .env("JAEGER_QUERY_HTTP_PORT", http.to_string())
            .env("JAEGER_QUERY_GRPC_PORT", grpc.to_string())
            .stdin(Stdio::null())
            .spawn()
            .expect("Jaeger starts");
        let address = format!("127.0.0.1:{http}");
        let mut jaeger = Self { child, endpoint: format!("http://127.0.0.1:{otlp}"), address };
        let answers = until(PATIENCE, || {
            let ended = jaeger.child.try_wait().unwrap();
            assert!(ended.is_none(), "Jaeger ended before it served: {ended:?}");
            jaeger.get("/api/services").is_some() && TcpStream::connect(("127.0.0.1", otlp)).is_ok()
        });
        assert!(answers, "Jaeger does not answer after {PATIENCE:?}");
        jaeger
    }

    /// The spans of the one trace with such an attribute on a span of `service`, once there are enough.
    pub(crate) fn trace(
        &self,
        service: &str,
        attribute: (&str, &str),
        enough: impl Fn(&[SeenSpan]) -> bool,
    ) -> Vec<SeenSpan> {
        let tags = serde_json::json!({ attribute.0: attribute.1 }).to_string();
        let path = format!("/api/traces?service={service}&tags={}", percent_encoded(&tags));
        let mut spans = Vec::new();
        let whole = until(PATIENCE, || {
            let Some(found) = self.get(&path) else { return false };
            let traces = found["data"].as_array().map(Vec::as_slice).unwrap_or_default();
            assert!(traces.len() <= 1, "{attribute:?} is in several traces: {traces:#?}");
            let Some(trace_id) = traces.first().and_then(|trace| trace["traceID"].as_str()) else {
                return false;
            };
            spans = self.trace_by_id(trace_id);
            enough(&spans)
        });
        assert!(whole, "the trace of {attribute:?} is not whole after {PATIENCE:?}: {spans:#?}");
        spans
    }

    /// A trace in the stable API's form, OTLP as JSON, its times as they were exported.
    pub(crate) fn trace_by_id(&self, trace_id: &str) -> Vec<SeenSpan> {
        let Some(found) = self.get(&format!("/api/v3/traces/{trace_id}?raw_traces=true")) else {
            return Vec::new();
        };
        let resources = list(&found["result"]["resourceSpans"]);
        resources.iter().flat_map(resource_spans).collect()
    }

    /// The graph of services, of everything seen so far. A service that calls itself is left out: those are the spans
    /// within one process.
    pub(crate) fn dependencies(&self) -> Vec<Dependency> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let found = self.get(&format!("/api/dependencies?endTs={now}&lookback=3600000")).unwrap();
        let text = |edge: &Value, key: &str| edge[key].as_str().unwrap().to_owned();
        let mut edges: Vec<_> = list(&found["data"])
            .iter()
            .map(|edge| Dependency { parent: text(edge, "parent"), child: text(edge, "child") })
            .filter(|edge| edge.parent != edge.child)
            .collect();
        edges.sort();
        edges
    }

    /// What the API answers, if it answers well.
    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        // HTTP/1.0: the body comes whole and ends with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split_whitespace().nth(1)?;
        if status == "200" { serde_json::from_str(body).ok() } else { None }
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Ports that are free now; all are held until the last is known, so that they differ.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn resource_spans(resource: &Value) -> Vec<SeenSpan> {
    let about = attributes(&resource["resource"]["attributes"]);
    let service = about.get("service.name").cloned().unwrap_or_default();
    let spans = list(&resource["scopeSpans"]).iter().flat_map(|scope| list(&scope["spans"]));
    spans.map(|span| seen_span(&service, span)).collect()
}

fn seen_span(service: &str, span: &Value) -> SeenSpan {
    let nanos = |value: &Value| text(value).parse::<u64>().unwrap_or_default();
    SeenSpan {
        service: service.to_owned(),
        name: text(&span["name"]),
        trace_id: text(&span["traceId"]),
        span_id: text(&span["spanId"]),
        parent_id: Some(text(&span["parentSpanId"])).filter(|id| !id.is_empty()),
        start_ns: nanos(&span["startTimeUnixNano"]),
        end_ns: nanos(&span["endTimeUnixNano"]),
        attributes: attributes(&span["attributes"]),
        events: list(&span["events"])
            .iter()
            .map(|event| (text(&event["name"]), nanos(&event["timeUnixNano"])))
            .collect(),
        links: list(&span["links"])
            .iter()
            .map(|link| (text(&link["traceId"]), text(&link["spanId"])))
            .collect(),
    }
}

fn attributes(attributes: &Value) -> BTreeMap<String, String> {
    let value = |value: &Value| -> Option<String> {
        let (_, value) = value.as_object()?.iter().next()?;
        // 64-bit integers are text in OTLP's JSON.
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let pair = |attribute: &Value| Some((text(&attribute["key"]), value(&attribute["value"])?));
    list(attributes).iter().filter_map(pair).collect()
}
