//! Engine values survive the wire, and whatever comes off the wire is a value or a named problem.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, helpers included")]

mod common;

use std::time::Duration;

use common::{draft_frame, draft_open, draft_reply, verify_frame, verify_open, verify_reply};
use foretoken_engine::conversation::{
    DraftFrame, DraftOpen, DraftReply, VerifyFrame, VerifyOpen, VerifyReply,
};
use foretoken_engine::ledger::PassTime;
use foretoken_proto::convert::{Incoming, sampling_from_wire, sampling_to_wire};
use foretoken_proto::error::{Problem, Reason};
use foretoken_proto::v1;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

type VerifyIncoming = Incoming<VerifyOpen, VerifyFrame>;
type DraftIncoming = Incoming<DraftOpen, DraftFrame>;

/// Over the wire: encoded, and decoded again.
fn sent<M: Message + Default + PartialEq>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).expect("what was encoded can be decoded")
}

fn verify_request(kind: v1::verify_request::Kind) -> v1::VerifyRequest {
    v1::VerifyRequest { kind: Some(kind) }
}

fn draft_request(kind: v1::draft_request::Kind) -> v1::DraftRequest {
    v1::DraftRequest { kind: Some(kind) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn opens_and_frames_survive(
        verify in verify_open(), draft in draft_open(), verify_frame in verify_frame(), draft_frame in draft_frame(),
    ) {
        let wire = sent(&verify_request(v1::verify_request::Kind::Open((&verify).into())));
        prop_assert_eq!(VerifyIncoming::try_from(wire), Ok(Incoming::Open(Box::new(verify))));
        let wire = sent(&draft_request(v1::draft_request::Kind::Open((&draft).into())));
        prop_assert_eq!(DraftIncoming::try_from(wire), Ok(Incoming::Open(Box::new(draft))));
        let wire = sent(&verify_request(v1::verify_request::Kind::Frame((&verify_frame).into())));
        prop_assert_eq!(VerifyIncoming::try_from(wire), Ok(Incoming::Frame(verify_frame)));
        let wire = sent(&draft_request(v1::draft_request::Kind::Frame((&draft_frame).into())));
        prop_assert_eq!(DraftIncoming::try_from(wire), Ok(Incoming::Frame(draft_frame)));
    }

    #[test]
    fn replies_survive(verify in verify_reply(), draft in draft_reply()) {
        prop_assert_eq!(VerifyReply::try_from(sent(&v1::VerifyResponse::from(verify.clone()))), Ok(verify));
        prop_assert_eq!(DraftReply::try_from(sent(&v1::DraftResponse::from(draft.clone()))), Ok(draft));
    }

    #[test]
    fn pass_times_survive(rows: u32, nanos: u64) {
        let time = PassTime { rows, took: Duration::from_nanos(nanos) };
        prop_assert_eq!(PassTime::from(sent(&v1::PassTime::from(time))), time);
    }

    /// One byte of a good message is another: it does not decode, or is a value, or a problem. Nothing panics.
    #[test]
    fn damaged_messages_are_values_or_problems(
        open in verify_open(), frame in verify_frame(), draft in draft_reply(), verdict in verify_reply(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<prop::sample::Index>(),
    ) {
        let damaged = |mut bytes: Vec<u8>| {
            for (at, byte) in damage.iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let shorter = bytes[..cut.index(bytes.len() + 1)].to_vec();
            [bytes, shorter]
        };
        let open = verify_request(v1::verify_request::Kind::Open((&open).into())).encode_to_vec();
        let frame = verify_request(v1::verify_request::Kind::Frame((&frame).into())).encode_to_vec();
        for bytes in damaged(open).into_iter().chain(damaged(frame)) {
            if let Ok(message) = v1::VerifyRequest::decode(bytes.as_slice()) {
                check(VerifyIncoming::try_from(message));
            }
            if let Ok(message) = v1::DraftRequest::decode(bytes.as_slice()) {
                check(DraftIncoming::try_from(message));
            }
        }
        let verdict = v1::VerifyResponse::from(verdict).encode_to_vec();
        let draft = v1::DraftResponse::from(draft).encode_to_vec();
        for bytes in damaged(verdict).into_iter().chain(damaged(draft)) {
            if let Ok(message) = v1::VerifyResponse::decode(bytes.as_slice()) {
                check(VerifyReply::try_from(message));
            }
            if let Ok(message) = v1::DraftResponse::decode(bytes.as_slice()) {
                check(DraftReply::try_from(message));
            }
        }
    }

    #[test]
    fn any_proposal_is_one_or_a_problem(
        id_deltas in vec(prop_oneof![0..4u32, any::<u32>()], 0..6), counts in vec(prop_oneof![0..4u32, any::<u32>()], 0..6),
    ) {
        let block = v1::Block {
            tokens: vec![0],
            q: vec![v1::LatticeQ { id_deltas: id_deltas.clone(), counts: counts.clone() }],
        };
        let frame = v1::VerifyFrame {
            text: Some(v1::FrameText { seq: 5, ..v1::FrameText::default() }),
            ask: Some(v1::verify_frame::Ask::Block(block)),
        };
        match VerifyIncoming::try_from(verify_request(v1::verify_request::Kind::Frame(frame.clone()))).unwrap() {
            Incoming::Frame(good) => prop_assert_eq!(v1::VerifyFrame::from(&good), frame),
            Incoming::BadFrame { seq, problem } => {
                prop_assert_eq!((seq, problem.field.as_deref()), (5, Some("q[0]")));
                let sum: u64 = counts.iter().map(|&count| u64::from(count)).sum();
                let ids: u64 = id_deltas.iter().map(|&delta| u64::from(delta)).sum();
                prop_assert!(
                    id_deltas.len() != counts.len() || counts.is_empty() || counts.contains(&0) || sum > 1 << 20
                        || ids > u64::from(u32::MAX) || id_deltas[1..].contains(&0)
                );
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn any_sampling_is_one_or_names_its_field(
        numbers in any::<[f64; 4]>(), temperature in prop_oneof![any::<f64>(), 0.0..100.0], top_k in any::<u32>(),
        bias in vec((any::<u32>(), any::<f32>()), 0..4), min_tokens in any::<u32>(), ids in vec(any::<u32>(), 0..4),
    ) {
        let [min_p, repetition_penalty, presence_penalty, frequency_penalty] = numbers;
        let wire = v1::Sampling {
            temperature,
            top_k,
            top_p: None,
            min_p,
            logit_bias: bias.into_iter().map(|(id, bias)| v1::LogitBias { id, bias }).collect(),
            repetition_penalty: Some(repetition_penalty),
            presence_penalty,
            frequency_penalty,
            min_tokens,
            allowed_ids: ids.clone(),
            forbidden_ids: ids,
        };
        match sampling_from_wire(wire.clone(), Vec::new()) {
            Ok((sampling, adjustments)) => {
                prop_assert_eq!(sampling.temperature(), temperature);
                prop_assert_eq!(sampling.top_p(), 1.0);
                let again = sampling_to_wire(&sampling, &adjustments);
                prop_assert_eq!(again.logit_bias.len(), wire.logit_bias.len());
                prop_assert_eq!(sampling_from_wire(again, Vec::new()), Ok((sampling, adjustments)));
            }
            Err(problem) => {
                prop_assert!(problem.field.is_some_and(|field| field.starts_with("sampling.")));
            }
        }
    }
}

#[test]
fn rules_and_confidences_out_of_range_are_named() {
    for (rule, told) in [(0, "session.rule is 0"), (9, "session.rule is 9"), (-1, "session.rule is -1")] {
        let session = v1::SessionOpen { rule, session_id: "s".into(), prompt: vec![1], ..Default::default() };
        let open =
            v1::VerifyOpen { session: Some(session), verifier_key: vec![0; 32].into(), ..Default::default() };
        let problem =
            VerifyIncoming::try_from(verify_request(v1::verify_request::Kind::Open(open))).unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("session.rule"));
        assert!(problem.message.contains(told), "{problem:?}");
    }
    for min_confidence in [-0.1, 1.1, f64::NAN] {
        let text = v1::FrameText { seq: 5, ..v1::FrameText::default() };
        let frame = v1::DraftFrame { text: Some(text), draft_len: 1, min_confidence };
        let incoming = DraftIncoming::try_from(draft_request(v1::draft_request::Kind::Frame(frame))).unwrap();
        let Incoming::BadFrame { seq: 5, problem } = incoming else { panic!("{incoming:?}") };
        assert_eq!(problem.field.as_deref(), Some("min_confidence"));
    }
}

/// A problem says something.
fn check<T>(outcome: Result<T, Problem>) {
    if let Err(problem) = outcome {
        assert!(!problem.message.is_empty());
        assert!(matches!(problem.reason, Reason::InvalidField | Reason::MalformedMessage), "{problem:?}");
    }
}

#[test]
fn a_message_without_kind_is_malformed() {
    for problem in [
        VerifyIncoming::try_from(v1::VerifyRequest { kind: None }).unwrap_err(),
        DraftIncoming::try_from(v1::DraftRequest { kind: None }).unwrap_err(),
        VerifyReply::try_from(v1::VerifyResponse { kind: None }).unwrap_err(),
        DraftReply::try_from(v1::DraftResponse { kind: None }).unwrap_err(),
    ] {
        assert_eq!(problem.reason, Reason::MalformedMessage);
    }
    // A notice or an end of a later version is not taken for one of ours.
    let notice = v1::Notice { kind: 99 };
    let response = v1::VerifyResponse { kind: Some(v1::verify_response::Kind::Notice(notice)) };
    assert!(VerifyReply::try_from(response).is_err());
    let finished = v1::RunFinished { reason: 99, ..v1::RunFinished::default() };
    let response = v1::VerifyResponse { kind: Some(v1::verify_response::Kind::Finished(finished)) };
    assert!(VerifyReply::try_from(response).is_err());
}

#[test]
fn the_whole_reserve_fits_the_wire() {
    let text = v1::FrameText { committed_len: u32::MAX, start: u32::MAX, ..v1::FrameText::default() };
    let frame = v1::DraftFrame { text: Some(text), draft_len: u32::MAX, min_confidence: 1.0 };
    let engine = DraftFrame::try_from(frame.clone()).unwrap();
    assert_eq!((engine.text.start, engine.draft_len), (u32::MAX as usize, u32::MAX as usize));
    assert_eq!(v1::DraftFrame::from(&engine), frame);
}
