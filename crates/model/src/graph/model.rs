//! The parts of a model as tensors on one device.

use super::linear::Linear;
use crate::compute::rope::Ropes;
use crate::config::ModelConfig;
use crate::weights::{Layer, Weights};
use candle_core::{Device, Result, Tensor};

/// All weights of a model on a device.
#[derive(Debug)]
pub(super) struct GraphModel {
    pub(super) config: ModelConfig,
    pub(super) device: Device,
    pub(super) ropes: Ropes,
    pub(super) embedding: Linear,
    pub(super) layers: Vec<GraphLayer>,
    pub(super) final_norm: Tensor,
    /// The same tensor as the embedding where the two are tied.
    pub(super) head: Linear,
    bytes: u64,
}

/// The weights of one decoder layer.
#[derive(Debug)]
pub(super) struct GraphLayer {
    pub(super) attention_norm: Tensor,
    pub(super) query: Projection,
    pub(super) key: Projection,
    pub(super) value: Projection,
    pub(super) attention_output: Linear,
    /// Weights of the norms of what attention and feed-forward give.
    pub(super) post_norms: Option<[Tensor; 2]>,
    pub(super) feed_forward_norm: Tensor,
    pub(super) gate: Linear,
    pub(super) up: Linear,
    pub(super) down: Linear,
}

/// One of the three projections in front of attention, with what some families put behind it.
#[derive(Debug)]
pub(super) struct Projection {
    weights: Linear,
    bias: Option<Tensor>,
    /// Weights of the norm of each head.
    pub(super) head_norm: Option<Tensor>,
}

impl Projection {
    /// The projected rows, with the bias.
    pub(super) fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let rows = self.weights.forward(input)?;
        match &self.bias {
            Some(bias) => rows.broadcast_add(bias),
            None => Ok(rows),
        }
    }
}

impl GraphModel {
    /// Moves weights to the device; host memory is given back part by part.
    pub(super) fn upload(weights: Weights, ropes: Ropes, device: &Device) -> Result<Self> {
        let Weights { config, embedding, layers, final_norm, untied_head } = weights;
        let embedding = Linear::upload(embedding, device)?;
        let mut bytes = embedding.bytes();
        let head = match untied_head {
            Some(head) => {
                let head = Linear::upload(head, device)?;
                bytes += head.bytes();
                head
            }
            None => embedding.clone(),
        };
        let layers =
            layers.into_iter().map(|layer| GraphLayer::upload(layer, device)).collect::<Result<Vec<_>>>()?;
        let final_norm = vector(final_norm, device)?;
        bytes += vector_bytes(&final_norm) + layers.iter().map(GraphLayer::bytes).sum::<u64>();
        Ok(Self { config, device: device.clone(), ropes, embedding, layers, final_norm, head, bytes })
    }

    /// Bytes of device memory that the weights take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl GraphLayer {
    fn upload(layer: Layer, device: &Device) -> Result<Self> {
        let (query_bias, key_bias, value_bias) =
            layer.biases.map_or((None, None, None), |b| (Some(b.query), Some(b.key), Some(b.value)));
        let (query_norm, key_norm) = layer.head_norms.map_or((None, None), |n| (Some(n.query), Some(n.key)));
        let optional = |values: Option<Vec<f32>>| values.map(|values| vector(values, device)).transpose();
        let post_norms = match layer.post_norms {
            Some(norms) => Some([vector(norms.attention, device)?, vector(norms.feed_forward, device)?]),
            None => None,
        };
        let projection = |weights, bias, head_norm| -> Result<Projection> {
            let weights = Linear::upload(weights, device)?;
            Ok(Projection { weights, bias: optional(bias)?, head_norm: optional(head_norm)? })
        };
        Ok(Self {
            attention_norm: vector(layer.attention_norm, device)?,
            query: projection(layer.query, query_bias, query_norm)?,
            key: projection(layer.key, key_bias, key_norm)?,
            value: projection(layer.value, value_bias, None)?,
            attention_output: Linear::upload(layer.attention_output, device)?,
            post_norms,
            feed_forward_norm: vector(layer.feed_forward_norm, device)?,
            gate: Linear::upload(layer.gate, device)?,
            up: Linear::upload(layer.up, device)?,
            down: Linear::upload(layer.down, device)?,
        })
    }

    fn bytes(&self) -> u64 {
        let projections = [&self.query, &self.key, &self.value];
        let linear = [&self.attention_output, &self.gate, &self.up, &self.down];
        let linear =
            linear.into_iter().chain(projections.map(|p| &p.weights)).map(Linear::bytes).sum::<u64>();
        let optional = projections.into_iter().flat_map(|p| [&p.bias, &p.head_norm]).flatten();
        let optional = optional.chain(self.post_norms.iter().flatten());
        let vectors = [&self.attention_norm, &self.feed_forward_norm].into_iter().chain(optional);
        linear + vectors.map(vector_bytes).sum::<u64>()
    }
}

fn vector(values: Vec<f32>, device: &Device) -> Result<Tensor> {
    let len = values.len();
    Tensor::from_vec(values, len, device)
}

fn vector_bytes(vector: &Tensor) -> u64 {
    (vector.elem_count() * vector.dtype().size_in_bytes()) as u64
}
