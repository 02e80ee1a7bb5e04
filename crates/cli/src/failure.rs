//! Errors for people: how a failed call reads, and which errors are the user's to correct on the command line.

use std::fmt;
use std::time::Duration;

use foretoken_proto::error::{reason_of, retry_after_of};
use thiserror::Error;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// Arguments that do not go together; the process ends with the code that clap uses for its own complaints.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// A call that failed, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) struct CallError {
    /// The gRPC code, as the protocol spells it: `INVALID_ARGUMENT`.
    pub(crate) code: String,
    /// The machine-readable reason; services other than ours give none.
    pub(crate) reason: Option<String>,
    /// The request's field at fault.
    pub(crate) field: Option<String>,
    /// What happened.
    pub(crate) message: String,
    /// When asking again may help.
    pub(crate) retry_after: Option<Duration>,
}

impl CallError {
    /// The other side sent what this version cannot make sense of.
    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self {
            code: spelled(Code::Internal),
            reason: None,
            field: None,
            message: message.into(),
            retry_after: None,
        }
    }
}

impl From<&Status> for CallError {
    fn from(status: &Status) -> Self {
        let field = status
            .get_details_bad_request()
            .and_then(|details| details.field_violations.into_iter().next())
            .map(|violation| violation.field);
        Self {
            code: spelled(status.code()),
            reason: reason_of(status),
            field,
            message: message_of(status),
            retry_after: retry_after_of(status),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.message, self.reason.as_ref().unwrap_or(&self.code))?;
        if let Some(field) = &self.field {
            write!(f, ", field {field}")?;
        }
        f.write_str(")")?;
        if let Some(delay) = self.retry_after {
            write!(f, "; ask again in {} ms", delay.as_millis())?;
        }
        Ok(())
    }
}

/// The status's own text, and the innermost cause where the transport only says that it failed.
fn message_of(status: &Status) -> String {
    let mut message = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    let mut innermost = None;
    while let Some(error) = source {
        innermost = Some(error.to_string());
        source = error.source();
    }
    match innermost {
        Some(cause) if message.is_empty() => cause,
        Some(cause) if !message.contains(&cause) => format!("{message}: {cause}"),
        _ => {
            if message.is_empty() {
                message = "no explanation was given".to_owned();
            }
            message
        }
    }
}

/// `InvalidArgument` as the protocol spells it.
fn spelled(code: Code) -> String {
    let mut text = String::new();
    for c in format!("{code:?}").chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(c.to_ascii_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_proto::error::{Problem, Reason};

    #[test]
    fn a_status_of_ours_shows_reason_field_and_hint() {
        let problem = Problem::field("sampling.top_p", "top_p is 2; it must be at most 1")
            .retry_after(Duration::from_millis(250));
        let error = CallError::from(&Status::from(problem));
        assert_eq!(
            error.to_string(),
            "top_p is 2; it must be at most 1 (INVALID_FIELD, field sampling.top_p); ask again in 250 ms"
        );
        assert_eq!(error.code, "INVALID_ARGUMENT");
        let full = CallError::from(&Status::from(Problem::new(Reason::QueueFull, "the queue is full")));
        assert_eq!(full.to_string(), "the queue is full (QUEUE_FULL)");
    }

    #[test]
    fn a_foreign_status_shows_its_code_and_cause() {
        assert_eq!(
            CallError::from(&Status::unimplemented("no such method")).to_string(),
            "no such method (UNIMPLEMENTED)"
        );
        assert_eq!(
            CallError::from(&Status::unavailable("")).to_string(),
            "no explanation was given (UNAVAILABLE)"
        );
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let mut status = Status::unavailable("tcp connect error");
        status.set_source(std::sync::Arc::new(refused));
        assert_eq!(
            CallError::from(&status).to_string(),
            "tcp connect error: connection refused (UNAVAILABLE)"
        );
    }
}
