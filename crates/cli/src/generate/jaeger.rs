//! Where a recorded trace can be looked at.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long Jaeger may take to take a connection. It is asked once, at the end.
const PATIENCE: Duration = Duration::from_millis(300);

/// The page of a trace on the Jaeger at `url` if one answers there, else the trace's id; nothing without a trace.
pub(super) fn page(trace_id: &str, url: &str) -> Option<String> {
    // The id comes from a server, and goes to a terminal.
    if trace_id.is_empty() || !trace_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let url = url.trim_end_matches('/');
    Some(if answers(url) { format!("{url}/trace/{trace_id}") } else { trace_id.to_owned() })
}

fn answers(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let default = if scheme == "https" { ":443" } else { ":80" };
    let port = authority.rsplit(']').next().is_some_and(|end| end.contains(':'));
    let address = if port { authority.to_owned() } else { format!("{authority}{default}") };
    address
        .to_socket_addrs()
        .is_ok_and(|mut all| all.any(|address| TcpStream::connect_timeout(&address, PATIENCE).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_linked_only_where_jaeger_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        assert_eq!(page("0af7", &url).unwrap(), format!("{url}trace/0af7"));
        drop(listener);
        for url in [url.as_str(), "no url", "http://", "ftp://["] {
            assert_eq!(page("0af7", url).unwrap(), "0af7", "{url}");
        }
        assert_eq!(page("", &url), None);
        assert_eq!(page("\u{1b}[2J", &url), None);
    }
}
