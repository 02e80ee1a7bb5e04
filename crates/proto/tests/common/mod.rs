//! Engine values of every kind, for the conversions' property tests.

use foretoken_engine::conversation::{
    Ask, Block, DraftFrame, DraftOpen, DraftReply, Drafted, FrameText, PositionLogprobs, Refusal,
    RefusalKind, RunEnd, RunFinished, RunToken, SessionOpen, TextHash, Verdict, VerifyFrame, VerifyOpen,
    VerifyReply, WorkerTimes,
};
use foretoken_engine::{
    AdjustmentParams, Adjustments, CoinKey, Lattice, Logprobs, Rule, Sampling, VerifierKeys,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// A length as the wire can hold it.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![0..5000usize, Just(u32::MAX as usize), any::<u32>().prop_map(|len| len as usize)]
}

fn lattice() -> impl Strategy<Value = Lattice> {
    btree_map(any::<u32>(), 1..=32_768u32, 1..32).prop_map(|shares| {
        let (ids, counts) = shares.into_iter().unzip();
        Lattice::from_parts(ids, counts, usize::MAX).expect("ascending ids with shares that fit")
    })
}

fn block() -> impl Strategy<Value = Block> {
    let one_hot = vec(any::<u32>(), 0..9).prop_map(|tokens| Block { tokens, q: None });
    let with_q = vec((any::<u32>(), lattice()), 1..9).prop_map(|positions| {
        let (tokens, q) = positions.into_iter().unzip();
        Block { tokens, q: Some(q) }
    });
    prop_oneof![one_hot, with_q]
}

fn frame_text() -> impl Strategy<Value = FrameText> {
    let numbers = (any::<u64>(), any::<u64>(), len(), len(), any::<u64>(), any::<u32>());
    (numbers, vec(any::<u32>(), 0..40), any::<Option<[u8; 8]>>()).prop_map(
        |((seq, epoch, committed_len, start, hash, budget_ms), tail, span_id)| FrameText {
            seq,
            epoch,
            committed_len,
            tail,
            start,
            start_hash: TextHash::from(hash),
            span_id,
            budget_ms,
        },
    )
}

fn sampling() -> impl Strategy<Value = Sampling> {
    (0.0..=100.0, any::<u32>(), f64::MIN_POSITIVE..=1.0, 0.0..=1.0).prop_map(
        |(temperature, top_k, top_p, min_p)| {
            Sampling::new(temperature, top_k, top_p, min_p).expect("parameters in their ranges")
        },
    )
}

fn adjustments() -> impl Strategy<Value = Adjustments> {
    let ids = || vec(any::<u32>(), 0..5);
    let bias = btree_map(any::<u32>(), -100f32..=100.0, 0..5).prop_map(|biases| biases.into_iter().collect());
    let penalties = (0.01..=100.0, -2.0..=2.0, -2.0..=2.0);
    (bias, penalties, any::<u32>(), ids(), ids(), ids()).prop_map(
        |(logit_bias, penalties, min_tokens, end_ids, allowed_ids, forbidden_ids)| {
            let (repetition_penalty, presence_penalty, frequency_penalty) = penalties;
            Adjustments::new(AdjustmentParams {
                logit_bias,
                repetition_penalty,
                presence_penalty,
                frequency_penalty,
                min_tokens,
                end_ids,
                allowed_ids,
                forbidden_ids,
            })
            .expect("parameters in their ranges")
        },
    )
}

fn rule() -> impl Strategy<Value = Rule> {
    prop::sample::select(vec![Rule::Token, Rule::Block, Rule::Gumbel])
}

fn session_open() -> impl Strategy<Value = SessionOpen> {
    let shaped = (sampling(), adjustments(), rule());
    (".{1,32}", vec(any::<u32>(), 1..40), len(), shaped, ".{0,64}", ".{0,64}").prop_map(
        |(session_id, prompt, reserve_len, shaped, model_fingerprint, tokenizer_fingerprint)| SessionOpen {
            session_id,
            prompt,
            reserve_len,
            sampling: shaped.0,
            adjustments: shaped.1,
            rule: shaped.2,
            model_fingerprint,
            tokenizer_fingerprint,
        },
    )
}

pub(crate) fn verify_open() -> impl Strategy<Value = VerifyOpen> {
    let logprobs = prop::option::of(0..=20usize);
    (session_open(), any::<[u8; 32]>(), vec(any::<u32>(), 0..=64), logprobs).prop_map(
        |(session, keys, stop_ids, logprobs)| VerifyOpen {
            session,
            keys: VerifierKeys::from_bytes(keys),
            stop_ids,
            logprobs,
        },
    )
}

