//! The metrics as a page for operators.

use super::metric::{Kind, Metric, Service};
use super::names::ALL;

/// `deploy/metrics.md`'s tables: one per kind of service.
#[must_use]
pub fn markdown() -> String {
    let of = |service| {
        let rows: String = ALL.iter().filter(|metric| metric.service == service).map(row).collect();
        format!("| metric | kind | unit | labels | meaning |\n|---|---|---|---|---|\n{rows}")
    };
    format!(
        "## Orchestrator\n\n{}\n## Draft workers and target verifiers\n\n{}",
        of(Service::Orchestrator),
        of(Service::Workers)
    )
}

fn row(metric: &Metric) -> String {
    let Metric { name, unit, help, .. } = metric;
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    let unit = unit.trim_matches(['{', '}']);
    let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{name}` | {kind} | {unit} | {} | {help} |\n", labels.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_page_is_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/metrics.md");
        let page = std::fs::read_to_string(path).unwrap();
        let tables = page.split_once("## Orchestrator").map(|(_, tables)| format!("## Orchestrator{tables}"));
        assert_eq!(tables.unwrap_or_default(), markdown(), "deploy/metrics.md must end with exactly this");
    }

    #[test]
    fn names_follow_prometheus_conventions() {
        for metric in ALL {
            let Metric { name, unit, help, .. } = metric;
            assert!(name.starts_with("foretoken_"), "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            );
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            let stem = name.trim_end_matches("_total");
            assert_eq!(stem.ends_with("_seconds"), *unit == "s", "{name} is in {unit}");
            assert_eq!(stem.ends_with("_bytes"), *unit == "By", "{name} is in {unit}");
            assert!(!help.is_empty() && !help.ends_with('.') && !help.contains('|'), "{name}: {help}");
            if let Kind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted_by(|a, b| a < b), "{name}");
            }
            assert_eq!(ALL.iter().filter(|other| other.name == *name).count(), 1, "{name}");
        }
    }
}
