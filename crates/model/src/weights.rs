//! The parts of a Llama-family model, and how they are taken from a file of either format.

use crate::compute::matrix::Matrix;
use crate::config::ModelConfig;
use crate::load::LoadError;

/// All weights of a model.
#[derive(Debug)]
pub(crate) struct Weights {
    /// Sizes and constants.
    pub(crate) config: ModelConfig,
    /// One row a token.
    pub(crate) embedding: Matrix,
    /// Decoder layers, first to last.
    pub(crate) layers: Vec<Layer>,
    /// Scale of the norm before the head.
    pub(crate) final_norm: Vec<f32>,
    /// The output head, where it is not the embedding.
    untied_head: Option<Matrix>,
}

/// The weights of one decoder layer.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Matrix,
    pub(crate) key: Matrix,
    pub(crate) value: Matrix,
    pub(crate) attention_output: Matrix,
    pub(crate) feed_forward_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

/// A weight, by what it is; each format has its own name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Token embedding.
    Embedding,
    /// Norm before the head.
    FinalNorm,
    /// Output head.
    Head,
    /// A part of the numbered layer.
    Layer(usize, LayerPart),
}

/// A weight within a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the fields of `Layer`")]
pub(crate) enum LayerPart {
    AttentionNorm,
    Query,
    Key,
    Value,
    AttentionOutput,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
}

/// A file of named tensors, each taken at most once.
pub(crate) trait TensorSource {
    /// First dimension of the part: for the embedding, how many tokens it has rows for.
    fn rows(&self, part: Part) -> Result<usize, LoadError>;
    /// Reads a matrix of exactly this shape.
    fn matrix(&mut self, part: Part, rows: usize, cols: usize) -> Result<Matrix, LoadError>;
    /// Reads a vector of exactly this length.
    fn vector(&mut self, part: Part, len: usize) -> Result<Vec<f32>, LoadError>;
}

impl Weights {
    /// Takes every weight of the model from `source`; `tied` says that the embedding is the head.
    pub(crate) fn take(
        source: &mut dyn TensorSource,
        config: ModelConfig,
        tied: bool,
    ) -> Result<Self, LoadError> {
        let hidden = config.hidden;
        // Checked before the large reads: a file that lacks its last layer should say so at once.
        for part in Part::all(config.layers, tied) {
            source.rows(part)?;
        }
        let tokens = source.rows(Part::Embedding)?;
        let embedding = source.matrix(Part::Embedding, tokens, hidden)?;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            layers.push(Layer::take(source, &config, index)?);
        }
        let final_norm = source.vector(Part::FinalNorm, hidden)?;
        let untied_head = if tied { None } else { Some(source.matrix(Part::Head, tokens, hidden)?) };
        Ok(Self { config, embedding, layers, final_norm, untied_head })
    }

    /// The output head: one row a token.
    pub(crate) fn head(&self) -> &Matrix {
        self.untied_head.as_ref().unwrap_or(&self.embedding)
    }

    /// Resident bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let layers: u64 = self.layers.iter().map(Layer::bytes).sum();
        let head = self.untied_head.as_ref().map_or(0, Matrix::bytes);
        self.embedding.bytes() + layers + head + vector_bytes(&self.final_norm)
    }
}

impl Layer {
    fn take(source: &mut dyn TensorSource, config: &ModelConfig, index: usize) -> Result<Self, LoadError> {
        let (hidden, feed_forward) = (config.hidden, config.feed_forward);
        let (query, key_value) = (config.heads.query_width(), config.heads.key_value_width());
        let part = |part| Part::Layer(index, part);
        Ok(Self {
            attention_norm: source.vector(part(LayerPart::AttentionNorm), hidden)?,
            query: source.matrix(part(LayerPart::Query), query, hidden)?,
            key: source.matrix(part(LayerPart::Key), key_value, hidden)?,
            value: source.matrix(part(LayerPart::Value), key_value, hidden)?,
            attention_output: source.matrix(part(LayerPart::AttentionOutput), hidden, query)?,
            feed_forward_norm: source.vector(part(LayerPart::FeedForwardNorm), hidden)?,
            gate: source.matrix(part(LayerPart::Gate), feed_forward, hidden)?,
            up: source.matrix(part(LayerPart::Up), feed_forward, hidden)?,
            down: source.matrix(part(LayerPart::Down), hidden, feed_forward)?,
        })
    }

    fn bytes(&self) -> u64 {
        let matrices =
            [&self.query, &self.key, &self.value, &self.attention_output, &self.gate, &self.up, &self.down];
        let matrices: u64 = matrices.into_iter().map(Matrix::bytes).sum();
        matrices + vector_bytes(&self.attention_norm) + vector_bytes(&self.feed_forward_norm)
    }
}

impl Part {
    /// Every part a model of so many layers has.
    fn all(layers: usize, tied: bool) -> impl Iterator<Item = Self> {
        let head = if tied { None } else { Some(Self::Head) };
        let per_layer = (0..layers).flat_map(|i| LayerPart::ALL.map(move |part| Self::Layer(i, part)));
        [Self::Embedding, Self::FinalNorm].into_iter().chain(head).chain(per_layer)
    }
}

impl LayerPart {
    const ALL: [Self; 9] = [
        Self::AttentionNorm,
        Self::Query,
        Self::Key,
        Self::Value,
        Self::AttentionOutput,
        Self::FeedForwardNorm,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];
}

fn vector_bytes(vector: &[f32]) -> u64 {
    size_of_val(vector) as u64
}
