//! The CPU's engine: passes over packed weights by the kernels of `foretoken-kernels`.
//!
//! `weights.rs` packs a model as it is read; here are the slots, the checks before a pass and the way
//! of a pass. What is not here is arithmetic. The engine over plain tensors in `crate::decoder` is
//! the reference that this one is tested against.

mod weights;

pub(crate) use weights::FusedWeights;

use crate::compute::rope::Rope;
use crate::slots::{self, plan};
use foretoken_kernels::{Activations, Angles, Attention, Cache, HeadNorms, Next, Source, Span, Team};
use foretoken_runtime::decoder::{Decoder, DecoderError, ModelShape, Row, SessionRows, Slot};
use weights::FusedLayer;

/// A model on the CPU with packed weights, and the caches of its sessions.
#[derive(Debug)]
pub struct FusedDecoder {
    shape: ModelShape,
    weights: FusedWeights,
    rope: Rope,
    team: Team,
    cache: Cache,
    buffers: Buffers,
}

/// What a pass writes, kept so that a pass allocates nothing once it has had its like before.
#[derive(Debug)]
struct Buffers {
    /// The sessions' parts of the pass, and the same as the kernels want it.
    plan: Vec<slots::Span>,
    spans: Vec<Span>,
    angles: Angles,
    /// The residual stream, row by row.
    hidden: Vec<f32>,
    /// Normed rows of its width.
    normed: Activations,
    /// Queries, keys and values, row by row.
    queries: Vec<f32>,
    attended: Activations,
    /// Gate and up, row by row.
    gates: Vec<f32>,
    gated: Activations,
    /// Rows of the residual stream that want logits.
    last: Vec<f32>,
    head: Activations,
    /// Rows of `vocab_size` logits of the last pass.
    logits: Vec<f32>,
}

impl FusedDecoder {
    /// A decoder without slots; `shape` must be that of `weights`, `cache` made for them.
    pub(crate) fn new(
        shape: ModelShape,
        weights: FusedWeights,
        rope: Rope,
        team: Team,
        cache: Cache,
    ) -> Self {
        let tier = team.tier();
        let activations = || Activations::new(tier);
        let buffers = Buffers {
            plan: Vec::new(),
            spans: Vec::new(),
            angles: Angles::new(rope.pairs()),
            hidden: Vec::new(),
            normed: activations(),
            queries: Vec::new(),
            attended: activations(),
            gates: Vec::new(),
            gated: activations(),
            last: Vec::new(),
            head: activations(),
            logits: Vec::new(),
        };
        Self { shape, weights, rope, team, cache, buffers }
    }

