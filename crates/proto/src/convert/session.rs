//! What both conversations share: Open, the text of a frame, refusals, timings.

use std::time::Duration;

use foretoken_engine::Rule;
use foretoken_engine::conversation::{FrameText, Refusal, RefusalKind, SessionOpen, TextHash, WorkerTimes};
use foretoken_engine::ledger::PassTime;

use super::{narrow, sampling_from_wire, sampling_to_wire};
use crate::error::Problem;
use crate::v1;

impl From<Rule> for v1::Rule {
    fn from(rule: Rule) -> Self {
        match rule {
            Rule::Token => Self::Token,
            Rule::Block => Self::Block,
            Rule::Gumbel => Self::Gumbel,
        }
    }
}

/// The rule in `field`; none where it is left open.
///
/// # Errors
/// A number that means no rule.
pub fn rule_from_wire(rule: i32, field: &str) -> Result<Option<Rule>, Problem> {
    match v1::Rule::try_from(rule) {
        Ok(v1::Rule::Unspecified) => Ok(None),
        Ok(v1::Rule::Token) => Ok(Some(Rule::Token)),
        Ok(v1::Rule::Block) => Ok(Some(Rule::Block)),
        Ok(v1::Rule::Gumbel) => Ok(Some(Rule::Gumbel)),
        Err(_) => Err(Problem::field(
            field,
            format!("{field} is {rule}; this version knows 1 (token) to 3 (Gumbel)"),
        )),
    }
}

/// A confidence in `field`.
///
/// # Errors
/// No number between 0 and 1.
pub fn confidence_from_wire(confidence: f64, field: &str) -> Result<f64, Problem> {
    if (0.0..=1.0).contains(&confidence) {
        return Ok(confidence);
    }
    Err(Problem::field(field, format!("{field} is {confidence}; it must be between 0 and 1")))
}

impl From<PassTime> for v1::PassTime {
    fn from(time: PassTime) -> Self {
        Self { rows: time.rows, model_ns: u64::try_from(time.took.as_nanos()).unwrap_or(u64::MAX) }
    }
}

impl From<v1::PassTime> for PassTime {
    fn from(wire: v1::PassTime) -> Self {
        Self { rows: wire.rows, took: Duration::from_nanos(wire.model_ns) }
    }
}

impl From<&SessionOpen> for v1::SessionOpen {
    fn from(open: &SessionOpen) -> Self {
        Self {
            session_id: open.session_id.clone(),
            prompt: open.prompt.clone(),
            reserve_len: narrow(open.reserve_len),
            sampling: Some(sampling_to_wire(&open.sampling, &open.adjustments)),
            rule: v1::Rule::from(open.rule).into(),
            model_fingerprint: open.model_fingerprint.clone(),
            tokenizer_fingerprint: open.tokenizer_fingerprint.clone(),
            end_ids: open.adjustments.params().end_ids.clone(),
        }
    }
}

impl TryFrom<v1::SessionOpen> for SessionOpen {
    type Error = Problem;

    fn try_from(wire: v1::SessionOpen) -> Result<Self, Problem> {
        if wire.session_id.is_empty() || wire.session_id.len() > 128 {
            let message = format!("session_id has {} bytes; it must have 1 to 128", wire.session_id.len());
            return Err(Problem::field("session.session_id", message));
        }
        if wire.prompt.is_empty() {
            return Err(Problem::field("session.prompt", "prompt is empty; it needs at least one token"));
        }
        let (sampling, adjustments) = sampling_from_wire(wire.sampling.unwrap_or_default(), wire.end_ids)?;
        Ok(Self {
            session_id: wire.session_id,
            prompt: wire.prompt,
            reserve_len: wire.reserve_len as usize,
            sampling,
            adjustments,
            rule: rule_from_wire(wire.rule, "session.rule")?.ok_or_else(|| {
                Problem::field("session.rule", "session.rule is 0; it must be 1 (token) to 3 (Gumbel)")
            })?,
            model_fingerprint: wire.model_fingerprint,
            tokenizer_fingerprint: wire.tokenizer_fingerprint,
        })
    }
}

