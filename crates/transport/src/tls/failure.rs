//! What goes wrong in a handshake, for people: what it means and what to do.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// What rustls says inside an error of a stream.
fn inner(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Why a client could not connect; `name` is what the server's certificate should be for.
pub(super) fn connect_failure(error: &io::Error, name: &str) -> String {
    let Some(inner) = inner(error) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                "the server closed the connection; does it speak TLS? Without, write http://host:port"
                    .to_owned()
            }
            _ => error.to_string(),
        };
    };
    match inner {
        Error::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "the server's certificate is not signed by a CA that --tls-ca names; give the CA that signed it"
                    .to_owned()
            }
            CertificateError::NotValidForName => {
                format!("the server's certificate is not for {name}; --tls-server-name says what it is for")
            }
            CertificateError::NotValidForNameContext { presented, .. } => format!(
                "the server's certificate is not for {name} but for {}; --tls-server-name says what it is for",
                list(presented)
            ),
            CertificateError::Expired => "the server's certificate has expired; renew it".to_owned(),
            CertificateError::ExpiredContext { time, not_after } => format!(
                "the server's certificate has expired {} ago; renew it",
                span(time.as_secs().saturating_sub(not_after.as_secs()))
            ),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet; do the clocks agree?".to_owned()
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "the server's certificate is not one for servers; it needs the purpose serverAuth".to_owned()
            }
            other => format!("the server's certificate is not valid: {other}"),
        },
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => {
                "the server asks for a certificate; give --tls-client-cert and --tls-client-key".to_owned()
            }
            AlertDescription::UnknownCA => {
                "the server does not take our certificate: it is not signed by a CA that the server trusts".to_owned()
            }
            AlertDescription::CertificateExpired => {
                "the server does not take our certificate: it has expired; renew it".to_owned()
            }
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::AccessDenied => format!("the server does not take our certificate ({alert:?})"),
            AlertDescription::NoApplicationProtocol => {
                "the server does not speak HTTP/2; is it a gRPC server?".to_owned()
            }
            other => format!("the server refuses ({other:?})"),
        },
        Error::InvalidMessage(_) => "the server does not speak TLS; for a connection without, write http://host:port".to_owned(),
        other => other.to_string(),
    }
}

/// Why a connection was not accepted.
pub(crate) fn accept_failure(error: &io::Error) -> String {
    let Some(inner) = inner(error) else { return error.to_string() };
    match inner {
        Error::NoCertificatesPresented => "the client shows no certificate".to_owned(),
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the client's certificate is not signed by a CA that --tls-client-ca names".to_owned()
        }
        Error::InvalidCertificate(problem) => format!("the client's certificate is not valid: {problem}"),
        Error::AlertReceived(alert) => format!("the client refuses ({alert:?})"),
        Error::InvalidMessage(_) => "the client does not speak TLS".to_owned(),
        other => other.to_string(),
    }
}

/// Names of a certificate, which rustls tells with their kind, as `DnsName("localhost")`.
fn list(names: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
        inner.trim_matches('"').escape_debug().to_string()
    };
    match names {
        [] => "no name at all".to_owned(),
        names => names.iter().map(bare).collect::<Vec<_>>().join(", "),
    }
}

/// Seconds in the largest unit of which there is one.
fn span(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_their_largest_unit() {
        let told: Vec<_> = [1, 59, 61, 7200, 86_400, 1_000_000].map(span).into();
        assert_eq!(told, ["1 second", "59 seconds", "1 minute", "2 hours", "1 day", "11 days"]);
    }

    #[test]
    fn names_are_told_bare() {
        let names = ["DnsName(\"localhost\")", "IpAddress(127.0.0.1)", "another"].map(str::to_owned);
        assert_eq!(list(&names), "localhost, 127.0.0.1, another");
        assert_eq!(list(&[]), "no name at all");
    }

    #[test]
    fn what_is_not_known_is_told_as_it_is() {
        let plain = io::Error::other("out of luck");
        assert_eq!(
            (connect_failure(&plain, "x"), accept_failure(&plain)),
            ("out of luck".into(), "out of luck".into())
        );
        let unknown = io::Error::new(io::ErrorKind::InvalidData, Error::DecryptError);
        assert_eq!(connect_failure(&unknown, "x"), accept_failure(&unknown));
    }
}