    /// The tokens' embeddings, the angles of their positions, and pages for them.
    fn embed(&mut self, batch: &[SessionRows<'_>], rows: usize) {
        let width = self.weights.config.hidden;
        let Buffers { plan, spans, angles, hidden, .. } = &mut self.buffers;
        hidden.resize(rows * width, 0.0);
        angles.clear();
        spans.clear();
        let mut out = hidden.chunks_exact_mut(width);
        for (session, span) in batch.iter().zip(plan) {
            spans.push(Span { slot: span.slot, first: span.first, rows: span.rows });
            self.cache.reserve(span.slot, span.rows);
            for (i, (&token, out)) in session.tokens.iter().zip(&mut out).enumerate() {
                self.weights.embed(token as usize, out);
                angles.push(self.rope.angles_at(span.position + i));
            }
        }
    }

    /// One decoder layer over all rows.
    fn layer(&mut self, index: usize, rows: usize) {
        let Self { weights, team, cache, buffers, .. } = self;
        let config = &weights.config;
        let layer: &FusedLayer = &weights.layers[index];
        let Buffers { spans, angles, hidden, normed, queries, attended, gates, gated, .. } = buffers;
        let (width, eps) = (config.hidden, config.norm_eps);

        normed.resize(rows, width);
        let input = &layer.attention_input;
        queries.resize(rows * input.outputs(), 0.0);
        let source = Source::Norm { rows: hidden, weight: &layer.attention_norm, eps };
        let output = &layer.attention_output;
        team.linear(normed, source, input, queries, input.outputs(), false, Next::Linear(output));
        attended.resize(rows, config.heads.query_width());
        let norms = layer.head_norms.as_ref();
        let norms = norms.map(|norms| HeadNorms { query: &norms.query, key: &norms.key, eps });
        let attention = Attention { layer: index, heads: config.heads.query, norms };
        team.attend(attention, spans, angles, queries, cache, attended);
        let input = &layer.feed_forward_input;
        team.linear(attended, Source::Floats, output, hidden, width, true, Next::Gated(input));

        gates.resize(rows * input.outputs(), 0.0);
        gated.resize(rows, config.feed_forward);
        let source = Source::Norm { rows: hidden, weight: &layer.feed_forward_norm, eps };
        let output = &layer.feed_forward_output;
        team.gated(normed, source, input, gates, gated, layer.feed_forward_codes, Next::Linear(output));
        let next = weights.layers.get(index + 1).map_or(weights.head(), |layer| &layer.attention_input);
        team.linear(gated, Source::Ready, output, hidden, width, true, Next::Linear(next));
    }

    /// Logits of the rows asked for, over the tokenizer's vocabulary only.
    fn head(&mut self) {
        let Self { weights, team, buffers, shape, .. } = self;
        let Buffers { plan, hidden, last, head, logits, .. } = buffers;
        let (width, eps) = (weights.config.hidden, weights.config.norm_eps);
        last.clear();
        for span in plan {
            let end = span.first + span.rows;
            last.extend_from_slice(&hidden[(end - span.logits) * width..end * width]);
        }
        let rows = last.len() / width;
        head.resize(rows, width);
        logits.resize(rows * shape.vocab_size, 0.0);
        if rows > 0 {
            let source = Source::Norm { rows: last, weight: &weights.final_norm, eps };
            let next =
                weights.layers.first().map_or(Next::Unknown, |layer| Next::Linear(&layer.attention_input));
            team.linear(head, source, weights.head(), logits, shape.vocab_size, false, next);
        }
    }
}

impl Decoder for FusedDecoder {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, capacity: usize) -> Result<Slot, DecoderError> {
        let max_context = self.shape.max_context;
        let slot = self.cache.allocate(capacity.min(max_context));
        let Ok(number) = u32::try_from(slot) else {
            self.cache.release(slot);
            return Err(DecoderError::Backend(format!("{slot} slots are in use, which is the most")));
        };
        if capacity > max_context {
            self.cache.release(slot);
            return Err(DecoderError::Capacity {
                slot: number,
                len: 0,
                capacity: max_context,
                rows: capacity,
            });
        }
        Ok(Slot(number))
    }

    fn len(&self, slot: Slot) -> usize {
        self.cache.size(slot.0 as usize).map_or(0, |(len, _)| len)
    }

    fn truncate(&mut self, slot: Slot, len: usize) {
        self.cache.truncate(slot.0 as usize, len);
    }

    fn release(&mut self, slot: Slot) {
        self.cache.release(slot.0 as usize);
    }

    fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
        let cache = &self.cache;
        plan(batch, self.shape.vocab_size, |slot| cache.size(slot), &mut self.buffers.plan)?;
        let rows = batch.iter().map(|session| session.tokens.len()).sum();
        self.buffers.logits.clear();
        if rows == 0 {
            return Ok(());
        }
        self.embed(batch, rows);
        for index in 0..self.weights.layers.len() {
            self.layer(index, rows);
        }
        self.head();
        for span in &self.buffers.spans {
            self.cache.advance(span.slot, span.rows);
        }
        Ok(())
    }

    fn row(&self, index: usize) -> Row<'_> {
        let width = self.shape.vocab_size;
        Row::Host(&self.buffers.logits[index * width..(index + 1) * width])
    }
}
