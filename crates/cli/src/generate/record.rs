//! The JSON record of `--json`, one for each sample.

use std::collections::BTreeMap;
use std::time::Duration;

use foretoken_proto::v1::round::Kind;
use foretoken_proto::v1::{Round, Stages};
use serde::Serialize;

use super::stream::{Answer, End, Origin, Sample, Token};
use super::verdict::stages;
use crate::failure::CallError;
use crate::rounds::Rule;

/// What a run gave and cost. What only the service's closing ledger tells is `null` if the answer broke off before.
#[derive(Debug, Serialize)]
pub(super) struct Record<'a> {
    /// Which of several; absent if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<usize>,
    text: String,
    finish_reason: &'static str,
    tokens: &'a [Token],
    prompt_tokens: Option<u32>,
    output_tokens: usize,
    target_passes: Option<u32>,
    saved_passes: Option<i32>,
    drafted: Option<u32>,
    accepted: usize,
    draft_bytes_up: Option<u64>,
    draft_bytes_down: Option<u64>,
    verify_bytes_up: Option<u64>,
    verify_bytes_down: Option<u64>,
    /// From the sending of the request.
    ttft_ms: Option<f64>,
    /// From the sending of the request.
    wall_ms: f64,
    /// Where the time from first to last token went, by stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    stages_ms: Option<BTreeMap<&'static str, f64>>,
    /// What a plain step takes at this load.
    #[serde(skip_serializing_if = "Option::is_none")]
    plain_step_ms: Option<f64>,
    /// What speculation gained between first and last token.
    #[serde(skip_serializing_if = "Option::is_none")]
    gain_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    break_even_round_trip_ms: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rounds: Vec<RoundRecord>,
    drafter: Option<&'a str>,
    seed: Option<u64>,
    rule: Option<&'static str>,
    /// Whether the text depends on seed and target only.
    reproducible: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorRecord<'a>>,
}

/// A round, where `--trace` asks for them.
#[derive(Debug, Serialize)]
struct RoundRecord {
    kind: &'static str,
    began_ms: f64,
    stages_ms: BTreeMap<&'static str, f64>,
    passes: u32,
    draft_len: u32,
    drafted: u32,
    accepted: u32,
    committed: u32,
    batch_rows: u32,
    batch_sessions: u32,
}

impl RoundRecord {
    fn new(round: &Round) -> Self {
        Self {
            kind: match round.kind() {
                Kind::Prefill => "prefill",
                Kind::Block => "block",
                Kind::Run => "run",
                Kind::Unspecified => "unknown",
            },
            began_ms: round.began_us as f64 / 1e3,
            stages_ms: round.stages.as_ref().map(stages_ms).unwrap_or_default(),
            passes: round.passes,
            draft_len: round.draft_len,
            drafted: round.drafted,
            accepted: round.accepted,
            committed: round.committed,
            batch_rows: round.batch_rows,
            batch_sessions: round.batch_sessions,
        }
    }
}

fn stages_ms(parts: &Stages) -> BTreeMap<&'static str, f64> {
    stages(parts).into_iter().map(|(name, nanos)| (name, nanos as f64 / 1e6)).collect()
}

#[derive(Debug, Serialize)]
struct ErrorRecord<'a> {
    code: &'a str,
    reason: Option<&'a str>,
    message: &'a str,
}

impl<'a> Record<'a> {
    /// The record of each sample.
    pub(super) fn all(answer: &'a Answer) -> impl Iterator<Item = Self> {
        let several = answer.samples.len() > 1;
        let samples = answer.samples.iter().enumerate();
        samples.map(move |(index, sample)| Self::new(answer, sample, several.then_some(index)))
    }

