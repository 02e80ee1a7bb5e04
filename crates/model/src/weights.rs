//! The parts of a model, and how they are taken from a file of either format.

use crate::compute::matrix::Matrix;
use crate::config::ModelConfig;
use crate::load::LoadError;
use foretoken_kernels::Packed;

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
    pub(crate) untied_head: Option<Matrix>,
}

/// The weights of one decoder layer.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Matrix,
    pub(crate) key: Matrix,
    pub(crate) value: Matrix,
    /// Added to the outputs of the three projections; there exactly if the configuration has `biases`.
    pub(crate) biases: Option<Biases>,
    /// Weights of the norms of query and key heads; there exactly if it has `qk_norm`.
    pub(crate) head_norms: Option<HeadNorms>,
    pub(crate) attention_output: Matrix,
    /// Weights of the norms of what the layer adds; there exactly if it has `post_norms`.
    pub(crate) post_norms: Option<PostNorms>,
    pub(crate) feed_forward_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

/// Vectors as wide as the projections' outputs.
#[derive(Debug)]
pub(crate) struct Biases {
    pub(crate) query: Vec<f32>,
    pub(crate) key: Vec<f32>,
    pub(crate) value: Vec<f32>,
}

/// Vectors as long as one head, shared by all heads of the layer.
#[derive(Debug)]
pub(crate) struct HeadNorms {
    pub(crate) query: Vec<f32>,
    pub(crate) key: Vec<f32>,
}

/// Vectors as wide as the residual stream.
#[derive(Debug)]
pub(crate) struct PostNorms {
    pub(crate) attention: Vec<f32>,
    pub(crate) feed_forward: Vec<f32>,
}

impl PostNorms {
    /// Takes both vectors of a layer, if the model has them.
    pub(crate) fn take(
        source: &mut dyn TensorSource,
        config: &ModelConfig,
        index: usize,
    ) -> Result<Option<Self>, LoadError> {
        if !config.post_norms {
            return Ok(None);
        }
        let mut norm = |part| source.vector(Part::Layer(index, part), config.hidden);
        let attention = norm(LayerPart::PostAttentionNorm)?;
        Ok(Some(Self { attention, feed_forward: norm(LayerPart::PostFeedForwardNorm)? }))
    }

    /// Both.
    pub(crate) fn each(&self) -> [&Vec<f32>; 2] {
        [&self.attention, &self.feed_forward]
    }
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
#[allow(missing_docs, reason = "named as the fields of `Layer`, `Biases`, `HeadNorms` and `PostNorms`")]
pub(crate) enum LayerPart {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryBias,
    KeyBias,
    ValueBias,
    QueryNorm,
    KeyNorm,
    AttentionOutput,
    PostAttentionNorm,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
    PostFeedForwardNorm,
}

/// A file of named tensors, each taken at most once.
pub(crate) trait TensorSource {
    /// First dimension of the part: for the embedding, how many tokens it has rows for.
    fn rows(&self, part: Part) -> Result<usize, LoadError>;
    /// Reads a matrix of exactly this shape.
    fn matrix(&mut self, part: Part, rows: usize, cols: usize) -> Result<Matrix, LoadError>;
    /// Reads a matrix of exactly this shape for the kernels, the file's row `order(r)` as row `r`.
    fn packed(
        &mut self,
        part: Part,
        rows: usize,
        cols: usize,
        order: &dyn Fn(usize) -> usize,
    ) -> Result<Packed, LoadError>;
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
        for part in Part::all(&config, tied) {
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
        let biases = if config.biases {
            Some(Biases {
                query: source.vector(part(LayerPart::QueryBias), query)?,
                key: source.vector(part(LayerPart::KeyBias), key_value)?,
                value: source.vector(part(LayerPart::ValueBias), key_value)?,
            })
        } else {
            None
        };
        let head_norms = if config.qk_norm {
            Some(HeadNorms {
                query: source.vector(part(LayerPart::QueryNorm), config.heads.dim)?,
                key: source.vector(part(LayerPart::KeyNorm), config.heads.dim)?,
            })
        } else {
            None
        };
        Ok(Self {
            attention_norm: source.vector(part(LayerPart::AttentionNorm), hidden)?,
            query: source.matrix(part(LayerPart::Query), query, hidden)?,
            key: source.matrix(part(LayerPart::Key), key_value, hidden)?,
            value: source.matrix(part(LayerPart::Value), key_value, hidden)?,
            biases,
            head_norms,
            attention_output: source.matrix(part(LayerPart::AttentionOutput), hidden, query)?,
            post_norms: PostNorms::take(source, config, index)?,
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
        let biases = self.biases.iter().flat_map(|b| [&b.query, &b.key, &b.value]);
        let norms = self.head_norms.iter().flat_map(|n| [&n.query, &n.key]);
        let posts = self.post_norms.iter().flat_map(PostNorms::each);
        let vectors = [&self.attention_norm, &self.feed_forward_norm].into_iter().chain(biases).chain(norms);
        let vectors = vectors.chain(posts);
        matrices + vectors.map(|vector| vector_bytes(vector)).sum::<u64>()
    }
}

impl Part {
    /// Every part a model of this configuration has.
    pub(crate) fn all(config: &ModelConfig, tied: bool) -> impl Iterator<Item = Self> {
        let head = if tied { None } else { Some(Self::Head) };
        let (biases, qk_norm, post_norms) = (config.biases, config.qk_norm, config.post_norms);
        let per_layer = (0..config.layers).flat_map(move |layer| {
            let biases = LayerPart::BIASES.into_iter().filter(move |_| biases);
            let norms = LayerPart::HEAD_NORMS.into_iter().filter(move |_| qk_norm);
            let posts = LayerPart::POST_NORMS.into_iter().filter(move |_| post_norms);
            let parts = LayerPart::COMMON.into_iter().chain(biases).chain(norms).chain(posts);
            parts.map(move |part| Self::Layer(layer, part))
        });
        [Self::Embedding, Self::FinalNorm].into_iter().chain(head).chain(per_layer)
    }
}

impl Part {
    /// Whether it is the weight of a norm.
    pub(crate) fn is_norm(self) -> bool {
        match self {
            Self::Embedding | Self::Head => false,
            Self::FinalNorm => true,
            Self::Layer(_, part) => {
                let (heads, posts) = (LayerPart::HEAD_NORMS, LayerPart::POST_NORMS);
                let norms = [LayerPart::AttentionNorm, LayerPart::FeedForwardNorm];
                norms.into_iter().chain(heads).chain(posts).any(|norm| norm == part)
            }
        }
    }
}

impl LayerPart {
    /// Those of every family.
    const COMMON: [Self; 9] = [
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
    const BIASES: [Self; 3] = [Self::QueryBias, Self::KeyBias, Self::ValueBias];
    const HEAD_NORMS: [Self; 2] = [Self::QueryNorm, Self::KeyNorm];
    const POST_NORMS: [Self; 2] = [Self::PostAttentionNorm, Self::PostFeedForwardNorm];
}

fn vector_bytes(vector: &[f32]) -> u64 {
    size_of_val(vector) as u64
}
