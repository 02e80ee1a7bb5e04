//! A strict reader of Prometheus' text format: what it does not expect fails the test.

use std::collections::BTreeMap;

use foretoken_telemetry::metrics::{Kind, names};

/// Labels of a series, without `le`.
pub(crate) type Labels = BTreeMap<String, String>;

/// A scraped page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    families: BTreeMap<String, Family>,
}

#[derive(Debug, Default)]
struct Family {
    help: Option<String>,
    kind: Option<String>,
    /// By name with suffix, then labels.
    samples: Vec<(String, Labels, Option<f64>, f64)>,
}

impl Page {
    /// Reads a page, and checks that every family has HELP and TYPE in front of its samples, that counters end in
    /// `_total`, that no series comes twice, and that buckets only grow and end at `_count`.
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut page = Self::default();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(!page.families.contains_key(name), "{name} comes twice");
                current = name.to_owned();
                page.families.entry(current.clone()).or_default().help = Some(help.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, current, "TYPE follows HELP");
                page.families.get_mut(name).unwrap().kind = Some(kind.to_owned());
            } else {
                let (name, labels, bound, value) = sample(line);
                let family = page.families.get_mut(&current).unwrap_or_else(|| panic!("no family: {line}"));
                assert!(family.help.is_some() && family.kind.is_some(), "{line}");
                let suffix =
                    name.strip_prefix(&current).unwrap_or_else(|| panic!("{line} is within {current}"));
                match family.kind.as_deref() {
                    Some("histogram") => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                    _ => assert_eq!(suffix, "", "{line}"),
                }
                assert_eq!(suffix == "_bucket", bound.is_some(), "{line}");
                let twice = family
                    .samples
                    .iter()
                    .any(|(other, these, le, _)| (other, these, le) == (&name, &labels, &bound));
                assert!(!twice, "{line} comes twice");
                family.samples.push((name, labels, bound, value));
            }
        }
        page.families.iter().for_each(|(name, family)| family.check(name));
        page
    }

    /// Names of all families of ours.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.families.keys().map(String::as_str).filter(|&name| name != "target_info").collect()
    }

    /// The value of the one series with these labels and no others.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: Labels =
            labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let family = self.family_of(name);
        let found = family
            .samples
            .iter()
            .find(|(sample, these, le, _)| sample == name && *these == labels && le.is_none());
        found.unwrap_or_else(|| panic!("no {name}{labels:?} in {family:?}")).3
    }

    /// Over all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.family_of(name).samples.iter().filter(|(sample, ..)| sample == name).map(|sample| sample.3).sum()
    }

    fn family_of(&self, name: &str) -> &Family {
        let stem = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let family = self.families.get(name).or_else(|| self.families.get(stem?));
        family.unwrap_or_else(|| panic!("no {name} among {:?}", self.names()))
    }
}

impl Family {
    fn check(&self, name: &str) {
        assert!(!self.samples.is_empty(), "{name} is empty");
        if name == "target_info" {
            return;
        }
        let metric = names::ALL.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not among the constants"));
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        assert_eq!(self.kind.as_deref(), Some(kind), "{name}");
        assert_eq!(self.help.as_deref(), Some(metric.help), "{name}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        for (sample, labels, _, value) in &self.samples {
            let keys: Vec<_> = labels.keys().map(String::as_str).collect();
            let mut known = metric.labels.to_vec();
            known.sort_unstable();
            assert_eq!(keys, known, "{sample}");
            assert!(kind == "gauge" || *value >= 0.0, "{sample} is {value}");
        }
        if let Kind::Histogram(bounds) = metric.kind {
            for (_, labels, ..) in self.samples.iter().filter(|(sample, ..)| sample.ends_with("_count")) {
                self.check_buckets(name, labels, bounds);
            }
        }
    }

    fn check_buckets(&self, name: &str, labels: &Labels, bounds: &[f64]) {
        let of = |suffix: &str| {
            let name = format!("{name}{suffix}");
            self.samples.iter().filter(move |(sample, these, ..)| *sample == name && these == labels)
        };
        let buckets: Vec<_> = of("_bucket").map(|&(_, _, le, value)| (le.unwrap(), value)).collect();
        let expected: Vec<_> = bounds.iter().copied().chain([f64::INFINITY]).collect();
        assert_eq!(buckets.iter().map(|bucket| bucket.0).collect::<Vec<_>>(), expected, "{name}");
        assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{name}: {buckets:?}");
        let (count, sum) = (of("_count").next().unwrap().3, of("_sum").next().unwrap().3);
        assert_eq!(buckets.last().unwrap().1, count, "{name}");
        assert!(sum >= 0.0 && (count > 0.0 || sum == 0.0), "{name}: {count}, {sum}");
    }
}

/// `name{label="value",…} value`
fn sample(line: &str) -> (String, Labels, Option<f64>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
    let Some((name, rest)) = series.split_once('{') else {
        return (series.to_owned(), Labels::new(), None, value);
    };
    let mut labels = Labels::new();
    for pair in rest.strip_suffix('}').unwrap_or_else(|| panic!("{line}")).split(',') {
        let (label, text) = pair.split_once('=').unwrap_or_else(|| panic!("{line}"));
        let text = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .unwrap_or_else(|| panic!("{line}"));
        assert!(labels.insert(label.to_owned(), text.to_owned()).is_none(), "{line}");
    }
    let bound =
        labels.remove("le").map(|bound| if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() });
    (name.to_owned(), labels, bound, value)
}

#[test]
fn the_reader_refuses_what_is_no_page() {
    let name = names::REQUESTS_RUNNING.name;
    let header = format!("# HELP {name} {}\n# TYPE {name} gauge\n", names::REQUESTS_RUNNING.help);
    let page = Page::parse(&format!("{header}{name} 3\n"));
    assert_eq!(page.value(name, &[]), 3.0);
    let failures = [
        format!("{name} 3\n"),
        format!("{header}{name} 3\n{name} 3\n"),
        format!("{header}{name}{{colour=\"red\"}} 3\n"),
        format!("{}{name} 3\n", header.replace("gauge", "counter")),
        header.replace(name, "foretoken_unheard_of"),
    ];
    for text in failures {
        assert!(std::panic::catch_unwind(|| Page::parse(&text)).is_err(), "{text}");
    }
}
