//! Which log lines are written.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Filter};

use crate::traces::OUR_TARGETS;

/// How often an exporter may say the same: with the collector down it would repeat it for every batch.
const EXPORTER_PERIOD: Duration = Duration::from_secs(60);

/// What the exporters' own log lines have for a target.
const EXPORTER_TARGETS: &str = "opentelemetry";

/// The operator's filter, with two additions: spans of ours are followed whatever it says, so that a warning inside
/// a request names the request; and exporters may complain only once in a while.
#[derive(Debug)]
pub(super) struct LogFilter {
    chosen: EnvFilter,
    /// When each complaint of an exporter was last written. Places in code are few, so it stays small.
    complaints: Mutex<HashMap<Identifier, Instant>>,
}

impl LogFilter {
    pub(super) fn new(chosen: EnvFilter) -> Self {
        Self { chosen, complaints: Mutex::default() }
    }

    /// Whether the exporter's line at this place in code is due.
    fn is_due(&self, place: Identifier, now: Instant) -> bool {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let due = complaints.get(&place).is_none_or(|&last| now.duration_since(last) >= EXPORTER_PERIOD);
        if due {
            complaints.insert(place, now);
        }
        due
    }
}

fn is_our_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && *metadata.level() <= Level::INFO && metadata.target().starts_with(OUR_TARGETS)
}

impl<S: Subscriber> Filter<S> for LogFilter {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        let chosen = Filter::<S>::enabled(&self.chosen, metadata, context);
        chosen || is_our_span(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        let chosen = Filter::<S>::callsite_enabled(&self.chosen, metadata);
        if is_our_span(metadata) { Interest::always() } else { chosen }
    }

    fn event_enabled(&self, event: &Event<'_>, _context: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        !metadata.target().starts_with(EXPORTER_TARGETS) || self.is_due(metadata.callsite(), Instant::now())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.chosen.max_level_hint().map(|level| level.max(LevelFilter::INFO))
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        Filter::<S>::on_new_span(&self.chosen, attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        Filter::<S>::on_record(&self.chosen, id, values, context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        Filter::<S>::on_enter(&self.chosen, id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        Filter::<S>::on_exit(&self.chosen, id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        Filter::<S>::on_close(&self.chosen, id, context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Callsite;

    struct Place(u8);

    impl Callsite for Place {
        fn set_interest(&self, _: Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("number {} is nobody's callsite", self.0)
        }
    }

    static FIRST: Place = Place(1);
    static SECOND: Place = Place(2);

    #[test]
    fn an_exporter_says_the_same_once_a_period() {
        let filter = LogFilter::new(EnvFilter::new("info"));
        let (first, second) = (Identifier(&FIRST), Identifier(&SECOND));
        let began = Instant::now();
        assert!(filter.is_due(first.clone(), began));
        assert!(!filter.is_due(first.clone(), began + EXPORTER_PERIOD / 2));
        assert!(filter.is_due(second, began + EXPORTER_PERIOD / 2), "another complaint");
        assert!(filter.is_due(first, began + EXPORTER_PERIOD));
    }
}
