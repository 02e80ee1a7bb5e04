//! The weights in the kernels' order, packed tensor by tensor as they are read.

use crate::compute::rope::Pairing;
use crate::config::ModelConfig;
use crate::load::LoadError;
use crate::weights::{HeadNorms, LayerPart, Part, PostNorms, TensorSource};
use foretoken_kernels::{CacheShape, Linear, Packed, Precision};

/// All weights of a model.
#[derive(Debug)]
pub(crate) struct FusedWeights {
    /// Sizes and constants.
    pub(crate) config: ModelConfig,
    /// Decoder layers, first to last.
    pub(crate) layers: Vec<FusedLayer>,
    /// Scale of the norm before the head.
    pub(crate) final_norm: Vec<f32>,
    /// The output head, which is the embedding too where `embedding` is `None`.
    head: Linear,
    embedding: Option<Packed>,
}

/// The weights of one decoder layer.
#[derive(Debug)]
pub(crate) struct FusedLayer {
    pub(crate) attention_norm: Vec<f32>,
    /// Queries, keys and values.
    pub(crate) attention_input: Linear,
    pub(crate) head_norms: Option<HeadNorms>,
    pub(crate) attention_output: Linear,
    pub(crate) post_norms: Option<PostNorms>,
    pub(crate) feed_forward_norm: Vec<f32>,
    /// Gate and up.
    pub(crate) feed_forward_input: Linear,
    pub(crate) feed_forward_output: Linear,
}

impl FusedWeights {
    /// Takes every weight of the model from `source`; `tied` says that the embedding is the head.
    pub(crate) fn take(
        source: &mut dyn TensorSource,
        config: ModelConfig,
        tied: bool,
    ) -> Result<Self, LoadError> {
        // Checked before the large reads: a file that lacks its last layer should say so at once.
        for part in Part::all(&config, tied) {
            source.rows(part)?;
        }
        let (tokens, hidden) = (source.rows(Part::Embedding)?, config.hidden);
        let first = source.packed(Part::Embedding, tokens, hidden, &|row| row)?;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            layers.push(FusedLayer::take(source, &config, index)?);
        }
        let final_norm = source.vector(Part::FinalNorm, hidden)?;
        let (head, embedding) = if tied {
            (first, None)
        } else {
            (source.packed(Part::Head, tokens, hidden, &|row| row)?, Some(first))
        };
        let head = Linear::new(vec![(head, None)]);
        Ok(Self { config, layers, final_norm, head, embedding })
    }

    /// The sizes of the model's cache.
    pub(crate) fn cache_shape(&self, precision: Precision) -> CacheShape {
        let heads = self.config.heads;
        CacheShape { layers: self.config.layers, heads: heads.key_value, dim: heads.dim, precision }
    }

    /// The output head: one row a token.
    pub(crate) fn head(&self) -> &Linear {
        &self.head
    }

    /// Writes the embedding of a token, scaled as the first layer wants it.
    pub(crate) fn embed(&self, token: usize, out: &mut [f32]) {
        let tied = || self.head.matrices().next();
        if let Some(embedding) = self.embedding.as_ref().or_else(tied) {
            embedding.widen_row(token, out);
        }
        let scale = self.config.embedding_scale;
        out.iter_mut().for_each(|v| *v *= scale);
    }

    /// Resident bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let layers: usize = self.layers.iter().map(FusedLayer::bytes).sum();
        let embedding = self.embedding.as_ref().map_or(0, Packed::bytes);
        (layers + embedding + self.head.bytes() + size_of_val(&*self.final_norm)) as u64
    }
}

impl FusedLayer {
    fn take(source: &mut dyn TensorSource, config: &ModelConfig, index: usize) -> Result<Self, LoadError> {
        let (hidden, feed_forward) = (config.hidden, config.feed_forward);
        let (query, key_value) = (config.heads.query_width(), config.heads.key_value_width());
        let part = |part| Part::Layer(index, part);
        let turned = |row| source_row(config, row);
        let as_is = |row| row;
        let attention_norm = source.vector(part(LayerPart::AttentionNorm), hidden)?;
        let mut projection = |weights, bias, rows, order: &dyn Fn(usize) -> usize| {
            let bias = if config.biases {
                let bias = source.vector(part(bias), rows)?;
                Some((0..rows).map(|row| bias[order(row)]).collect())
            } else {
                None
            };
            Ok::<_, LoadError>((source.packed(part(weights), rows, hidden, order)?, bias))
        };
        let attention_input = Linear::new(vec![
            projection(LayerPart::Query, LayerPart::QueryBias, query, &turned)?,
            projection(LayerPart::Key, LayerPart::KeyBias, key_value, &turned)?,
            projection(LayerPart::Value, LayerPart::ValueBias, key_value, &as_is)?,
        ]);
        let head_norms = if config.qk_norm {
            let dim = config.heads.dim;
            let mut norm = |name| -> Result<Vec<f32>, LoadError> {
                let weight = source.vector(part(name), dim)?;
                Ok((0..dim).map(|component| weight[turned(component)]).collect())
            };
            Some(HeadNorms { query: norm(LayerPart::QueryNorm)?, key: norm(LayerPart::KeyNorm)? })
        } else {
            None
        };
        let post_norms = PostNorms::take(source, config, index)?;
        let mut one = |name, rows, cols| source.packed(part(name), rows, cols, &|row| row);
        let attention_output = Linear::new(vec![(one(LayerPart::AttentionOutput, hidden, query)?, None)]);
        let feed_forward_input = Linear::new(vec![
            (one(LayerPart::Gate, feed_forward, hidden)?, None),
            (one(LayerPart::Up, feed_forward, hidden)?, None),
        ]);
        let down = one(LayerPart::Down, hidden, feed_forward)?;
        Ok(Self {
            attention_norm,
            attention_input,
            head_norms,
            attention_output,
            post_norms,
            feed_forward_norm: source.vector(part(LayerPart::FeedForwardNorm), hidden)?,
            feed_forward_input,
            feed_forward_output: Linear::new(vec![(down, None)]),
        })
    }

    fn bytes(&self) -> usize {
        let layers = [
            &self.attention_input,
            &self.attention_output,
            &self.feed_forward_input,
            &self.feed_forward_output,
        ];
        let norms = self.head_norms.iter().flat_map(|norms| [&norms.query, &norms.key]);
        let posts = self.post_norms.iter().flat_map(PostNorms::each);
        let norms = norms.chain([&self.attention_norm, &self.feed_forward_norm]).chain(posts);
        let norms: usize = norms.map(|norm| size_of_val(norm.as_slice())).sum();
        layers.into_iter().map(Linear::bytes).sum::<usize>() + norms
    }
}

/// The file's row that becomes row `row` of queries or keys.
///
/// The kernels rotate component `j` of a head with `j + pairs`. A file that pairs neighbours has its
/// rows put so; the inner product of queries and keys does not mind the order.
fn source_row(config: &ModelConfig, row: usize) -> usize {
    let (dim, pairs) = (config.heads.dim, config.rope_dimensions / 2);
    let (head, component) = (row / dim, row % dim);
    match config.pairing {
        Pairing::Neighbours if component < pairs => head * dim + 2 * component,
        Pairing::Neighbours if component < 2 * pairs => head * dim + 2 * (component - pairs) + 1,
        _ => row,
    }
}
