//! What the kernel has counted of a socket.

use std::net::SocketAddr;
use std::process::Command;

/// `bytes_sent` without `bytes_retrans`, which are the kernel's own doing, and `bytes_received` of TCP_INFO.
pub(crate) fn count(local: SocketAddr, peer: SocketAddr) -> (u64, u64) {
    let filter = format!("sport = :{} and dport = :{}", local.port(), peer.port());
    let output = Command::new("ss")
        .args(["-tinHO", &filter])
        .output()
        .unwrap_or_else(|error| panic!("`ss` cannot be run ({error}): install iproute2"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{filter}: {}", String::from_utf8_lossy(&output.stderr));
    let sockets: Vec<_> = text.lines().collect();
    let [socket] = sockets.as_slice() else { panic!("not one socket with {filter}: {text:?}") };
    // Counters at 0 are left out.
    let number = |name: &str| {
        let found = socket.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix(':'));
        found.map_or(0, |digits| digits.parse().unwrap())
    };
    (number("bytes_sent") - number("bytes_retrans"), number("bytes_received"))
}
