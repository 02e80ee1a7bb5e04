//! The span of a session's stream: from its call to its end.

use std::future::Future;

use foretoken_engine::conversation::SessionOpen;
use foretoken_proto::error::reason_of;
use foretoken_telemetry::{names, propagation, rpc};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tracing::field::Empty;
use tracing::{Instrument, Span};

/// Opens a session within a span of its own, the caller's child. What goes on after the opening keeps the span open by
/// holding [`Span::current`].
///
/// `name` is the span's, `method` the call's with its service, e.g. `foretoken.v1.TargetVerifier/Verify`.
///
/// # Errors
/// As `opening`; the span tells it.
pub async fn in_session_span<T>(
    name: &'static str,
    method: &'static str,
    metadata: &MetadataMap,
    opening: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let span = tracing::info_span!(
        "session",
        otel.name = name,
        otel.kind = "server",
        otel.status_code = Empty,
        { names::RPC_SYSTEM } = rpc::GRPC,
        { names::RPC_METHOD } = method,
        { names::RPC_STATUS } = Empty,
        { names::ERROR_TYPE } = Empty,
        { names::SESSION_ID } = Empty,
        { names::REQUEST_MODEL } = Empty,
    );
    propagation::set_parent(&span, propagation::extract(metadata));
    let opened = opening.instrument(span.clone()).await;
    if let Err(status) = &opened {
        record_end(&span, Err(status));
    }
    opened
}

/// Tells the current session span what was opened, and which model answers.
pub fn record_open(open: &SessionOpen, model: &str) {
    let span = Span::current();
    span.record(names::SESSION_ID, open.session_id.as_str());
    span.record(names::REQUEST_MODEL, model);
}

/// Tells a session's span how its stream ended.
pub(crate) fn record_end(span: &Span, end: Result<(), &Status>) {
    let code = end.err().map_or(Code::Ok, Status::code);
    span.record(names::RPC_STATUS, rpc::status_name(code));
    let Err(status) = end else { return };
    span.record(names::ERROR_TYPE, reason_of(status).as_deref().unwrap_or(rpc::status_name(code)));
    // What a caller did wrong, or gave up, is no failure of the server.
    if rpc::is_server_error(code) {
        span.record("otel.status_code", "ERROR");
    }
}
