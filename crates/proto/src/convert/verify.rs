//! The verifier's conversation.

use foretoken_engine::conversation::{
    Ask, Block, RunEnd, RunFinished, RunToken, Verdict, VerifyFrame, VerifyOpen, VerifyReply,
};
use foretoken_engine::{MAX_LOGPROBS, VerifierKeys};

use super::session::WireRefusal;
use super::{empty_kind, key_bytes, lattices_from_wire, lattices_to_wire, narrow, required};
use crate::error::Problem;
use crate::v1;
use crate::v1::run_finished::Reason as WireEnd;
use crate::v1::verify_response::Kind;

/// Stop ids an Open may name.
const MAX_STOP_IDS: usize = 64;

impl From<&VerifyOpen> for v1::VerifyOpen {
    fn from(open: &VerifyOpen) -> Self {
        Self {
            session: Some((&open.session).into()),
            verifier_key: open.keys.to_bytes().to_vec().into(),
            stop_ids: open.stop_ids.clone(),
            logprobs: open.logprobs.map(narrow),
        }
    }
}

impl TryFrom<v1::VerifyOpen> for VerifyOpen {
    type Error = Problem;

    fn try_from(wire: v1::VerifyOpen) -> Result<Self, Problem> {
        if wire.stop_ids.len() > MAX_STOP_IDS {
            let message = format!("stop_ids has {} entries; it may have {MAX_STOP_IDS}", wire.stop_ids.len());
            return Err(Problem::field("stop_ids", message));
        }
        let logprobs = wire.logprobs.map(|top| top as usize);
        if let Some(top) = logprobs.filter(|&top| top > MAX_LOGPROBS) {
            let message = format!("logprobs is {top}; it must be at most {MAX_LOGPROBS}");
            return Err(Problem::field("logprobs", message));
        }
        Ok(Self {
            session: required(wire.session, "session")?.try_into()?,
            keys: VerifierKeys::from_bytes(key_bytes(&wire.verifier_key, "verifier_key")?),
            stop_ids: wire.stop_ids,
            logprobs,
        })
    }
}

impl From<&VerifyFrame> for v1::VerifyFrame {
    fn from(frame: &VerifyFrame) -> Self {
        let ask = match &frame.ask {
            Ask::Block(block) => v1::verify_frame::Ask::Block(v1::Block {
                tokens: block.tokens.clone(),
                q: lattices_to_wire(block.q.as_ref()),
            }),
            Ask::Decode { grant } => v1::verify_frame::Ask::Decode(v1::DecodeRun { grant: narrow(*grant) }),
        };
        Self { text: Some((&frame.text).into()), ask: Some(ask) }
    }
}

impl TryFrom<v1::VerifyFrame> for VerifyFrame {
    type Error = Problem;

    fn try_from(wire: v1::VerifyFrame) -> Result<Self, Problem> {
        let ask = match required(wire.ask, "ask")? {
            v1::verify_frame::Ask::Block(block) => {
                Ask::Block(Block { q: lattices_from_wire(block.q)?, tokens: block.tokens })
            }
            v1::verify_frame::Ask::Decode(run) => Ask::Decode { grant: run.grant as usize },
        };
        Ok(Self { text: required(wire.text, "text")?.try_into()?, ask })
    }
}

