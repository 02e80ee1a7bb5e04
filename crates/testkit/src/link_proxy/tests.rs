//! The link is as slow, as narrow and as broken as it is told to be.

use super::*;

/// No wait of a test is longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that sends back what it gets, and a link to it.
fn echo() -> LinkProxy {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                let _copied = std::io::copy(&mut from, &mut to);
                let _gone = to.shutdown(Shutdown::Write);
            });
        }
    });
    LinkProxy::start(target)
}

fn connect(link: &LinkProxy) -> TcpStream {
    let stream = TcpStream::connect(link.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn round_trip(stream: &mut TcpStream) -> Duration {
    let start = Instant::now();
    stream.write_all(b"ping").unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    start.elapsed()
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Sends bytes and reads as many back; how long that took.
fn through(stream: &TcpStream, bytes: &[u8]) -> (Vec<u8>, Duration) {
    let (mut to, sent) = (stream.try_clone().unwrap(), bytes.to_vec());
    let start = Instant::now();
    let sender = thread::spawn(move || to.write_all(&sent).unwrap());
    let mut back = vec![0; bytes.len()];
    (&*stream).read_exact(&mut back).unwrap();
    sender.join().unwrap();
    (back, start.elapsed())
}

#[test]
fn a_round_trip_takes_the_delay_twice_and_hardly_more() {
    let link = echo();
    let mut stream = connect(&link);
    // The fastest of many: what the machine does beside is not the link's.
    let mut fastest = |delay| {
        link.set_delay(delay);
        let trips: Vec<_> = (0..30).map(|_| round_trip(&mut stream)).collect();
        assert!(trips.iter().all(|trip| *trip >= 2 * (delay + OWN_DELAY)), "{trips:?}");
        trips.into_iter().min().unwrap()
    };
    let base = fastest(Duration::ZERO);
    for delay in [1, 20].map(Duration::from_millis) {
        let (measured, asked) = (fastest(delay).saturating_sub(base), 2 * delay);
        let off = measured.abs_diff(asked);
        assert!(off < Duration::from_millis(1), "{measured:?} instead of {asked:?}");
    }
}

#[test]
fn a_delay_costs_no_bandwidth_and_no_order() {
    let link = echo();
    let delay = Duration::from_millis(40);
    link.set_delay(delay);
    let sent = noise(4 << 20);
    let (back, took) = through(&connect(&link), &sent);
    assert!(back == sent, "other bytes came back");
    // One chunk after the other would take 256 times the delay, 10 s.
    assert!(took >= 2 * delay && took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_rate_is_kept() {
    let link = echo();
    link.set_rate(Some(1_000_000));
    let sent = noise(300_000);
    let (back, took) = through(&connect(&link), &sent);
    assert!(back == sent, "other bytes came back");
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(3), "{took:?}");
    link.set_rate(None);
    assert!(through(&connect(&link), &sent).1 < Duration::from_millis(300));
}

#[test]
fn a_pause_holds_bytes_back_and_loses_none() {
    let link = echo();
    let mut stream = connect(&link);
    round_trip(&mut stream);
    link.pause();
    stream.write_all(b"held").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut back = [0; 4];
    assert!(stream.read_exact(&mut back).is_err(), "something came through");
    link.resume();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"held");
}

#[test]
fn a_cut_ends_connections_and_lets_new_ones_in() {
    let link = echo();
    let mut streams = [connect(&link), connect(&link)];
    for stream in &mut streams {
        round_trip(stream);
    }
    link.set_delay(Duration::from_millis(50));
    streams[0].write_all(b"lost").unwrap();
    link.pause();
    link.cut();
    for mut stream in streams {
        let mut rest = Vec::new();
        let _reset_or_ended = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?} came through");
    }
    link.resume();
    round_trip(&mut connect(&link));
    let address = link.address();
    drop(link);
    let closed = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(10));
        TcpStream::connect(address).is_err()
    });
    assert!(closed, "the address is still open");
}

#[test]
fn the_end_of_one_direction_is_passed_on_alone() {
    let link = echo();
    let mut stream = connect(&link);
    stream.write_all(b"all").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"all");
}
