//! `GET /metrics` over HTTP/1.1: the registry as text, and nothing else.
//!
//! One request per connection, a bounded number of connections, and none for longer than a scrape may take: whoever
//! connects here can keep no resource of the process.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// The only path.
const PATH: &str = "/metrics";

/// Scrapes at the same time; others wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 8;

/// Longest life of a connection: Prometheus' default scrape timeout.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);

/// Longest that scrapes in progress may go on once the process ends.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Rest after a failed accept, e.g. for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The listening endpoint. Dropped without [`stop`](Self::stop), it serves on for as long as the runtime lives.
#[derive(Debug)]
pub(super) struct Endpoint {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Listens at `address`; port 0 takes a free one. Needs a tokio runtime.
    pub(super) fn start(address: SocketAddr, registry: Registry) -> io::Result<Self> {
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, registry, stopped));
        Ok(Self { address, stop, task })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port and waits, not for long, for scrapes in progress.
    pub(super) async fn stop(self) {
        let _gone_already = self.stop.send(());
        let _over = tokio::time::timeout(STOP_LIMIT, self.task).await;
    }
}

async fn serve(listener: TcpListener, registry: Registry, mut stopped: oneshot::Receiver<()>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut scrapes = JoinSet::new();
    loop {
        let next = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            next = next => next,
            _ = &mut stopped => break,
        };
        while scrapes.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let registry = registry.clone();
                scrapes.spawn(async move {
                    let _over = tokio::time::timeout(CONNECTION_LIMIT, connection(stream, registry)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a scrape was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while scrapes.join_next().await.is_some() {}
}

async fn connection(stream: TcpStream, registry: Registry) {
    let service = service_fn(async |request| io::Result::Ok(answer(&request, &registry)));
    let served =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a scrape broke off");
    }
}

fn answer(request: &Request<Incoming>, registry: &Registry) -> Response<String> {
    if request.uri().path() != PATH {
        return text(StatusCode::NOT_FOUND, format!("there is only {PATH} here\n"));
    }
    if request.method() != Method::GET {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(page) => {
            let mut response = text(StatusCode::OK, page);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
            response
        }
        Err(error) => {
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}\n"))
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn exchange(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn start() -> Endpoint {
        let registry = Registry::new();
        let counter = prometheus::IntCounter::new("things_total", "Things").unwrap();
        counter.inc_by(3);
        registry.register(Box::new(counter)).unwrap();
        Endpoint::start("127.0.0.1:0".parse().unwrap(), registry).unwrap()
    }

    #[tokio::test]
    async fn metrics_are_served_at_one_path_by_one_method() {
        let endpoint = start();
        let page = exchange(endpoint.address(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("text/plain; version=0.0.4"), "{page}");
        assert!(
            page.ends_with("# HELP things_total Things\n# TYPE things_total counter\nthings_total 3\n"),
            "{page}"
        );
        let page = exchange(endpoint.address(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 404 "), "{page}");
        let page =
            exchange(endpoint.address(), "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
                .await;
        assert!(page.starts_with("HTTP/1.1 405 "), "{page}");
    }

    #[tokio::test]
    async fn silent_connections_take_no_more_than_their_room_and_end_with_the_process() {
        let endpoint = start();
        let address = endpoint.address();
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS - 1 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let page = exchange(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        let began = std::time::Instant::now();
        endpoint.stop().await;
        assert!(began.elapsed() < STOP_LIMIT * 2);
        assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
    }
}