    fn new(answer: &'a Answer, of: &'a Sample, sample: Option<usize>) -> Self {
        let complete = of.complete.as_ref();
        let ledger = complete.map(|complete| &complete.ledger);
        let error = match &answer.end {
            End::Failed(_) if complete.is_some() => None,
            End::Failed(CallError { code, reason, message, .. }) => {
                Some(ErrorRecord { code, reason: reason.as_deref(), message })
            }
            _ => None,
        };
        Self {
            sample,
            text: of.tokens.iter().map(|token| token.text.as_str()).collect(),
            finish_reason: match (complete, &answer.end) {
                (Some(complete), _) if complete.stopped => "stop",
                (Some(_), _) => "length",
                (None, End::Failed(_)) => "error",
                (None, _) => "cancelled",
            },
            tokens: &of.tokens,
            prompt_tokens: answer.started.as_ref().map(|started| started.prompt_tokens),
            output_tokens: of.tokens.len(),
            target_passes: ledger.map(|ledger| ledger.target_passes),
            saved_passes: ledger.map(|ledger| ledger.saved_passes),
            drafted: ledger.map(|ledger| ledger.drafted),
            accepted: of.tokens.iter().filter(|token| token.origin == Origin::Accepted).count(),
            draft_bytes_up: ledger.map(|ledger| ledger.draft_bytes_up),
            draft_bytes_down: ledger.map(|ledger| ledger.draft_bytes_down),
            verify_bytes_up: ledger.map(|ledger| ledger.verify_bytes_up),
            verify_bytes_down: ledger.map(|ledger| ledger.verify_bytes_down),
            ttft_ms: answer.first_token.map(milliseconds),
            wall_ms: milliseconds(answer.whole),
            stages_ms: ledger.and_then(|ledger| ledger.stages.as_ref()).map(stages_ms),
            plain_step_ms: ledger.and_then(|ledger| ledger.plain_step_ns).map(|nanos| nanos as f64 / 1e6),
            gain_ms: ledger.and_then(|ledger| ledger.gain_seconds).map(|seconds| seconds * 1e3),
            break_even_round_trip_ms: ledger
                .and_then(|ledger| ledger.break_even_seconds)
                .map(|seconds| seconds * 1e3),
            rounds: complete
                .map_or_else(Vec::new, |complete| complete.rounds.iter().map(RoundRecord::new).collect()),
            drafter: complete.map(|complete| complete.drafter.as_str()),
            seed: answer.started.as_ref().map(|started| started.seed),
            rule: answer.started.as_ref().and_then(|started| Rule::of_wire(started.rule())).map(Rule::name),
            reproducible: answer.started.as_ref().map(|started| started.reproducible),
            error,
        }
    }
}