pub(crate) fn draft_open() -> impl Strategy<Value = DraftOpen> {
    (session_open(), any::<[u8; 32]>())
        .prop_map(|(session, key)| DraftOpen { session, key: CoinKey::from_bytes(key) })
}

pub(crate) fn verify_frame() -> impl Strategy<Value = VerifyFrame> {
    let ask = prop_oneof![block().prop_map(Ask::Block), len().prop_map(|grant| Ask::Decode { grant })];
    (frame_text(), ask).prop_map(|(text, ask)| VerifyFrame { text, ask })
}

pub(crate) fn draft_frame() -> impl Strategy<Value = DraftFrame> {
    (frame_text(), len(), 0.0..=1.0).prop_map(|(text, draft_len, min_confidence)| DraftFrame {
        text,
        draft_len,
        min_confidence,
    })
}

fn times() -> impl Strategy<Value = WorkerTimes> {
    (any::<[u64; 6]>(), any::<[u32; 4]>()).prop_map(
        |(
            [server_us, queue_us, batch_wait_us, model_us, sampling_us, charged_us],
            [passes, rows, batch_rows, batch_sessions],
        )| {
            WorkerTimes {
                server_us,
                queue_us,
                batch_wait_us,
                model_us,
                sampling_us,
                passes,
                rows,
                batch_rows,
                batch_sessions,
                charged_us,
            }
        },
    )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    let kind = prop_oneof![
        any::<u64>().prop_map(|epoch| RefusalKind::Stale { epoch }),
        len().prop_map(|have_len| RefusalKind::NeedPrefix { have_len }),
        any::<u32>().prop_map(|retry_after_ms| RefusalKind::Overloaded { retry_after_ms }),
        (".{0,20}", ".{0,20}", ".{0,80}").prop_map(|(reason, field, message)| RefusalKind::Invalid {
            reason: reason.into(),
            field: field.into(),
            message
        }),
    ];
    (any::<u64>(), kind).prop_map(|(seq, kind)| Refusal { seq, kind })
}

/// Numbers of every sort but NaN, which is not equal to itself.
fn number() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("equal to itself", |number| !number.is_nan())
}

fn position_logprobs() -> impl Strategy<Value = PositionLogprobs> {
    let logprob = || prop_oneof![Just(f32::NEG_INFINITY), -100f32..=0.0];
    let logprobs = move || {
        (vec(logprob(), 0..3), vec((any::<u32>(), logprob()), 0..4))
            .prop_map(|(tokens, top)| Logprobs { tokens, top })
    };
    (logprobs(), logprobs()).prop_map(|(processed, raw)| PositionLogprobs { processed, raw })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let numbers = || vec(number(), 0..9);
    let numbers = (numbers(), vec(any::<u32>(), 0..9), any::<Option<u32>>(), numbers(), numbers());
    (any::<[u64; 2]>(), numbers, times(), vec(position_logprobs(), 0..4)).prop_map(
        |([seq, epoch], (thresholds, repairs, bonus, overlaps, reach), times, logprobs)| Verdict {
            seq,
            epoch,
            thresholds,
            repairs,
            bonus,
            overlaps,
            reach,
            times,
            logprobs,
        },
    )
}

pub(crate) fn verify_reply() -> impl Strategy<Value = VerifyReply> {
    let end = prop::sample::select(vec![RunEnd::Stop, RunEnd::Grant, RunEnd::Context, RunEnd::Superseded]);
    prop_oneof![
        len().prop_map(|cached_len| VerifyReply::Opened { cached_len }),
        verdict().prop_map(VerifyReply::Verdict),
        (any::<[u64; 2]>(), len(), any::<u32>(), times(), prop::option::of(position_logprobs())).prop_map(
            |([seq, epoch], position, token, times, logprobs)| {
                VerifyReply::Token(RunToken { seq, epoch, position, token, times, logprobs })
            }
        ),
        (any::<[u64; 2]>(), end, len())
            .prop_map(|([seq, epoch], end, len)| VerifyReply::Finished(RunFinished { seq, epoch, end, len })),
        refusal().prop_map(VerifyReply::Refused),
        Just(VerifyReply::Draining),
    ]
}

pub(crate) fn draft_reply() -> impl Strategy<Value = DraftReply> {
    prop_oneof![
        len().prop_map(|cached_len| DraftReply::Opened { cached_len }),
        (any::<[u64; 2]>(), block(), times()).prop_map(|([seq, epoch], block, times)| {
            DraftReply::Drafted(Drafted { seq, epoch, block, times })
        }),
        refusal().prop_map(DraftReply::Refused),
        Just(DraftReply::Draining),
    ]
}
