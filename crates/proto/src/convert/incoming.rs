//! What a worker reads from its request stream.

use foretoken_engine::conversation::{DraftFrame, DraftOpen, VerifyFrame, VerifyOpen};

use super::empty_kind;
use crate::error::Problem;
use crate::v1;

/// A message of a worker's request stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming<O, F> {
    /// The first message.
    Open(Box<O>),
    /// A frame.
    Frame(F),
    /// A frame whose number could be read, but not the rest: it gets INVALID.
    BadFrame {
        /// The frame's number.
        seq: u64,
        /// What is wrong with it.
        problem: Problem,
    },
    /// The end of the session.
    Close,
}

macro_rules! incoming {
    ($request:ty, $module:ident, $open:ty, $frame:ty) => {
        impl TryFrom<$request> for Incoming<$open, $frame> {
            type Error = Problem;

            fn try_from(wire: $request) -> Result<Self, Problem> {
                match wire.kind.ok_or_else(empty_kind)? {
                    v1::$module::Kind::Open(open) => Ok(Self::Open(Box::new(open.try_into()?))),
                    v1::$module::Kind::Frame(frame) => {
                        let seq = frame.text.as_ref().map(|text| text.seq);
                        match (frame.try_into(), seq) {
                            (Ok(frame), _) => Ok(Self::Frame(frame)),
                            (Err(problem), Some(seq)) => Ok(Self::BadFrame { seq, problem }),
                            (Err(problem), None) => Err(problem),
                        }
                    }
                    v1::$module::Kind::Close(v1::SessionClose {}) => Ok(Self::Close),
                }
            }
        }
    };
}

incoming!(v1::VerifyRequest, verify_request, VerifyOpen, VerifyFrame);
incoming!(v1::DraftRequest, draft_request, DraftOpen, DraftFrame);
