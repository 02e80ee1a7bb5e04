//! Dashboard, alerts and scrape example name what exists.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use foretoken_telemetry::metrics::{Kind, names};
use serde_json::Value;

/// A file of the deployment.
pub(crate) fn deploy(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy")).join(file).canonicalize().unwrap()
}

/// Everything in `text` that looks like one of our metrics.
fn named(text: &str) -> BTreeSet<String> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.match_indices("foretoken_")
        .filter(|&(at, _)| at == 0 || !word(text.as_bytes()[at - 1]))
        .map(|(at, _)| text[at..].bytes().take_while(|&byte| word(byte)).map(char::from).collect())
        .collect()
}

/// Names that Prometheus has for our constants.
fn exposed() -> BTreeSet<String> {
    names::ALL
        .iter()
        .flat_map(|metric| match metric.kind {
            Kind::Histogram(_) => {
                ["_bucket", "_sum", "_count"].map(|suffix| format!("{}{suffix}", metric.name)).to_vec()
            }
            Kind::Counter | Kind::Gauge => vec![metric.name.to_owned()],
        })
        .collect()
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let exposed = exposed();
    for (file, at_least) in [("grafana/foretoken.json", 30), ("prometheus/alerts.yaml", 10)] {
        let named = named(&std::fs::read_to_string(deploy(file)).unwrap());
        let unknown: Vec<_> = named.difference(&exposed).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
        assert!(named.len() >= at_least, "{file} names {} metrics", named.len());
    }
    assert_eq!(
        named("rate(foretoken_nope_total[5m]) + xforetoken_y").into_iter().collect::<Vec<_>>(),
        ["foretoken_nope_total"]
    );
    assert!(!exposed.contains("foretoken_nope_total"));
}

#[test]
fn every_panel_of_the_dashboard_queries_and_explains() {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(deploy("grafana/foretoken.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut places = BTreeSet::new();
    for panel in panels {
        assert!(places.insert(panel["gridPos"].to_string()), "{} lies on another", panel["title"]);
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{}", panel["title"]);
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            let expr = target["expr"].as_str().unwrap();
            assert!(expr.contains("job=~\"$job\",instance=~\"$instance\""), "{}: {expr}", panel["title"]);
        }
    }
    let variables: Vec<_> = dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| &variable["name"])
        .collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);
}

#[test]
#[ignore = "needs Prometheus"]
fn prometheus_accepts_rules_scrape_example_and_every_query() {
    let promtool = |args: &[&str]| {
        let output = Command::new("promtool").args(args).output().unwrap_or_else(|error| {
            panic!("promtool does not start ({error}); install it: apt-get install --no-install-recommends prometheus")
        });
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
    };
    promtool(&["check", "rules", &deploy("prometheus/alerts.yaml").to_string_lossy()]);
    promtool(&["check", "config", &deploy("prometheus/prometheus.yaml").to_string_lossy()]);

    // Grafana's variables filled in, each query must be one that Prometheus can parse: as rules, promtool reads them.
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(deploy("grafana/foretoken.json")).unwrap()).unwrap();
    let queries = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, target) in queries.enumerate() {
        let expr = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
        rules += &format!(
            "      - record: panel:query:{number}\n        expr: {}\n",
            serde_json::to_string(&expr).unwrap()
        );
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rules).unwrap();
    promtool(&["check", "rules", &file.path().to_string_lossy()]);
}
