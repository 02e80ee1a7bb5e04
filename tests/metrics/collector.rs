//! The collector: what reaches it, and that nothing hangs on it.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foretoken_telemetry::metrics::names;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::measured::{Cluster, Measured, request};

/// Keeps what it is sent.
#[derive(Debug, Clone, Default)]
struct Sink(Arc<Mutex<Vec<ExportMetricsServiceRequest>>>);

#[tonic::async_trait]
impl MetricsService for Sink {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the foretoken binary"]
async fn metrics_are_pushed_under_the_names_that_are_scraped() {
    let sink = Sink::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder().add_service(MetricsServiceServer::new(sink.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    // What is left at the end is pushed at the end.
    let pushed = tokio::task::spawn_blocking(move || {
        let worker = Measured::start("draft-worker", &["--model", "ngram", "--otlp-endpoint", &endpoint]);
        let scraped: Vec<_> = worker.scrape().names().into_iter().map(str::to_owned).collect();
        worker.terminate();
        scraped
    });
    let scraped = pushed.await.unwrap();
    let pushes = sink.0.lock().unwrap().clone();
    let resource = &pushes.last().unwrap().resource_metrics[0];
    let mut pushed: Vec<_> = resource.scope_metrics.iter().flat_map(|scope| &scope.metrics).collect();
    pushed.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(pushed.iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>(), scraped);
    let sessions = pushed.iter().find(|metric| metric.name == names::SESSIONS.name).unwrap();
    assert_eq!(
        (sessions.unit.as_str(), sessions.description.as_str()),
        (names::SESSIONS.unit, names::SESSIONS.help)
    );
    let service = format!("{:?}", resource.resource);
    assert!(service.contains("foretoken-draft-worker"), "{service}");
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn a_collector_that_is_gone_or_never_answers_costs_no_request_and_few_lines() {
    // One that takes connections and says nothing; the other kind refuses them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (address.to_string(), silent)).unwrap();
    for collector in ["127.0.0.1:9", &silent.0] {
        let endpoint = format!("http://{collector}");
        let cluster = Cluster::start(&["--otlp-endpoint", &endpoint]);
        let began = Instant::now();
        // Longer than two pushes of spans, each of which fails.
        while began.elapsed() < Duration::from_secs(8) {
            let answer = cluster.ask(request(24)).unwrap().remove(0);
            assert_eq!(answer.tokens.len(), 24);
        }
        let lines = cluster.orchestrator.lines();
        let complaints: Vec<_> = lines
            .iter()
            .filter(|line| line["target"].as_str().is_some_and(|target| target.starts_with("opentelemetry")))
            .collect();
        assert!(complaints.len() <= 3, "each complaint comes once: {complaints:#?}");
        // It ends in good time all the same.
        let began = Instant::now();
        cluster.orchestrator.terminate();
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
}
