//! A collector of traces for tests: takes OTLP over gRPC and shows what came.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// A span as a collector saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenSpan {
    /// The process's `service.name`.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Lower-case hex.
    pub trace_id: String,
    /// Lower-case hex.
    pub span_id: String,
    /// Lower-case hex; `None` of a trace's root.
    pub parent_id: Option<String>,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub end_ns: u64,
    /// Attributes, numbers as text.
    pub attributes: BTreeMap<String, String>,
    /// Names of the events and when they were, nanoseconds since 1970.
    pub events: Vec<(String, u64)>,
    /// Trace and span ids of the links.
    pub links: Vec<(String, String)>,
}

impl SeenSpan {
    /// An attribute's text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// An attribute that is a whole number.
    ///
    /// # Panics
    /// If it is absent or something else.
    #[must_use]
    pub fn number(&self, name: &str) -> i64 {
        let text = self.text(name).unwrap_or_else(|| panic!("{self:?} lacks {name}"));
        text.parse().unwrap_or_else(|_| panic!("{name} is {text}, no whole number"))
    }
}

/// A running collector. Dropping it ends it.
#[derive(Debug)]
pub struct Sink {
    /// Where services export to.
    pub endpoint: String,
    spans: Arc<Mutex<Vec<SeenSpan>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Sink {
    /// Starts a collector on a free port.
    ///
    /// # Panics
    /// If there is none.
    pub async fn start() -> Self {
        Self::start_slow(Duration::ZERO).await
    }

    /// Starts a collector that takes so long over every export.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start_slow(delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound port"));
        let spans = Arc::new(Mutex::new(Vec::new()));
        let service = TraceServiceServer::new(Collector { spans: Arc::clone(&spans), delay });
        let serving =
            Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
        let task =
            tokio::spawn(async move { serving.await.expect("the collector serves until it is dropped") });
        Self { endpoint, spans, task }
    }

    /// Everything that came so far.
    #[must_use]
    pub fn spans(&self) -> Vec<SeenSpan> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Collector {
    spans: Arc<Mutex<Vec<SeenSpan>>>,
    delay: Duration,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        tokio::time::sleep(self.delay).await;
        let seen = request.into_inner().resource_spans.into_iter().flat_map(seen);
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).extend(seen);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn seen(spans: ResourceSpans) -> Vec<SeenSpan> {
    let resource = spans.resource.map(|resource| attributes(resource.attributes)).unwrap_or_default();
    let service = resource.get("service.name").cloned().unwrap_or_default();
    let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
    spans.map(|span| seen_span(&service, span)).collect()
}

fn seen_span(service: &str, span: Span) -> SeenSpan {
    SeenSpan {
        service: service.to_owned(),
        name: span.name,
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_id: (!span.parent_span_id.is_empty()).then(|| hex(&span.parent_span_id)),
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        attributes: attributes(span.attributes),
        events: span.events.into_iter().map(|event| (event.name, event.time_unix_nano)).collect(),
        links: span.links.into_iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
    }
}

fn attributes(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes
        .into_iter()
        .filter_map(|attribute| {
            let text = match attribute.value?.value? {
                Value::StringValue(text) => text,
                Value::BoolValue(value) => value.to_string(),
                Value::IntValue(value) => value.to_string(),
                Value::DoubleValue(value) => value.to_string(),
                other => format!("{other:?}"),
            };
            Some((attribute.key, text))
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
