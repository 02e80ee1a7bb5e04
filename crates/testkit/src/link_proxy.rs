//! A TCP link as slow, as narrow and as broken as a test wants it.
//!
//! Each connection to a [`LinkProxy`] is carried to its target, in each direction by a thread that reads and stamps and
//! one that waits and writes. Threads and not tasks, because tokio's timer ticks in milliseconds and a test of the
//! ledger wants a delay to be right to a tenth of one; and because a busy runtime must not lengthen the link.
//!
//! A chunk leaves at its arrival, or when the link is free of what came before; it takes its length over the rate, then
//! [`OWN_DELAY`] and the delay asked for. Chunks are on their way side by side, so a delay costs no bandwidth. They never
//! overtake each other. A direction holds at most [`QUEUE`] chunks of [`CHUNK`] bytes; then it stops reading, and TCP
//! holds the sender up.
//!
//! It does not lose, repeat or damage bytes: TCP would hide that. What it cannot show is congestion control.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Waited beside the delay asked for, so that the time it takes to wake a thread does not show: measured from delay 0, a
/// delay is exact.
pub const OWN_DELAY: Duration = Duration::from_micros(300);

/// Most bytes read at once.
pub const CHUNK: usize = 16 << 10;

/// Most chunks on their way in one direction.
pub const QUEUE: usize = 1024;

/// Slept shorter by this, and the rest waited awake: about what a sleep is late.
const AWAKE: Duration = Duration::from_micros(120);

/// A listening address that leads to a target over the link. Dropping it cuts all connections and closes the address.
#[derive(Debug)]
pub struct LinkProxy {
    address: SocketAddr,
    link: Arc<Link>,
}

#[derive(Debug)]
struct Link {
    target: SocketAddr,
    /// Each way, microseconds.
    delay_us: AtomicU64,
    /// Each way and connection, bytes per second; 0 is without limit.
    rate: AtomicU64,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    paused: bool,
    closed: bool,
    connections: Vec<Arc<Pair>>,
}

/// A connection's two sockets.
#[derive(Debug)]
struct Pair {
    near: TcpStream,
    far: TcpStream,
    /// One direction has ended.
    half_ended: AtomicBool,
    cut: AtomicBool,
}

impl LinkProxy {
    /// A link to `target`, without delay or limit.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let link = Arc::new(Link {
            target,
            delay_us: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            gate: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&link);
        thread::spawn(move || accepting.accept(&listener));
        Self { address, link }
    }

    /// Where to connect instead of the target.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The delay each way, from now on. Bytes on their way keep to the delay of the moment when they are waited for.
    pub fn set_delay(&self, each_way: Duration) {
        let micros = u64::try_from(each_way.as_micros()).unwrap_or(u64::MAX);
        self.link.delay_us.store(micros, Ordering::Relaxed);
    }

    /// The limit each way and connection, in bytes per second, from now on.
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        self.link.rate.store(bytes_per_second.unwrap_or(0), Ordering::Relaxed);
    }

    /// Delivers nothing more, though nothing is lost: as a link that is down for a while.
    pub fn pause(&self) {
        self.link.gate().paused = true;
    }

    /// Delivers again, what was held back first.
    pub fn resume(&self) {
        self.link.gate().paused = false;
        self.link.changed.notify_all();
    }

    /// Ends all connections at once; what is on its way is lost. New ones are taken.
    pub fn cut(&self) {
        self.link.cut(&mut self.link.gate());
    }
}

impl Drop for LinkProxy {
    fn drop(&mut self) {
        let mut gate = self.link.gate();
        gate.closed = true;
        self.link.cut(&mut gate);
        drop(gate);
        // Wakes the thread that accepts.
        let _unheard = TcpStream::connect(self.address);
    }
}

impl Link {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self, gate: &mut Gate) {
        for pair in gate.connections.drain(..) {
            pair.cut();
        }
        self.changed.notify_all();
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while let Ok((near, _)) = listener.accept() {
            let far = TcpStream::connect(self.target);
            let mut gate = self.gate();
            if gate.closed {
                return;
            }
            // A target that is not there is one that closes at once.
            let Ok(far) = far else { continue };
            let pair =
                Arc::new(Pair { near, far, half_ended: AtomicBool::new(false), cut: AtomicBool::new(false) });
            gate.connections.retain(|pair| !pair.is_cut());
            gate.connections.push(Arc::clone(&pair));
            drop(gate);
            if self.carry(&pair).is_err() {
                pair.cut();
            }
        }
    }

    fn carry(self: &Arc<Self>, pair: &Arc<Pair>) -> std::io::Result<()> {
        for (from, to) in [(&pair.near, &pair.far), (&pair.far, &pair.near)] {
            to.set_nodelay(true)?;
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let (chunks, arrived) = sync_channel(QUEUE);
            let (link, pair) = (Arc::clone(self), Arc::clone(pair));
            thread::spawn(move || stamp(from, &chunks));
            thread::spawn(move || link.deliver(&arrived, to, &pair));
        }
        Ok(())
    }

    /// Writes each chunk when it is due, and an end when it has come. The other direction may go on.
    fn deliver(&self, arrived: &Receiver<Chunk>, mut to: TcpStream, pair: &Pair) {
        let mut free = Instant::now();
        let mut whole = false;
        while let Ok(Chunk { at, bytes }) = arrived.recv() {
            free = free.max(at);
            if let Some(nanos) =
                (bytes.len() as u64 * 1_000_000_000).checked_div(self.rate.load(Ordering::Relaxed))
            {
                free += Duration::from_nanos(nanos);
            }
            let delay = Duration::from_micros(self.delay_us.load(Ordering::Relaxed));
            wait_until(free + OWN_DELAY + delay);
            self.wait_open(pair);
            whole = bytes.is_empty();
            if whole || to.write_all(&bytes).is_err() {
                break;
            }
        }
        // An end of one direction is passed on, the other goes on; a failure is one of both.
        let ended = whole && to.shutdown(Shutdown::Write).is_ok();
        if !ended || pair.half_ended.swap(true, Ordering::AcqRel) {
            pair.cut();
        }
    }

    fn wait_open(&self, pair: &Pair) {
        let blocked = |gate: &mut Gate| gate.paused && !pair.is_cut();
        drop(self.changed.wait_while(self.gate(), blocked));
    }
}

impl Pair {
    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Both ends see the connection end.
    fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        for socket in [&self.near, &self.far] {
            // It may have ended by itself.
            let _gone = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Bytes and when they came; none at the sender's end.
struct Chunk {
    at: Instant,
    bytes: Vec<u8>,
}

fn stamp(mut from: TcpStream, chunks: &SyncSender<Chunk>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(len) = from.read(&mut buffer) {
        let chunk = Chunk { at: Instant::now(), bytes: buffer[..len].to_vec() };
        if chunks.send(chunk).is_err() || len == 0 {
            return;
        }
    }
}

/// Sleeps most of the time and stays awake for the rest, because a sleep is late.
fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if let Some(asleep) = left.checked_sub(AWAKE) {
        thread::sleep(asleep);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests;
