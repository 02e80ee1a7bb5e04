//! Bytes on the wire: what connections carry, and which call it was for.
//!
//! * **Exact: connections.** Every connection of this crate, accepted or made, is counted on the socket, below
//!   whatever encrypts it: just what the kernel counts in TCP_INFO (`bytes_sent` without retransmissions,
//!   `bytes_received`). [`wire_connections`] lists the open ones, [`wire_totals`] sums over the process.
//! * **Exact: a call's own frames.** Over a [`MeteredChannel`] every call has a [`CallBytes`], which counts the HTTP/2
//!   DATA frames of its stream in both directions: nine bytes of header, and a payload that is gRPC's prefix of
//!   five bytes and the message, however the HTTP/2 library splits it.
//! * **Shared: the rest of a connection.** Handshake and records of TLS where there is any, preface, SETTINGS, HEADERS, WINDOW_UPDATE, PING are nobody's alone. What has
//!   gathered of them is shared out when calls are settled, by the bytes of their own frames; no byte is charged
//!   twice, and none is lost: what a closed call leaves behind (a Close, its trailers) is paid by the next.
//!
//! Nothing here allocates or takes a lock on the way of a read or write, but for a stream's first frame, when it is
//! entered. IP and TCP headers are not counted; neither are the bytes of other processes' clients.

mod call;
mod counter;
mod frames;
mod io;
mod metered;
mod records;
mod shares;
mod streams;

pub use call::{CallBytes, WireBytes};
pub use counter::{WireConnection, WireCounter, WireRole, wire_connections, wire_totals};
pub(crate) use io::{ClientIo, Counted, Socket};
pub use metered::MeteredChannel;
pub(crate) use streams::{Streams, Waiting};

#[cfg(test)]
mod tests;
