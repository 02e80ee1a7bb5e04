//! What can go wrong before and around a conversation. Errors inside one are gRPC statuses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why a service could not listen or serve, or a channel could not be made or did not become healthy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The listening address is taken or not ours.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The address of a service does not name a host and a port.
    #[error("address {address:?} cannot be used: {reason}; write host:port, for example 127.0.0.1:50051")]
    Address {
        /// What was asked for.
        address: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The address asks for TLS, and nothing says whom to trust.
    #[error(
        "address {address:?} cannot be used: https needs a CA to verify the server with; give --tls-ca, or write http:// for a connection without TLS"
    )]
    NoRoots {
        /// What was asked for.
        address: String,
    },
    /// A file of certificates, keys or the like cannot be used.
    #[error("{flag} {}: {reason}", .path.display())]
    File {
        /// The flag that named it.
        flag: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// A flag is of no use without another.
    #[error("{flag} is given without {needs}; give both or neither")]
    FlagNeeds {
        /// The one that was given.
        flag: &'static str,
        /// The one that was not.
        needs: &'static str,
    },
    /// No certificate can be for this name.
    #[error(
        "{name:?} is no name that a certificate can be for; give a DNS name or an IP address by --tls-server-name"
    )]
    ServerName {
        /// What was asked for.
        name: String,
    },
    /// The service's protocol description is damaged, so reflection could not answer from it.
    #[error("the protocol description of {service} is not valid: {reason}")]
    Descriptor {
        /// Full name of the service.
        service: &'static str,
        /// What the reflection service says.
        reason: String,
    },
    /// The server stopped for a reason other than its shutdown.
    #[error("{service} stopped serving: {reason}")]
    Serve {
        /// Full name of the service.
        service: &'static str,
        /// What the HTTP/2 server or the system says.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The other side answers, but does not provide the service.
    #[error("the server does not provide {service}: check the address")]
    NotProvided {
        /// Full name of the service.
        service: String,
    },
    /// The service, asked once, does not report SERVING.
    #[error("{service:?} at {address} is not serving: {answer}")]
    NotServing {
        /// The name that was asked after.
        service: String,
        /// Where.
        address: String,
        /// What it reports, or why there was no answer.
        answer: String,
    },
    /// The service did not report itself ready in time.
    #[error("{service} was not ready within {timeout:?}: {last}")]
    NotHealthy {
        /// Full name of the service.
        service: String,
        /// How long it was given.
        timeout: Duration,
        /// The last answer, or why there was none.
        last: String,
    },
}
