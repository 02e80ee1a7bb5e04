//! An answer's ledger, entered into the metrics when the answer is finished.

use foretoken_engine::ledger::{Ledger, Origin, Stages};
use foretoken_telemetry::metrics::{Counter, Gauge, KeyValue, names};

/// The instruments that a ledger has.
#[derive(Debug)]
pub(super) struct LedgerMetrics {
    tokens: Counter<u64>,
    drafts: Counter<u64>,
    draft_tokens: Counter<u64>,
    accepted_tokens: Counter<u64>,
    draft_tokens_per_pos: Counter<u64>,
    accepted_tokens_per_pos: Counter<u64>,
    judged_tokens: Counter<u64>,
    overlap: Counter<f64>,
    target_passes: Counter<u64>,
    saved_passes: Counter<u64>,
    payload_bytes: Counter<u64>,
    wire_bytes: Counter<u64>,
    stages: Counter<f64>,
    moving: Counter<f64>,
    plain: Counter<f64>,
    gain: Counter<f64>,
    loss: Counter<f64>,
    capacity: Counter<f64>,
    plain_step: Gauge<f64>,
    break_even: Gauge<f64>,
}

impl LedgerMetrics {
    /// Registers them, at zero.
    pub(super) fn new() -> Self {
        let metrics = Self {
            tokens: names::GENERATION_TOKENS.counter(),
            drafts: names::NUM_DRAFTS.counter(),
            draft_tokens: names::NUM_DRAFT_TOKENS.counter(),
            accepted_tokens: names::NUM_ACCEPTED_TOKENS.counter(),
            draft_tokens_per_pos: names::NUM_DRAFT_TOKENS_PER_POS.counter(),
            accepted_tokens_per_pos: names::NUM_ACCEPTED_TOKENS_PER_POS.counter(),
            judged_tokens: names::NUM_JUDGED_TOKENS.counter(),
            overlap: names::OVERLAP.amount(),
            target_passes: names::TARGET_PASSES.counter(),
            saved_passes: names::SAVED_PASSES.counter(),
            payload_bytes: names::PAYLOAD_BYTES.counter(),
            wire_bytes: names::WIRE_BYTES.counter(),
            stages: names::STAGE_SECONDS.amount(),
            moving: names::MOVING_SECONDS.amount(),
            plain: names::PLAIN_SECONDS.amount(),
            gain: names::GAIN_SECONDS.amount(),
            loss: names::LOSS_SECONDS.amount(),
            capacity: names::CAPACITY_SECONDS.amount(),
            plain_step: names::PLAIN_STEP.gauge(),
            break_even: names::BREAK_EVEN.gauge(),
        };
        metrics.enter(&Ledger::default());
        metrics
    }

    /// Adds an answer's ledger.
    pub(super) fn enter(&self, ledger: &Ledger) {
        self.counts(ledger);
        self.positions(ledger);
        self.bytes(ledger);
        self.time(ledger);
    }

    fn counts(&self, ledger: &Ledger) {
        let Ledger { accepted, repair, bonus, plain, .. } = *ledger;
        let origins = [
            (Origin::Accepted, accepted),
            (Origin::Repair, repair),
            (Origin::Bonus, bonus),
            (Origin::Plain, plain),
        ];
        for (origin, tokens) in origins {
            self.tokens.add(tokens.into(), &[KeyValue::new(names::ORIGIN, origin.name())]);
        }
        self.drafts.add(ledger.blocks.into(), &[]);
        self.draft_tokens.add(ledger.drafted.into(), &[]);
        self.accepted_tokens.add(accepted.into(), &[]);
        self.judged_tokens.add(ledger.judged.into(), &[]);
        self.overlap.add(ledger.overlap_sum, &[]);
        self.target_passes.add(ledger.target_passes().into(), &[]);
        self.saved_passes.add(u64::try_from(ledger.saved_passes()).unwrap_or_default(), &[]);
    }

    /// Positions are as many as the longest draft that admission allows.
    fn positions(&self, ledger: &Ledger) {
        for (index, position) in (0_i64..).zip(&ledger.positions) {
            let place = [KeyValue::new(names::POSITION, index)];
            self.draft_tokens_per_pos.add(position.drafted.into(), &place);
            self.accepted_tokens_per_pos.add(position.accepted.into(), &place);
        }
    }

    fn bytes(&self, ledger: &Ledger) {
        for (link, traffic) in [("draft", ledger.draft), ("verify", ledger.verify)] {
            let directions = [("up", traffic.up, traffic.wire_up), ("down", traffic.down, traffic.wire_down)];
            for (direction, payload, wire) in directions {
                let labels = [KeyValue::new(names::LINK, link), KeyValue::new(names::DIRECTION, direction)];
                self.payload_bytes.add(payload, &labels);
                self.wire_bytes.add(wire, &labels);
            }
        }
    }

    fn time(&self, ledger: &Ledger) {
        for (stage, time) in Stages::NAMES.into_iter().zip(ledger.stages.values()) {
            self.stages.add(time.as_secs_f64(), &[KeyValue::new(names::STAGE, stage)]);
        }
        self.moving.add(ledger.moving().as_secs_f64(), &[]);
        for (role, time) in [("draft_worker", ledger.capacity.draft), ("verifier", ledger.capacity.verify)] {
            self.capacity.add(time.as_secs_f64(), &[KeyValue::new(names::ROLE, role)]);
        }
        // An answer of one token has neither; series begin at zero nevertheless.
        let gain = ledger.gain().unwrap_or_default();
        self.gain.add(gain.max(0.0), &[]);
        self.loss.add((-gain).max(0.0), &[]);
        self.plain.add(ledger.plain_seconds().unwrap_or_default().max(0.0), &[]);
        if let Some(step) = ledger.plain_step {
            self.plain_step.record(step.as_secs_f64(), &[]);
        }
        if let Some(round_trip) = ledger.break_even_round_trip() {
            self.break_even.record(round_trip, &[]);
        }
    }
}
