//! The draft worker's conversation.

use foretoken_engine::CoinKey;
use foretoken_engine::conversation::{Block, DraftFrame, DraftOpen, DraftReply, Drafted};

use super::session::{WireRefusal, confidence_from_wire};
use super::{empty_kind, key_bytes, lattices_from_wire, lattices_to_wire, narrow, required};
use crate::error::Problem;
use crate::v1;
use crate::v1::draft_response::Kind;

impl From<&DraftOpen> for v1::DraftOpen {
    fn from(open: &DraftOpen) -> Self {
        Self { session: Some((&open.session).into()), draft_key: open.key.to_bytes().to_vec().into() }
    }
}

impl TryFrom<v1::DraftOpen> for DraftOpen {
    type Error = Problem;

    fn try_from(wire: v1::DraftOpen) -> Result<Self, Problem> {
        Ok(Self {
            session: required(wire.session, "session")?.try_into()?,
            key: CoinKey::from_bytes(key_bytes(&wire.draft_key, "draft_key")?),
        })
    }
}

impl From<&DraftFrame> for v1::DraftFrame {
    fn from(frame: &DraftFrame) -> Self {
        Self {
            text: Some((&frame.text).into()),
            draft_len: narrow(frame.draft_len),
            min_confidence: frame.min_confidence,
        }
    }
}

impl TryFrom<v1::DraftFrame> for DraftFrame {
    type Error = Problem;

    fn try_from(wire: v1::DraftFrame) -> Result<Self, Problem> {
        Ok(Self {
            text: required(wire.text, "text")?.try_into()?,
            draft_len: wire.draft_len as usize,
            min_confidence: confidence_from_wire(wire.min_confidence, "min_confidence")?,
        })
    }
}

impl From<DraftReply> for v1::DraftResponse {
    fn from(reply: DraftReply) -> Self {
        let kind = match reply {
            DraftReply::Opened { cached_len } => {
                Kind::Opened(v1::SessionOpened { cached_len: narrow(cached_len) })
            }
            DraftReply::Drafted(drafted) => Kind::Drafted(v1::Drafted {
                seq: drafted.seq,
                epoch: drafted.epoch,
                q: lattices_to_wire(drafted.block.q.as_ref()),
                tokens: drafted.block.tokens,
                times: Some(drafted.times.into()),
            }),
            DraftReply::Refused(refusal) => match refusal.into() {
                WireRefusal::Stale(stale) => Kind::Stale(stale),
                WireRefusal::NeedPrefix(need_prefix) => Kind::NeedPrefix(need_prefix),
                WireRefusal::Overloaded(overloaded) => Kind::Overloaded(overloaded),
                WireRefusal::Invalid(invalid) => Kind::Invalid(invalid),
            },
            DraftReply::Draining => Kind::Notice(v1::Notice { kind: v1::notice::Kind::Draining.into() }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::DraftResponse> for DraftReply {
    type Error = Problem;

    fn try_from(wire: v1::DraftResponse) -> Result<Self, Problem> {
        Ok(match wire.kind.ok_or_else(empty_kind)? {
            Kind::Opened(opened) => Self::Opened { cached_len: opened.cached_len as usize },
            Kind::Drafted(drafted) => Self::Drafted(Drafted {
                seq: drafted.seq,
                epoch: drafted.epoch,
                block: Block { tokens: drafted.tokens, q: lattices_from_wire(drafted.q)? },
                times: drafted.times.unwrap_or_default().into(),
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
