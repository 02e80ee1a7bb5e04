//! Every error that leaves a service: gRPC code, machine-readable reason, and text for people.
//!
//! The details travel as `google.rpc` messages (`ErrorInfo` with domain `foretoken`, `BadRequest` for a
//! field at fault, `RetryInfo` where asking again helps), which every gRPC language can read.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of our reasons in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "foretoken";

macro_rules! reasons {
    ($($name:ident = $text:literal, $code:ident, $doc:literal;)*) => {
        /// Why a call failed. The code that goes with each reason is fixed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $(#[doc = $doc] $name,)* }

        impl Reason {
            /// All of them, for documentation and tests.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// As it stands in `ErrorInfo.reason`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }

            /// The reason that stands so in `ErrorInfo.reason`, or `OTHER`: text that a peer cannot choose.
            #[must_use]
            pub fn known(text: &str) -> &'static str {
                Self::ALL.iter().map(|reason| reason.as_str()).find(|&known| known == text).unwrap_or("OTHER")
            }

            /// The gRPC code.
            #[must_use]
            pub fn code(self) -> Code {
                match self { $(Reason::$name => Code::$code,)* }
            }

            /// What it means.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Reason::$name => $doc,)* }
            }
        }
    };
}

reasons! {
    InvalidField = "INVALID_FIELD", InvalidArgument, "A field is missing, malformed or out of its range; the text names field, value and limit.";
    ApiKeyMissing = "API_KEY_MISSING", Unauthenticated, "The call brings no API key and needs one: send the metadata `authorization: Bearer KEY`.";
    ApiKeyInvalid = "API_KEY_INVALID", Unauthenticated, "The call's API key is none that the orchestrator knows, or `authorization` is not `Bearer KEY`.";
    PromptTooLong = "PROMPT_TOO_LONG", InvalidArgument, "The prompt leaves no room for a single output token in the context.";
    ContextExceeded = "CONTEXT_EXCEEDED", InvalidArgument, "Prompt and max_tokens together do not fit the context.";
    NoChatTemplate = "NO_CHAT_TEMPLATE", FailedPrecondition, "A chat prompt was sent and the target model has no chat template.";
    ChatTemplateFailed = "CHAT_TEMPLATE_FAILED", InvalidArgument, "The target's chat template refuses these messages.";
    MalformedMessage = "MALFORMED_MESSAGE", InvalidArgument, "The bytes are no message of this stream.";
    MessageTooLarge = "MESSAGE_TOO_LARGE", ResourceExhausted, "The message is larger than the service takes; see Describe.";
    OpenFirst = "OPEN_FIRST", FailedPrecondition, "The stream's first message must be an Open; no session is known without it.";
    OpenTwice = "OPEN_TWICE", FailedPrecondition, "The stream has a session already; open another stream.";
    ModelMismatch = "MODEL_MISMATCH", FailedPrecondition, "The worker runs another model than the one expected.";
    TokenizerMismatch = "TOKENIZER_MISMATCH", FailedPrecondition, "The worker's tokenizer differs from the one the ids belong to.";
    QueueFull = "QUEUE_FULL", ResourceExhausted, "The worker's queue is full; ask again after the hint.";
    KvFull = "KV_FULL", ResourceExhausted, "The KV cache has no room for the session now; ask again after the hint.";
    KvTooSmall = "KV_TOO_SMALL", FailedPrecondition, "The KV cache could never hold the session; shorten prompt or max_tokens, or give the worker more memory.";
    SessionsFull = "SESSIONS_FULL", ResourceExhausted, "The worker holds as many sessions as it may; ask again after the hint.";
    RequestsFull = "REQUESTS_FULL", ResourceExhausted, "The orchestrator has as many requests in work as it may; ask again after the hint.";
    TakenOver = "TAKEN_OVER", Aborted, "A newer Open of the session ended this stream.";
    Draining = "DRAINING", Unavailable, "The service is shutting down; ask another.";
    NoVerifier = "NO_VERIFIER", Unavailable, "No verifier is ready.";
    NoDrafter = "NO_DRAFTER", Unavailable, "No draft worker of the wanted kind is ready.";
    VerifierLost = "VERIFIER_LOST", Unavailable, "The verifier broke off in the middle of the answer; what was emitted is exact, the rest can be had by asking again.";
    VerifierTimeout = "VERIFIER_TIMEOUT", Unavailable, "The verifier did not reply in time.";
    VerifierRefused = "VERIFIER_REFUSED", Internal, "The verifier refused what the orchestrator asked: a bug or a version mismatch.";
    VerifierProtocol = "VERIFIER_PROTOCOL", Internal, "The verifier broke the protocol: a bug or a version mismatch.";
    ModelFailed = "MODEL_FAILED", Internal, "The model's backend failed or gave logits that are no numbers.";
    DeadlineExceeded = "DEADLINE_EXCEEDED", DeadlineExceeded, "The client's deadline passed.";
    Cancelled = "CANCELLED", Cancelled, "The client cancelled.";
    Internal = "INTERNAL", Internal, "A bug: please report it.";
}