impl From<&FrameText> for v1::FrameText {
    fn from(text: &FrameText) -> Self {
        Self {
            seq: text.seq,
            epoch: text.epoch,
            committed_len: narrow(text.committed_len),
            tail: text.tail.clone(),
            start: narrow(text.start),
            start_hash: text.start_hash.value(),
            span_id: text.span_id.map(|id| id.to_vec().into()).unwrap_or_default(),
            budget_ms: text.budget_ms,
        }
    }
}

impl TryFrom<v1::FrameText> for FrameText {
    type Error = Problem;

    fn try_from(wire: v1::FrameText) -> Result<Self, Problem> {
        let span_id = match wire.span_id.as_ref() {
            [] => None,
            bytes => Some(bytes.try_into().map_err(|_| {
                let message = format!("span_id has {} bytes; it must have 8, or none", bytes.len());
                Problem::field("text.span_id", message)
            })?),
        };
        Ok(Self {
            seq: wire.seq,
            epoch: wire.epoch,
            committed_len: wire.committed_len as usize,
            tail: wire.tail,
            start: wire.start as usize,
            start_hash: TextHash::from(wire.start_hash),
            span_id,
            budget_ms: wire.budget_ms,
        })
    }
}

impl From<WorkerTimes> for v1::WorkerTimes {
    fn from(times: WorkerTimes) -> Self {
        Self {
            server_us: times.server_us,
            queue_us: times.queue_us,
            batch_wait_us: times.batch_wait_us,
            model_us: times.model_us,
            sampling_us: times.sampling_us,
            passes: times.passes,
            rows: times.rows,
            batch_rows: times.batch_rows,
            batch_sessions: times.batch_sessions,
            charged_us: times.charged_us,
        }
    }
}

impl From<v1::WorkerTimes> for WorkerTimes {
    fn from(wire: v1::WorkerTimes) -> Self {
        Self {
            server_us: wire.server_us,
            queue_us: wire.queue_us,
            batch_wait_us: wire.batch_wait_us,
            model_us: wire.model_us,
            sampling_us: wire.sampling_us,
            passes: wire.passes,
            rows: wire.rows,
            batch_rows: wire.batch_rows,
            batch_sessions: wire.batch_sessions,
            charged_us: wire.charged_us,
        }
    }
}

/// A refusal as one of the four messages that both conversations have.
pub(super) enum WireRefusal {
    Stale(v1::Stale),
    NeedPrefix(v1::NeedPrefix),
    Overloaded(v1::Overloaded),
    Invalid(v1::Invalid),
}

impl From<Refusal> for WireRefusal {
    fn from(Refusal { seq, kind }: Refusal) -> Self {
        match kind {
            RefusalKind::Stale { epoch } => Self::Stale(v1::Stale { seq, epoch }),
            RefusalKind::NeedPrefix { have_len } => {
                Self::NeedPrefix(v1::NeedPrefix { seq, have_len: narrow(have_len) })
            }
            RefusalKind::Overloaded { retry_after_ms } => {
                Self::Overloaded(v1::Overloaded { seq, retry_after_ms })
            }
            RefusalKind::Invalid { reason, field, message } => {
                Self::Invalid(v1::Invalid { seq, reason: reason.into(), field: field.into(), message })
            }
        }
    }
}

impl From<WireRefusal> for Refusal {
    fn from(wire: WireRefusal) -> Self {
        match wire {
            WireRefusal::Stale(v1::Stale { seq, epoch }) => Self { seq, kind: RefusalKind::Stale { epoch } },
            WireRefusal::NeedPrefix(v1::NeedPrefix { seq, have_len }) => {
                Self { seq, kind: RefusalKind::NeedPrefix { have_len: have_len as usize } }
            }
            WireRefusal::Overloaded(v1::Overloaded { seq, retry_after_ms }) => {
                Self { seq, kind: RefusalKind::Overloaded { retry_after_ms } }
            }
            WireRefusal::Invalid(v1::Invalid { seq, reason, field, message }) => Self {
                seq,
                kind: RefusalKind::Invalid { reason: reason.into(), field: field.into(), message },
            },
        }
    }
}
