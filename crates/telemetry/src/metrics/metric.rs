//! What a metric is, and how its instrument is made.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Counter, Gauge, Histogram, Meter};

/// The instrumentation scope of all our instruments.
const SCOPE: &str = "foretoken";

/// A metric, declared once in [`names`](super::names).
///
/// Its name is the same for Prometheus and for OTLP. Instruments record into the process's meter provider; without
/// one, as in tests that measure nothing, recording does nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// As it is scraped, suffix included.
    pub name: &'static str,
    /// What its values mean to whoever adds them up.
    pub kind: Kind,
    /// Which services have it.
    pub service: Service,
    /// In UCUM: `s`, `By`, or what is counted, in braces.
    pub unit: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// For operators.
    pub help: &'static str,
}

/// Kinds of metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only ever grows, but for restarts.
    Counter,
    /// A value of this moment.
    Gauge,
    /// Counts of values up to these bounds.
    Histogram(&'static [f64]),
}

/// Who has a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// The orchestrator.
    Orchestrator,
    /// Draft workers and target verifiers.
    Workers,
}

impl Metric {
    /// A counter of things.
    #[must_use]
    pub fn counter(&self) -> Counter<u64> {
        meter().u64_counter(self.name).with_unit(self.unit).with_description(self.help).build()
    }

    /// A counter of something that is measured, such as seconds.
    #[must_use]
    pub fn amount(&self) -> Counter<f64> {
        meter().f64_counter(self.name).with_unit(self.unit).with_description(self.help).build()
    }

    /// A value that is set when it is known.
    #[must_use]
    pub fn gauge(&self) -> Gauge<f64> {
        meter().f64_gauge(self.name).with_unit(self.unit).with_description(self.help).build()
    }

    /// A histogram with the bounds of [`Kind::Histogram`].
    #[must_use]
    pub fn histogram(&self) -> Histogram<f64> {
        let meter = meter();
        let builder = meter.f64_histogram(self.name).with_unit(self.unit).with_description(self.help);
        match self.kind {
            Kind::Histogram(bounds) => builder.with_boundaries(bounds.to_vec()).build(),
            Kind::Counter | Kind::Gauge => builder.build(),
        }
    }

    /// A counter or gauge that is read whenever somebody looks. `read` tells each value with its labels; it runs on
    /// the looker's thread and must be quick.
    pub fn observe(&self, read: impl Fn(&mut dyn FnMut(f64, &[KeyValue])) + Send + Sync + 'static) {
        let callback = move |instrument: &dyn AsyncInstrument<f64>| {
            read(&mut |value, labels| instrument.observe(value, labels));
        };
        let (meter, name, unit, help) = (meter(), self.name, self.unit, self.help);
        match self.kind {
            Kind::Counter => {
                let builder = meter.f64_observable_counter(name).with_unit(unit).with_description(help);
                builder.with_callback(callback).build();
            }
            Kind::Gauge | Kind::Histogram(_) => {
                let builder = meter.f64_observable_gauge(name).with_unit(unit).with_description(help);
                builder.with_callback(callback).build();
            }
        }
    }
}

fn meter() -> Meter {
    opentelemetry::global::meter(SCOPE)
}
