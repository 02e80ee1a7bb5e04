//! Calls against a recording of their connection.
//!
//! The calls are to reflection, which repeats a request's host in its answer, however long: frames larger than HTTP/2's
//! limit, and streams that outrun their windows.

use foretoken_testkit::cluster::verifier;
use foretoken_transport::{CallBytes, ChannelConfig, MeteredChannel, WireBytes, metered_channel};
use std::time::Duration;

use futures_util::future::join_all;
use tokio_stream::StreamExt;
use tonic::Request;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use crate::recorder::{Data, Recorder};
use crate::{settled, target};

/// What the hosts of a call's messages begin with.
fn mark(call: usize) -> String {
    format!("<call {call}>")
}

/// Sends messages of these sizes, all at once, and reads all answers.
async fn echo(channel: MeteredChannel, call: usize, sizes: &[usize]) -> CallBytes {
    let bytes = CallBytes::default();
    let message = |size: &usize| ServerReflectionRequest {
        host: format!("{}{}", mark(call), "x".repeat(*size)),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let messages: Vec<_> = sizes.iter().map(message).collect();
    let mut request = Request::new(tokio_stream::iter(messages));
    request.extensions_mut().insert(bytes.clone());
    let mut client = ServerReflectionClient::new(channel).max_decoding_message_size(64 << 20);
    let mut answers = client.server_reflection_info(request).await.unwrap().into_inner();
    let mut answered = 0;
    while let Some(answer) = answers.next().await {
        assert!(answer.unwrap().valid_host.starts_with(&mark(call)));
        answered += 1;
    }
    assert_eq!(answered, sizes.len());
    bytes
}

/// A count that knows no more than messages: nine bytes for each.
fn naive(data: &Data) -> u64 {
    let (mut rest, mut messages) = (data.payload.as_slice(), 0);
    while let Some((prefix, after)) = rest.split_at_checked(5) {
        rest = &after[u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize..];
        messages += 1;
    }
    data.payload.len() as u64 + 9 * messages
}

#[tokio::test(flavor = "multi_thread")]
async fn a_calls_own_frames_and_the_whole_of_a_connection_are_what_was_recorded() {
    let node = verifier(target()).await;
    let recorder = Recorder::before(node.address).await;
    let channel = metered_channel(&recorder.address.to_string(), &ChannelConfig::default()).unwrap();
    let sizes: Vec<Vec<usize>> = vec![
        vec![0],
        vec![1; 40],
        vec![100, 16_000, 17_000, 3],
        vec![40_000; 5],
        vec![3_000_000, 1],
        vec![900_000, 2_000_000, 5],
        vec![2_500_000],
    ];
    // One begins after the other: where the connection's window cuts a call's first frame to less than what tells it from
    // the rest, two calls of one beginning may be taken for each other.
    let calls = sizes.iter().enumerate().map(async |(call, sizes)| {
        tokio::time::sleep(Duration::from_millis(200) * call as u32).await;
        echo(channel.clone(), call, sizes).await
    });
    let calls = join_all(calls).await;
    let (up, down) = settled(|| recorder.len()).await;

    let streams = recorder.streams();
    assert_eq!(streams.len(), calls.len());
    let (mut split_by_windows, mut told_from_naive) = (0, 0);
    for (call, bytes) in calls.iter().enumerate() {
        let mark = mark(call).into_bytes();
        let begins = |data: &Data| {
            data.payload[..200.min(data.payload.len())].windows(mark.len()).any(|at| at == mark)
        };
        let found: Vec<_> = streams.values().filter(|(up, _)| begins(up)).collect();
        let [(up, down)] = found.as_slice() else { panic!("{} streams of call {call}", found.len()) };
        assert_eq!(bytes.own(), WireBytes { up: up.wire(), down: down.wire() }, "call {call}");
        // A frame in the middle of a message that is not as large as may be was cut by a window.
        split_by_windows +=
            usize::from(up.frames.iter().filter(|&&len| len > 0 && len < 16_384).count() > sizes[call].len());
        told_from_naive += usize::from(naive(up) != up.wire());
    }
    assert!(split_by_windows > 0, "no stream outran its window: the test shows less than it says");
    assert_eq!(told_from_naive, calls.len(), "a count by messages passes for one by frames");

    // Settled one after the other they share all the rest: nothing of the connection is left.
    let mut charged = WireBytes::default();
    let mut rests = Vec::new();
    for bytes in &calls {
        let (own, whole) = (bytes.own(), bytes.settle());
        charged.up += whole.up;
        charged.down += whole.down;
        rests.push((own.up, whole.up - own.up));
    }
    assert_eq!((charged.up, charged.down), (up, down));
    let connection = calls[0].connection().unwrap();
    assert_eq!((connection.bytes().sent(), connection.bytes().received()), (up, down));
    assert_eq!(connection.charged(), charged);
    // By the bytes of own frames, to the byte that does not divide.
    let (own, rest) = rests.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    for (mine, share) in rests {
        let exact = rest as f64 * mine as f64 / own as f64;
        assert!((share as f64 - exact).abs() <= calls.len() as f64, "{share} instead of {exact}");
    }
}
