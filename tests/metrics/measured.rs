//! Service processes whose metrics and log lines can be read.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foretoken_proto::v1;
use foretoken_proto::v1::generate_response::Event;
use foretoken_testkit::client::{Answer, events_at, samples_at};
use foretoken_tests::process::{foretoken, signal, test_model, until, wait};
use serde_json::Value;
use tonic::transport::Channel;

use crate::exposition::Page;

/// Positions of the test clusters' KV caches.
pub(crate) const KV_TOKENS: &str = "4096";

/// The n-gram table of the default model.
const TABLE: &str = "SmolLM2-135M-Instruct";

/// A service that logs JSON and serves its metrics on a free port. Dropping it kills it.
pub(crate) struct Measured {
    child: Child,
    /// Where it serves.
    pub(crate) address: String,
    /// Where its metrics are.
    pub(crate) metrics: String,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Measured {
    pub(crate) fn start(kind: &str, args: &[&str]) -> Self {
        let mut child = Command::new(foretoken())
            .arg(kind)
            .args(["--announce", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
            .args(["--log-format", "json", "--log-filter", "info"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (log, seen) = (child.stderr.take().unwrap(), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                seen.lock().unwrap().push(line);
            }
        });
        let announcement = BufReader::new(child.stdout.take().unwrap()).lines().next();
        let Some(Ok(announcement)) = announcement else {
            panic!("{kind} ended before it served: {:?}", lines.lock().unwrap());
        };
        let announced: Value = serde_json::from_str(&announcement).unwrap();
        let address = announced["address"].as_str().unwrap().to_owned();
        let served = |line: &Value| line["fields"]["message"] == "serving /metrics";
        let mut metrics = None;
        let told = until(Duration::from_secs(10), || {
            let lines = lines.lock().unwrap();
            let line = lines.iter().find(|line| served(line));
            metrics = line.and_then(|line| Some(line["fields"]["address"].as_str()?.to_owned()));
            metrics.is_some()
        });
        assert!(told, "{kind} did not tell where its metrics are: {:?}", lines.lock().unwrap());
        Self { child, address, metrics: metrics.unwrap(), lines }
    }

    /// What it has logged so far.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    /// Its metrics now.
    pub(crate) fn scrape(&self) -> Page {
        let (status, body) = get(&self.metrics, "/metrics");
        assert_eq!(status, 200, "{body}");
        Page::parse(&body)
    }

    /// Ends it in order.
    pub(crate) fn terminate(mut self) {
        signal(self.child.id(), "TERM");
        assert!(wait(&mut self.child, Duration::from_secs(30)).success());
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Three services over the default model, drafting from the text itself.
pub(crate) struct Cluster {
    pub(crate) orchestrator: Measured,
    pub(crate) draft_worker: Measured,
    pub(crate) verifier: Measured,
}

impl Cluster {
    pub(crate) fn start(args: &[&str]) -> Self {
        let model = test_model();
        let verifier = ["--model", &model.to_string_lossy(), "--kv-tokens", KV_TOKENS];
        let verifier = Measured::start("target-verifier", &[&verifier, args].concat());
        let draft_worker =
            Measured::start("draft-worker", &[&["--model", "ngram", "--ngram-table", TABLE], args].concat());
        let workers = ["--verifiers", &verifier.address, "--draft-workers", &draft_worker.address];
        let orchestrator = Measured::start("orchestrator", &[&workers, args].concat());
        let cluster = Self { orchestrator, draft_worker, verifier };
        let ready = until(Duration::from_secs(30), || {
            let page = cluster.orchestrator.scrape();
            page.sum("foretoken_workers_ready") == 2.0
        });
        assert!(ready, "{:?}", cluster.orchestrator.lines());
        cluster
    }

    /// Sends a request and reads its answers.
    pub(crate) fn ask(&self, request: v1::GenerateRequest) -> Result<Vec<Answer>, tonic::Status> {
        self.call(async |channel| samples_at(channel, request).await)
    }

    /// Sends a request and goes when so many tokens have come, or a few more. Gives their number.
    pub(crate) fn ask_and_leave(&self, request: v1::GenerateRequest, tokens: usize) -> usize {
        self.call(async |channel| {
            let mut events = events_at(channel, request).await.unwrap();
            let mut read = 0;
            while read < tokens {
                if let Some(Event::Tokens(event)) = events.message().await.unwrap().unwrap().event {
                    read += event.tokens.len();
                }
            }
            read
        })
    }

    fn call<T>(&self, call: impl AsyncFnOnce(Channel) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = foretoken_transport::ChannelConfig::default();
            call(foretoken_transport::channel(&self.orchestrator.address, &config).unwrap()).await
        })
    }
}

/// A request whose answer repeats itself, so that drafting from the text finds something.
pub(crate) fn request(max_tokens: u32) -> v1::GenerateRequest {
    v1::GenerateRequest {
        prompt: Some(v1::generate_request::Prompt::Text(
            "one two three one two three one two three one two".into(),
        )),
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        ..v1::GenerateRequest::default()
    }
}

/// Status and body of a GET over HTTP/1.1.
pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