/// An error on its way to a caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// Why, for machines.
    pub reason: Reason,
    /// The field at fault, dotted from the request's root.
    pub field: Option<String>,
    /// Field, value, limit, what to do: for people.
    pub message: String,
    /// When asking again may help.
    pub retry_after: Option<Duration>,
    /// Facts that go with the reason, e.g. both fingerprints.
    pub metadata: HashMap<String, String>,
}

impl Problem {
    /// A problem with a text.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, field: None, message: message.into(), retry_after: None, metadata: HashMap::new() }
    }

    /// A field that is missing, malformed or out of range.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(Reason::InvalidField, message) }
    }

    /// Names the field at fault.
    #[must_use]
    pub fn at(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Says when asking again may help.
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    /// Adds a fact for machines.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.metadata.insert(key.to_owned(), value.into());
        self
    }
}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let mut details = ErrorDetails::new();
        details.set_error_info(problem.reason.as_str(), DOMAIN, problem.metadata);
        if let Some(field) = problem.field {
            details.add_bad_request_violation(field, problem.message.clone());
        }
        if let Some(delay) = problem.retry_after {
            details.set_retry_info(Some(delay));
        }
        Status::with_error_details(problem.reason.code(), problem.message, details)
    }
}

/// The reason in a status of ours, e.g. `QUEUE_FULL`.
#[must_use]
pub fn reason_of(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

/// The same as text that no peer can choose: `OTHER` where there is none, or none of ours.
#[must_use]
pub fn known_reason_of(status: &Status) -> &'static str {
    Reason::known(&reason_of(status).unwrap_or_default())
}

/// The hint when to ask again, if a status carries one.
#[must_use]
pub fn retry_after_of(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().and_then(|info| info.retry_delay)
}

/// Makes what the transport says about an unreadable message one of our errors.
#[must_use]
pub fn from_transport(status: Status) -> Status {
    let problem = match status.code() {
        _ if reason_of(&status).is_some() => return status,
        Code::OutOfRange if status.message().contains("message length too large") => {
            Problem::new(Reason::MessageTooLarge, status.message())
        }
        Code::Internal if status.message().contains("decode") => {
            Problem::new(Reason::MalformedMessage, status.message())
        }
        _ => return status,
    };
    problem.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_survive_the_status() {
        let problem = Problem::field("sampling.top_p", "top_p is 2; it must be at most 1")
            .retry_after(Duration::from_millis(250))
            .with("limit", "1");
        let status = Status::from(problem);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(reason_of(&status).as_deref(), Some("INVALID_FIELD"));
        assert_eq!(retry_after_of(&status), Some(Duration::from_millis(250)));
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, "sampling.top_p");
        assert_eq!(status.get_details_error_info().unwrap().metadata["limit"], "1");
    }

    #[test]
    fn reasons_are_unique_and_screaming() {
        let mut names: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
        assert_eq!((Reason::known("KV_FULL"), Reason::known("kv_full")), ("KV_FULL", "OTHER"));
    }
}