/// To the microsecond: further digits are noise.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::stream::tests::{Seen, answer, answers, finished, of_sample, started, tokens};
    use super::*;
    use foretoken_proto::v1::generate_response::Event;
    use foretoken_proto::v1::{FinishReason, Ledger, Origin as Wire, TokenLogprob, TokenLogprobs};
    use serde_json::{Value, json};
    use tonic::Status;

    fn record(answer: &mut Answer) -> Value {
        answer.first_token = answer.first_token.map(|_| Duration::from_micros(1_500));
        answer.whole = Duration::from_nanos(20_000_400);
        serde_json::to_value(Record::all(answer).next().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_whole_answer_has_every_field() {
        let ledger = Ledger {
            prompt_tokens: 3,
            output_tokens: 3,
            accepted: 1,
            bonus: 1,
            plain: 1,
            drafted: 1,
            blocks: 1,
            target_passes: 2,
            saved_passes: 1,
            draft_bytes_up: 10,
            draft_bytes_down: 11,
            verify_bytes_up: 12,
            verify_bytes_down: 13,
            ..Ledger::default()
        };
        let events = vec![
            started(),
            tokens(&[(5, "Hi", Wire::Plain)]),
            tokens(&[(6, " you", Wire::Accepted), (2, "", Wire::Bonus)]),
            finished(FinishReason::Stop, ledger),
        ];
        let mut answer = answer(events, &mut Seen::default()).await;
        assert_eq!(
            record(&mut answer),
            json!({
                "text": "Hi you",
                "finish_reason": "stop",
                "tokens": [
                    {"id": 5, "text": "Hi", "origin": "plain"},
                    {"id": 6, "text": " you", "origin": "accepted"},
                    {"id": 2, "text": "", "origin": "bonus"},
                ],
                "prompt_tokens": 3, "output_tokens": 3, "target_passes": 2, "saved_passes": 1,
                "drafted": 1, "accepted": 1,
                "draft_bytes_up": 10, "draft_bytes_down": 11, "verify_bytes_up": 12, "verify_bytes_down": 13,
                "ttft_ms": 1.5, "wall_ms": 20.0,
                "drafter": "ngram", "seed": 7, "rule": "gumbel", "reproducible": true,
            })
        );
    }

    #[tokio::test]
    async fn each_sample_has_its_record() {
        let events = vec![
            started(),
            of_sample(1, tokens(&[(5, "Hi", Wire::Plain)])),
            of_sample(1, finished(FinishReason::Stop, Ledger::default())),
            Err(Status::unavailable("gone")),
        ];
        let answer = answers(events, 2, &mut Seen::default()).await;
        let records: Vec<_> =
            Record::all(&answer).map(|record| serde_json::to_value(record).unwrap()).collect();
        assert_eq!((&records[0]["sample"], &records[1]["sample"]), (&json!(0), &json!(1)));
        assert_eq!(
            (&records[0]["finish_reason"], &records[1]["finish_reason"]),
            (&json!("error"), &json!("stop"))
        );
        assert_eq!((&records[1]["text"], &records[1]["error"]), (&json!("Hi"), &Value::Null));
    }

    #[tokio::test]
    async fn log_probabilities_are_told_where_they_came() {
        let mut event = tokens(&[(5, "Hi", Wire::Plain)]).unwrap();
        let Some(Event::Tokens(wire)) = &mut event.event else { panic!("tokens") };
        let top = vec![TokenLogprob { id: 6, logprob: -0.25 }];
        wire.tokens[0].logprobs =
            Some(TokenLogprobs { logprob: -1.5, raw_logprob: -2.5, top: top.clone(), raw_top: top });
        let events = vec![started(), Ok(event), finished(FinishReason::Length, Ledger::default())];
        let record = record(&mut answer(events, &mut Seen::default()).await);
        let top = json!([{"id": 6, "logprob": -0.25}]);
        assert_eq!(
            record["tokens"][0]["logprobs"],
            json!({"logprob": -1.5, "raw_logprob": -2.5, "top": top, "raw_top": top})
        );
    }

    #[tokio::test]
    async fn an_error_keeps_what_came_and_says_why() {
        let status =
            foretoken_proto::error::Problem::new(foretoken_proto::error::Reason::VerifierLost, "gone");
        let events = vec![started(), tokens(&[(5, "Hi", Wire::Repair)]), Err(Status::from(status))];
        let record = record(&mut answer(events, &mut Seen::default()).await);
        assert_eq!(record["finish_reason"], "error");
        assert_eq!((&record["text"], &record["output_tokens"]), (&json!("Hi"), &json!(1)));
        assert_eq!(record["tokens"][0]["origin"], "repair");
        assert_eq!(record["target_passes"], Value::Null);
        assert_eq!(
            record["error"],
            json!({"code": "UNAVAILABLE", "reason": "VERIFIER_LOST", "message": "gone"})
        );
    }

    #[tokio::test]
    async fn length_and_cancelled_have_their_names() {
        let events = vec![started(), finished(FinishReason::Length, Ledger::default())];
        let mut answer = answer(events, &mut Seen::default()).await;
        assert_eq!(record(&mut answer)["finish_reason"], "length");
        assert_eq!(record(&mut answer)["ttft_ms"], Value::Null);
        answer.end = End::Interrupted(crate::interrupt::Signal::Interrupt);
        answer.samples[0].complete = None;
        assert_eq!(record(&mut answer)["finish_reason"], "cancelled");
    }
}
