//! A served process from the outside: health, reflection, and an end in bounded time whatever its peers do.
//!
//! The service under test is tonic's own health service, served under its own name.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use foretoken_transport::{
    ChannelConfig, Drain, HealthSwitch, Invocation, ListenArgs, ServerConfig, TransportError, channel,
    loading, serve, wait_healthy,
};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

const SERVICE: &str = "test.v1.Test";

/// Nothing here may take longer, drain and graces included.
const LIMIT: Duration = Duration::from_secs(10);

struct Process {
    address: String,
    drain: Drain,
    health: HealthSwitch,
    shutdown: oneshot::Sender<()>,
    served: JoinHandle<Result<(), TransportError>>,
}

impl Process {
    async fn start(drain_timeout: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (drain, health) = (Drain::new(), HealthSwitch::new());
        let config = ServerConfig {
            service_name: SERVICE,
            max_message_bytes: 4 << 20,
            max_connection_streams: 16,
            drain_timeout,
            announce: false,
            health: health.clone(),
            tls: None,
        };
        let (shutdown, on_shutdown) = oneshot::channel();
        let served = tokio::spawn(serve(
            config,
            listener,
            Routes::default(),
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            drain.clone(),
            async move { on_shutdown.await.unwrap_or_default() },
        ));
        Self { address, drain, health, shutdown, served }
    }

    fn channel(&self) -> Channel {
        channel(&self.address, &ChannelConfig::default()).unwrap()
    }

    /// Ends the process and tells how long that took.
    async fn end(self) -> Duration {
        let start = Instant::now();
        self.shutdown.send(()).unwrap();
        timeout(LIMIT, self.served).await.expect("serve hangs").unwrap().unwrap();
        start.elapsed()
    }
}

async fn check(channel: Channel, service: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest { service: service.to_owned() };
    HealthClient::new(channel)
        .check(request)
        .await
        .map(|reply| reply.get_ref().status())
        .map_err(|e| e.code())
}

/// Opens a reflection stream that its client never ends. It answers one question, so it is surely in flight.
async fn endless_stream(
    channel: Channel,
) -> (
    tokio::sync::mpsc::Sender<ServerReflectionRequest>,
    tonic::Streaming<tonic_reflection::pb::v1::ServerReflectionResponse>,
) {
    let (requests, receiver) = tokio::sync::mpsc::channel(1);
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    requests.send(question).await.unwrap();
    let mut replies = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::wrappers::ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    replies.next().await.unwrap().unwrap();
    (requests, replies)
}

#[tokio::test]
async fn health_knows_the_service_by_name_and_follows_its_switch() {
    let process = Process::start(LIMIT).await;
    wait_healthy(process.channel(), SERVICE, LIMIT).await.unwrap();
    for name in [SERVICE, ""] {
        assert_eq!(check(process.channel(), name).await, Ok(ServingStatus::Serving), "{name:?}");
    }
    assert_eq!(check(process.channel(), "test.v1.Other").await, Err(Code::NotFound));

    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let mut watch = HealthClient::new(process.channel()).watch(request).await.unwrap().into_inner();
    let mut next = async || watch.next().await.map(|reply| reply.unwrap().status());
    assert_eq!(next().await, Some(ServingStatus::Serving));
    process.health.set_serving(false);
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    // Not ready is not dead.
    assert_eq!(check(process.channel(), "").await, Ok(ServingStatus::Serving));
    let error = wait_healthy(process.channel(), SERVICE, Duration::from_millis(50)).await.unwrap_err();
    assert!(error.to_string().ends_with("it reports NOT_SERVING"), "{error}");
    process.health.set_serving(true);
    assert_eq!(next().await, Some(ServingStatus::Serving));

    // The watch is told, and then ended: it does not use up the time to drain.
    let ended = tokio::spawn(process.end());
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    assert_eq!(next().await, None);
    assert!(ended.await.unwrap() < Duration::from_secs(5));
}

/// One question as a container's probe asks it.
async fn probe(address: &str, words: &[&str]) -> Result<(), String> {
    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        invocation: Invocation<ListenArgs>,
    }
    let words = ["service", "healthcheck", "--address", address].into_iter().chain(words.iter().copied());
    let Invocation::Healthcheck(args) = Cli::parse_from(words).invocation else {
        panic!("not a healthcheck")
    };
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    args.run(SERVICE, nobody).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_probe_passes_only_while_the_service_serves() {
    let process = Process::start(LIMIT).await;
    let address = process.address.clone();
    probe(&address, &[]).await.unwrap();
    process.health.set_serving(false);
    while probe(&address, &[]).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let refused = probe(&address, &[]).await.unwrap_err();
    assert!(refused.contains(SERVICE) && refused.ends_with("it reports NOT_SERVING"), "{refused}");
    probe(&address, &["--service", ""]).await.unwrap();
    let unknown = probe(&address, &["--service", "test.v1.Other"]).await.unwrap_err();
    assert!(unknown.contains("test.v1.Other"), "{unknown}");
    process.end().await;
    let gone = probe(&address, &["--service", ""]).await.unwrap_err();
    assert!(gone.contains("refused"), "{gone}");
}

#[tokio::test]
async fn a_probe_gives_up_in_time() {
    // It accepts and never speaks.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let late = timeout(LIMIT, probe(&address, &["--timeout", "100ms"])).await.unwrap().unwrap_err();
    assert!(late.ends_with("no answer within 100ms"), "{late}");
}

