//! Bytes that are no messages, and messages that are too large: a documented status, and the next request works.

use foretoken_proto::v1;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{describe, generate, ids_request};
use foretoken_testkit::cluster::{Cluster, MAX_MESSAGE_BYTES, Node, ngram};
use foretoken_testkit::table::random_table;
use prost::Message;
use prost::bytes::{Buf, BufMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::stream::{Verifying, block, text, verify_open, warm};
use crate::support::{VOCAB, assert_status, model, within};

/// Messages as they are.
#[derive(Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; from.remaining()];
        from.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}

/// Sends messages to a method and returns the status that the call ends with.
async fn send(channel: &Channel, path: &'static str, messages: Vec<Vec<u8>>) -> Result<(), Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let request = Request::new(tokio_stream::iter(messages));
    let replies = within(client.streaming(request, PathAndQuery::from_static(path), Bytes)).await?;
    let mut replies = replies.into_inner();
    while within(replies.message()).await?.is_some() {}
    Ok(())
}

async fn cluster() -> Cluster {
    let host = model("target", random_table(1, VOCAB, 0), &RuntimeConfig::default());
    Cluster::start(host, vec![ngram()], foretoken_orchestrator::Config::default()).await
}

fn garbage(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    // A field number of 0 is in no message, whatever follows.
    std::iter::once(0x07).chain(std::iter::repeat_with(&mut byte).take(len)).collect()
}

async fn verifier_works(node: &Node) {
    let (mut stream, _) =
        Verifying::open(&node.channel(), verify_open("s", &[0, 1], 32, warm())).await.unwrap();
    stream.verdict(block(text(1, 0, &[0, 1], 2), &[4])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_gets_a_status_and_the_next_request_works() {
    let cluster = cluster().await;
    let channel = cluster.verifier.channel();
    let open = v1::VerifyRequest {
        kind: Some(v1::verify_request::Kind::Open(verify_open("g", &[0, 1], 32, warm()))),
    };
    for seed in 0..20 {
        let bad = garbage(seed, seed as usize * 7);
        {
            let path = "/foretoken.v1.TargetVerifier/Verify";
            // As the first message, and in the middle of a session.
            let status = send(&channel, path, vec![bad.clone()]).await.unwrap_err();
            assert_status(&status, Code::InvalidArgument, "MALFORMED_MESSAGE");
            let status = send(&channel, path, vec![open.encode_to_vec(), bad.clone()]).await.unwrap_err();
            assert_status(&status, Code::InvalidArgument, "MALFORMED_MESSAGE");
        }
        let draft_channel = cluster.draft_workers[0].channel();
        let status =
            send(&draft_channel, "/foretoken.v1.DraftWorker/Draft", vec![bad.clone()]).await.unwrap_err();
        assert_status(&status, Code::InvalidArgument, "MALFORMED_MESSAGE");
        let orchestrator = cluster.orchestrator.channel();
        let status = send(&orchestrator, "/foretoken.v1.Orchestrator/Generate", vec![bad]).await.unwrap_err();
        assert_status(&status, Code::InvalidArgument, "MALFORMED_MESSAGE");
        verifier_works(&cluster.verifier).await;
    }
    assert_eq!(generate(&cluster.orchestrator, ids_request(&[0], 5)).await.unwrap().tokens.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_method_is_unimplemented() {
    let cluster = cluster().await;
    for path in ["/foretoken.v1.TargetVerifier/Nothing", "/foretoken.v2.TargetVerifier/Verify"] {
        let status = send(&cluster.verifier.channel(), path, vec![vec![]]).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_http_close_their_connection_and_no_other() {
    let cluster = cluster().await;
    for node in [&cluster.orchestrator, &cluster.verifier, &cluster.draft_workers[0]] {
        for len in [0, 1, 24, 5000] {
            let mut tcp = tokio::net::TcpStream::connect(node.address).await.unwrap();
            tcp.write_all(&garbage(len as u64, len)).await.unwrap();
            tcp.shutdown().await.unwrap();
            // Whatever it answers, it ends; a reset is an end too.
            let _ended = within(tcp.read_to_end(&mut Vec::new())).await;
        }
    }
    describe(&cluster.orchestrator).await;
    assert_eq!(generate(&cluster.orchestrator, ids_request(&[0], 5)).await.unwrap().tokens.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_limit_is_refused_by_size() {
    let cluster = cluster().await;
    let large = vec![0x0a; MAX_MESSAGE_BYTES + 1];
    for (node, path) in [
        (&cluster.verifier, "/foretoken.v1.TargetVerifier/Verify"),
        (&cluster.draft_workers[0], "/foretoken.v1.DraftWorker/Draft"),
        (&cluster.orchestrator, "/foretoken.v1.Orchestrator/Generate"),
    ] {
        let status = send(&node.channel(), path, vec![large.clone()]).await.unwrap_err();
        assert_status(&status, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
        assert!(status.message().contains(&MAX_MESSAGE_BYTES.to_string()), "{status:?}");
    }
    // In the middle of a session, too.
    let (mut stream, _) =
        Verifying::open(&cluster.verifier.channel(), verify_open("l", &[0, 1], 32, warm())).await.unwrap();
    stream.frame(block(text(1, 0, &[0, 1], 2), &vec![7; MAX_MESSAGE_BYTES])).await;
    assert_status(&stream.message().await.unwrap_err(), Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
    verifier_works(&cluster.verifier).await;
    let status =
        generate(&cluster.orchestrator, ids_request(&vec![1; MAX_MESSAGE_BYTES], 5)).await.unwrap_err();
    assert_status(&status, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
    assert_eq!(generate(&cluster.orchestrator, ids_request(&[0], 5)).await.unwrap().tokens.len(), 5);
}