impl From<VerifyReply> for v1::VerifyResponse {
    fn from(reply: VerifyReply) -> Self {
        let kind = match reply {
            VerifyReply::Opened { cached_len } => {
                Kind::Opened(v1::SessionOpened { cached_len: narrow(cached_len) })
            }
            VerifyReply::Verdict(verdict) => Kind::Verdict(v1::Verdict {
                seq: verdict.seq,
                epoch: verdict.epoch,
                thresholds: verdict.thresholds,
                repairs: verdict.repairs,
                bonus: verdict.bonus,
                overlaps: verdict.overlaps,
                reach: verdict.reach,
                times: Some(verdict.times.into()),
                logprobs: verdict.logprobs.into_iter().map(Into::into).collect(),
            }),
            VerifyReply::Token(token) => Kind::Token(v1::RunToken {
                seq: token.seq,
                epoch: token.epoch,
                position: narrow(token.position),
                token: token.token,
                times: Some(token.times.into()),
                logprobs: token.logprobs.map(Into::into),
            }),
            VerifyReply::Finished(finished) => Kind::Finished(v1::RunFinished {
                seq: finished.seq,
                epoch: finished.epoch,
                reason: WireEnd::from(finished.end).into(),
                end: narrow(finished.len),
            }),
            VerifyReply::Refused(refusal) => match refusal.into() {
                WireRefusal::Stale(stale) => Kind::Stale(stale),
                WireRefusal::NeedPrefix(need_prefix) => Kind::NeedPrefix(need_prefix),
                WireRefusal::Overloaded(overloaded) => Kind::Overloaded(overloaded),
                WireRefusal::Invalid(invalid) => Kind::Invalid(invalid),
            },
            VerifyReply::Draining => Kind::Notice(v1::Notice { kind: v1::notice::Kind::Draining.into() }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::VerifyResponse> for VerifyReply {
    type Error = Problem;

    fn try_from(wire: v1::VerifyResponse) -> Result<Self, Problem> {
        Ok(match wire.kind.ok_or_else(empty_kind)? {
            Kind::Opened(opened) => Self::Opened { cached_len: opened.cached_len as usize },
            Kind::Verdict(verdict) => Self::Verdict(Verdict {
                seq: verdict.seq,
                epoch: verdict.epoch,
                thresholds: verdict.thresholds,
                repairs: verdict.repairs,
                bonus: verdict.bonus,
                overlaps: verdict.overlaps,
                reach: verdict.reach,
                times: verdict.times.unwrap_or_default().into(),
                logprobs: verdict.logprobs.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            }),
            Kind::Token(token) => Self::Token(RunToken {
                seq: token.seq,
                epoch: token.epoch,
                position: token.position as usize,
                token: token.token,
                times: token.times.unwrap_or_default().into(),
                logprobs: token.logprobs.map(TryInto::try_into).transpose()?,
            }),
            Kind::Finished(finished) => Self::Finished(RunFinished {
                seq: finished.seq,
                epoch: finished.epoch,
                end: finished.reason().try_into()?,
                len: finished.end as usize,
            }),
            Kind::Stale(stale) => Self::Refused(WireRefusal::Stale(stale).into()),
            Kind::NeedPrefix(need_prefix) => Self::Refused(WireRefusal::NeedPrefix(need_prefix).into()),
            Kind::Overloaded(overloaded) => Self::Refused(WireRefusal::Overloaded(overloaded).into()),
            Kind::Invalid(invalid) => Self::Refused(WireRefusal::Invalid(invalid).into()),
            Kind::Notice(notice) if notice.kind() == v1::notice::Kind::Draining => Self::Draining,
            Kind::Notice(_) => return Err(empty_kind()),
        })
    }
}

impl From<RunEnd> for WireEnd {
    fn from(end: RunEnd) -> Self {
        match end {
            RunEnd::Stop => Self::Stop,
            RunEnd::Grant => Self::Grant,
            RunEnd::Context => Self::Context,
            RunEnd::Superseded => Self::Superseded,
        }
    }
}

impl TryFrom<WireEnd> for RunEnd {
    type Error = Problem;

    fn try_from(wire: WireEnd) -> Result<Self, Problem> {
        match wire {
            WireEnd::Stop => Ok(Self::Stop),
            WireEnd::Grant => Ok(Self::Grant),
            WireEnd::Context => Ok(Self::Context),
            WireEnd::Superseded => Ok(Self::Superseded),
            WireEnd::Unspecified => {
                Err(Problem::field("reason", "reason is unspecified; a finished run has one"))
            }
        }
    }
}