#[tokio::test]
async fn a_service_that_loads_lives_and_is_not_ready() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (loaded, on_loaded) = oneshot::channel();
    let asked = async {
        let channel = channel(&address, &ChannelConfig::default()).unwrap();
        assert_eq!(check(channel.clone(), "").await, Ok(ServingStatus::Serving));
        assert_eq!(check(channel.clone(), SERVICE).await, Ok(ServingStatus::NotServing));
        let request = HealthCheckRequest { service: SERVICE.to_owned() };
        let watch = HealthClient::new(channel.clone()).watch(request).await.unwrap();
        loaded.send(7).unwrap();
        (channel, watch.into_inner())
    };
    let (made, (channel, mut watch)) =
        timeout(LIMIT, async { tokio::join!(loading(&listener, None, SERVICE, on_loaded), asked) })
            .await
            .unwrap();
    assert_eq!(made, Ok(7));
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(watch.next().await.is_none(), "the watch goes on");

    // The listener is free for the service itself, and the client's channel finds it there.
    let (shutdown, on_shutdown) = oneshot::channel::<()>();
    let config = ServerConfig {
        service_name: SERVICE,
        max_message_bytes: 4 << 20,
        max_connection_streams: 16,
        drain_timeout: LIMIT,
        announce: false,
        health: HealthSwitch::new(),
        tls: None,
    };
    let served = tokio::spawn(serve(
        config,
        listener,
        Routes::default(),
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        Drain::new(),
        async move { on_shutdown.await.unwrap_or_default() },
    ));
    wait_healthy(channel, SERVICE, LIMIT).await.unwrap();
    shutdown.send(()).unwrap();
    timeout(LIMIT, served).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_foreign_server_is_recognised_at_once() {
    let process = Process::start(LIMIT).await;
    let error = wait_healthy(process.channel(), "test.v1.Other", LIMIT).await.unwrap_err();
    assert!(matches!(error, TransportError::NotProvided { .. }), "{error}");
    process.end().await;
}

#[tokio::test]
async fn reflection_lists_what_this_process_serves() {
    let process = Process::start(LIMIT).await;
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut replies = ServerReflectionClient::new(process.channel())
        .server_reflection_info(tokio_stream::iter([question]))
        .await
        .unwrap()
        .into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) =
        replies.next().await.unwrap().unwrap().message_response
    else {
        panic!("not a list of services");
    };
    let mut names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    names.sort();
    let mut expected = [
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ];
    expected.sort();
    assert_eq!(names, expected);
    drop(replies);
    process.end().await;
}

#[tokio::test]
async fn a_damaged_description_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ServerConfig {
        service_name: SERVICE,
        max_message_bytes: 1024,
        max_connection_streams: 1,
        drain_timeout: Duration::ZERO,
        announce: false,
        health: HealthSwitch::new(),
        tls: None,
    };
    let error =
        serve(config, listener, Routes::default(), &[1, 2, 3], Drain::new(), async {}).await.unwrap_err();
    assert!(
        error.to_string().starts_with("the protocol description of test.v1.Test is not valid"),
        "{error}"
    );
}

#[tokio::test]
async fn an_idle_process_ends_at_once() {
    let process = Process::start(LIMIT).await;
    // One connection that is open but idle, and one whose peer has never spoken.
    let idle = process.channel();
    wait_healthy(idle.clone(), SERVICE, LIMIT).await.unwrap();
    let mut silent = TcpStream::connect(&process.address).await.unwrap();
    let address = process.address.clone();
    assert!(process.end().await < Duration::from_secs(5));
    let mut sink = Vec::new();
    timeout(LIMIT, silent.read_to_end(&mut sink)).await.expect("the silent connection stays open").ok();
    assert!(TcpStream::connect(&address).await.is_err(), "the port is still bound");
}

#[tokio::test]
async fn a_running_stream_may_finish() {
    let process = Process::start(LIMIT).await;
    let (requests, mut replies) = endless_stream(process.channel()).await;
    let drain = process.drain.clone();
    let ended = tokio::spawn(process.end());
    drain.draining().await;
    // Still answered while draining, and over when the client says so.
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    requests.send(question).await.unwrap();
    replies.next().await.unwrap().unwrap();
    drop(requests);
    assert!(replies.next().await.is_none());
    assert!(ended.await.unwrap() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_stream_that_never_ends_is_cut_after_the_drain() {
    let drain_timeout = Duration::from_millis(100);
    let process = Process::start(drain_timeout).await;
    let (requests, mut replies) = endless_stream(process.channel()).await;
    let drain = process.drain.clone();
    let took = process.end().await;
    assert!(took >= drain_timeout && took < LIMIT, "{took:?}");
    timeout(LIMIT, drain.expired()).await.unwrap();
    timeout(LIMIT, replies.next()).await.expect("the stream is still open").unwrap().unwrap_err();
    drop(requests);
}

#[tokio::test]
async fn whoever_begins_the_drain_ends_the_process() {
    let process = Process::start(LIMIT).await;
    wait_healthy(process.channel(), SERVICE, LIMIT).await.unwrap();
    process.drain.begin();
    timeout(Duration::from_secs(5), process.served).await.unwrap().unwrap().unwrap();
}
