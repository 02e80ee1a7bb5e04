//! A real Prometheus scrapes the services with the deployment's rules, and answers.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use foretoken_telemetry::metrics::names;
use foretoken_tests::process::until;
use serde_json::Value;

use crate::artifacts::deploy;
use crate::measured::{Cluster, get, request};

/// A Prometheus of our own. Dropping it kills it.
struct Prometheus {
    child: Child,
    address: String,
    _data: tempfile::TempDir,
}

impl Prometheus {
    fn start(jobs: &[(&str, &str)], rules: &Path) -> Self {
        let data = tempfile::tempdir().unwrap();
        let targets: String = jobs
            .iter()
            .map(|(job, address)| {
                format!("  - job_name: {job}\n    static_configs:\n      - targets: [\"{address}\"]\n")
            })
            .collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\nscrape_configs:\n{targets}"
        );
        let path = data.path().join("prometheus.yaml");
        std::fs::write(&path, config).unwrap();
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", data.path().join("data").display()))
            .args(["--web.listen-address=127.0.0.1:0", "--log.format=json"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("prometheus does not start ({error}); install it: apt-get install --no-install-recommends prometheus")
            });
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let address = log.by_ref().find_map(|line| {
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            said.push(line);
            let listens = event["msg"] == "Listening on";
            event["address"].as_str().filter(|_| listens).map(str::to_owned)
        });
        let address = address.unwrap_or_else(|| panic!("prometheus did not listen: {said:#?}"));
        // A full pipe would stop it.
        std::thread::spawn(move || log.for_each(drop));
        let prometheus = Self { child, address, _data: data };
        let ready = || get(&prometheus.address, "/-/ready").0 == 200;
        assert!(until(Duration::from_secs(30), ready), "prometheus is not ready");
        prometheus
    }

    /// The value of the one series that answers a query; none if there is none yet.
    fn value(&self, query: &str) -> Option<f64> {
        let encoded: String = query
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
                other => format!("%{other:02X}"),
            })
            .collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}"));
        let series = answer["data"]["result"].as_array().unwrap();
        assert!(series.len() <= 1, "{query}: {answer}");
        series.first()?["value"][1].as_str()?.parse().ok()
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = get(&self.address, path);
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        assert!(status == 200 && answer["status"] == "success", "{path}: {status} {body}");
        answer
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL, the foretoken binary and Prometheus"]
fn a_real_prometheus_scrapes_three_services_and_answers() {
    let cluster = Cluster::start(&[]);
    let answer = cluster.ask(request(40)).unwrap().remove(0);
    let jobs = [
        ("foretoken-orchestrator", cluster.orchestrator.metrics.as_str()),
        ("foretoken-draft-worker", cluster.draft_worker.metrics.as_str()),
        ("foretoken-target-verifier", cluster.verifier.metrics.as_str()),
    ];
    let rules: PathBuf = deploy("prometheus/alerts.yaml");
    let prometheus = Prometheus::start(&jobs, &rules);
    let ready =
        until(Duration::from_secs(30), || prometheus.value("sum(up{job=~\"foretoken-.+\"})") == Some(3.0));
    assert!(ready, "{}", prometheus.get("/api/v1/targets"));

    let ledger = answer.ledger();
    let sum = |name: &str| prometheus.value(&format!("sum({name})"));
    assert_eq!(sum(names::GENERATION_TOKENS.name), Some(f64::from(ledger.output_tokens)));
    let accepted = prometheus.value(&format!("{}{{origin=\"accepted\"}}", names::GENERATION_TOKENS.name));
    assert_eq!(accepted, Some(f64::from(ledger.accepted)));
    assert_eq!(sum(names::SAVED_PASSES.name), Some(f64::from(ledger.saved_passes)));
    // A quantile is the proof that the buckets are buckets to Prometheus too.
    let bucket = format!("{}_bucket", names::E2E_LATENCY.name);
    let median = prometheus.value(&format!("histogram_quantile(0.5, sum by (le) ({bucket}))")).unwrap();
    assert!(median > 0.0 && median < 300.0, "{median}");

    // Every alert can be evaluated over what the services really serve, and none fires over a healthy cluster.
    let mut evaluated = Value::Null;
    let all_ok = until(Duration::from_secs(30), || {
        evaluated = prometheus.get("/api/v1/rules");
        let rules = evaluated["data"]["groups"][0]["rules"].as_array().unwrap();
        rules.len() >= 8 && rules.iter().all(|rule| rule["health"] == "ok")
    });
    assert!(all_ok, "{evaluated:#}");
    assert_eq!(prometheus.value("count(ALERTS{alertstate=\"firing\"})"), None);

    // A worker that is gone is seen.
    drop(cluster.verifier);
    let gone = until(Duration::from_secs(30), || {
        prometheus.value("up{job=\"foretoken-target-verifier\"}") == Some(0.0)
            && prometheus.value("foretoken_workers_ready{role=\"verifier\"}") == Some(0.0)
    });
    assert!(gone);
    let pending = || {
        prometheus.value("count(ALERTS{alertname=~\"ForetokenDown|ForetokenNoVerifierReady\"})") == Some(2.0)
    };
    assert!(until(Duration::from_secs(10), pending), "{:#}", prometheus.get("/api/v1/alerts"));
}
