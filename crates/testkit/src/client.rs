//! A client of the orchestrator, as tests want it: the whole answer at once.

use foretoken_proto::v1;
use foretoken_proto::v1::generate_response::Event;
use foretoken_proto::v1::orchestrator_client::OrchestratorClient;
use tonic::transport::Channel;
use tonic::{IntoRequest, Status, Streaming};

use crate::cluster::Node;

/// A finished answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The first event.
    pub started: v1::Started,
    /// All tokens, in order.
    pub tokens: Vec<v1::Token>,
    /// The last event.
    pub finished: v1::Finished,
}

impl Answer {
    /// The token ids.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> String {
        self.tokens.iter().map(|token| token.text.as_str()).collect()
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> &v1::Ledger {
        self.finished.ledger.as_ref().expect("a finished answer has a ledger")
    }
}

/// A request over token ids.
#[must_use]
pub fn ids_request(prompt: &[u32], max_tokens: u32) -> v1::GenerateRequest {
    v1::GenerateRequest {
        prompt: Some(v1::generate_request::Prompt::TokenIds(v1::TokenIds { ids: prompt.to_vec() })),
        max_tokens: Some(max_tokens),
        ..v1::GenerateRequest::default()
    }
}

/// Sends a request and reads its answer to the end.
///
/// # Errors
/// The status with which the call failed, at once or in the middle.
pub async fn generate(node: &Node, request: impl IntoRequest<v1::GenerateRequest>) -> Result<Answer, Status> {
    generate_at(node.channel(), request).await
}

/// Sends a request and gives its events as they come.
///
/// # Errors
/// The status with which the call failed at once.
pub async fn events_at(
    channel: Channel,
    request: impl IntoRequest<v1::GenerateRequest>,
) -> Result<Streaming<v1::GenerateResponse>, Status> {
    OrchestratorClient::new(channel).generate(request).await.map(tonic::Response::into_inner)
}

/// [`generate`] over any channel.
///
/// # Errors
/// The status with which the call failed, at once or in the middle.
pub async fn generate_at(
    channel: Channel,
    request: impl IntoRequest<v1::GenerateRequest>,
) -> Result<Answer, Status> {
    let mut samples = samples_at(channel, request).await?;
    match (samples.pop(), samples.is_empty()) {
        (Some(answer), true) => Ok(answer),
        _ => Err(Status::internal("more samples than one")),
    }
}

/// Sends a request and reads all its samples to the end, in their order.
///
/// # Errors
/// The status with which the call failed, at once or in the middle.
pub async fn samples_at(
    channel: Channel,
    request: impl IntoRequest<v1::GenerateRequest>,
) -> Result<Vec<Answer>, Status> {
    let request = request.into_request();
    let wanted = request.get_ref().n.unwrap_or(1) as usize;
    let mut events = events_at(channel, request).await?;
    let mut started = None;
    let mut samples = vec![(Vec::new(), None); wanted];
    while let Some(response) = events.message().await? {
        let sample = samples.get_mut(response.sample as usize);
        let (tokens, finished) = sample.ok_or_else(|| Status::internal("a sample that nobody asked for"))?;
        match response.event {
            Some(Event::Started(event)) => started = Some(event),
            Some(Event::Tokens(event)) => tokens.extend(event.tokens),
            Some(Event::Finished(event)) => *finished = Some(event),
            None => return Err(Status::internal("an event without a kind")),
        }
    }
    let ended = || Status::internal("the stream ended without Started and Finished");
    let started = started.ok_or_else(ended)?;
    let answer = |(tokens, finished): (_, Option<v1::Finished>)| {
        Ok(Answer { started: started.clone(), tokens, finished: finished.ok_or_else(ended)? })
    };
    samples.into_iter().map(answer).collect()
}

/// What an orchestrator says of itself.
///
/// # Panics
/// If it does not answer.
pub async fn describe(node: &Node) -> v1::OrchestratorDescription {
    describe_at(node.channel()).await
}

/// [`describe`] over any channel.
///
/// # Panics
/// If it does not answer.
pub async fn describe_at(channel: Channel) -> v1::OrchestratorDescription {
    let mut client = OrchestratorClient::new(channel);
    client.describe(v1::DescribeRequest {}).await.expect("Describe answers").into_inner()
}
