//! Where the spans of this process go: one collector for all tests, on a runtime that outlives each of them.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use foretoken_telemetry::{TelemetryConfig, TelemetryGuard, init, names};
use foretoken_testkit::otlp::{SeenSpan, Sink};
use tokio::runtime::Runtime;

/// Longer than the exporter keeps a span, and than a loaded machine takes to hand it over.
const PATIENCE: Duration = Duration::from_secs(30);

struct Collected {
    runtime: Runtime,
    sink: Sink,
    _telemetry: TelemetryGuard,
}

static COLLECTED: LazyLock<Collected> = LazyLock::new(|| {
    let runtime = Runtime::new().unwrap();
    let (sink, telemetry) = runtime.block_on(async {
        let sink = Sink::start().await;
        let config = TelemetryConfig {
            otlp_endpoint: Some(sink.endpoint.clone()),
            log_filter: "off".into(),
            ..TelemetryConfig::new("foretoken-test")
        };
        (sink, init(&config).unwrap())
    });
    Collected { runtime, sink, _telemetry: telemetry }
});

/// Runs a test under the collector.
pub(crate) fn collected<T>(test: impl Future<Output = T>) -> T {
    COLLECTED.runtime.block_on(test)
}

/// The spans of a trace, once there are enough of them.
pub(crate) async fn spans_of(trace_id: &str, enough: impl Fn(&[SeenSpan]) -> bool) -> Vec<SeenSpan> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut spans = COLLECTED.sink.spans();
        spans.retain(|span| span.trace_id == trace_id);
        if enough(&spans) {
            return spans;
        }
        assert!(Instant::now() < deadline, "the trace is not whole after {PATIENCE:?}: {spans:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Every span that came so far.
pub(crate) fn all_spans() -> Vec<SeenSpan> {
    COLLECTED.sink.spans()
}

/// The trace of an answer, by the id that its reply names.
pub(crate) async fn trace_of_request(request_id: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let spans = COLLECTED.sink.spans();
        let root = spans.iter().find(|span| span.text(names::REQUEST_ID) == Some(request_id));
        if let Some(root) = root {
            return root.trace_id.clone();
        }
        assert!(Instant::now() < deadline, "no span of {request_id} after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
