//! The CPU's engine: passes over packed weights by the kernels of `foretoken-kernels`.
//!
//! `weights.rs` packs a model as it is read; here are the slots, the checks before a pass and the way
//! of a pass. What is not here is arithmetic. The engine over plain tensors in `crate::decoder` is
//! the reference that this one is tested against.

mod weights;

pub(crate) use weights::FusedWeights;

use crate::compute::rope::{Ropes, rope_of};
use crate::slots::{self, plan};
use foretoken_kernels::{Activations, Angles, Attention, Cache, HeadNorms, Linear, Next, Source, Span, Team};
use foretoken_runtime::decoder::{Decoder, DecoderError, ModelShape, Row, SessionRows, Slot};
use weights::FusedLayer;

/// A model on the CPU with packed weights, and the caches of its sessions.
#[derive(Debug)]
pub struct FusedDecoder {
    shape: ModelShape,
    weights: FusedWeights,
    ropes: Ropes,
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
    /// Of each row, for each of the ropes.
    angles: Vec<Angles>,
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
    /// What a layer adds to the residual stream, where it is normed before that.
    projected: Vec<f32>,
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
        ropes: Ropes,
        team: Team,
        cache: Cache,
    ) -> Self {
        let tier = team.tier();
        let activations = || Activations::new(tier);
        let buffers = Buffers {
            plan: Vec::new(),
            spans: Vec::new(),
            angles: ropes.each().iter().map(|rope| Angles::new(rope.pairs())).collect(),
            hidden: Vec::new(),
            normed: activations(),
            queries: Vec::new(),
            attended: activations(),
            gates: Vec::new(),
            gated: activations(),
            projected: Vec::new(),
            last: Vec::new(),
            head: activations(),
            logits: Vec::new(),
        };
        Self { shape, weights, ropes, team, cache, buffers }
    }

    /// The tokens' embeddings, the angles of their positions, and pages for them.
    fn embed(&mut self, batch: &[SessionRows<'_>], rows: usize) {
        let width = self.weights.config.hidden;
        let Buffers { plan, spans, angles, hidden, .. } = &mut self.buffers;
        hidden.resize(rows * width, 0.0);
        angles.iter_mut().for_each(Angles::clear);
        spans.clear();
        let mut out = hidden.chunks_exact_mut(width);
        for (session, span) in batch.iter().zip(plan) {
            spans.push(Span { slot: span.slot, first: span.first, rows: span.rows });
            self.cache.reserve(span.slot, span.rows);
            for (i, (&token, out)) in session.tokens.iter().zip(&mut out).enumerate() {
                self.weights.embed(token as usize, out);
                for (rope, angles) in self.ropes.each().iter().zip(&mut *angles) {
                    angles.push(rope.angles_at(span.position + i), rope.magnitude());
                }
            }
        }
    }

    /// One decoder layer over all rows.
    fn layer(&mut self, index: usize, rows: usize) {
        let Self { weights, team, cache, buffers, .. } = self;
        let config = &weights.config;
        let layer: &FusedLayer = &weights.layers[index];
        let Buffers { spans, angles, hidden, normed, queries, attended, gates, gated, projected, .. } =
            buffers;
        let angles = &angles[rope_of(config, index)];
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
        let (scale, window) = (config.attention_scale, config.window(index));
        let (heads, codes) = (config.heads.query, output.wants_codes());
        let attention = Attention { layer: index, heads, scale, window, norms, codes };
        let source = team.attend(attention, spans, angles, queries, cache, attended);
        let input = &layer.feed_forward_input;
        let norm = layer.post_norms.as_ref().map(|norms| norms.attention.as_slice());
        let addition = Addition { layer: output, norm, eps, next: Next::Gated(input) };
        addition.add(team, attended, source, projected, hidden);

        gates.resize(rows * input.outputs(), 0.0);
        gated.resize(rows, config.feed_forward);
        let source = Source::Norm { rows: hidden, weight: &layer.feed_forward_norm, eps };
        let output = &layer.feed_forward_output;
        team.gated(
            config.gate,
            normed,
            source,
            input,
            gates,
            gated,
            output.wants_codes(),
            Next::Linear(output),
        );
        let next = weights.layers.get(index + 1).map_or(weights.head(), |layer| &layer.attention_input);
        let norm = layer.post_norms.as_ref().map(|norms| norms.feed_forward.as_slice());
        let addition = Addition { layer: output, norm, eps, next: Next::Linear(next) };
        addition.add(team, gated, Source::Ready, projected, hidden);
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

/// A linear layer whose outputs are added to the residual stream, normed where there is a norm.
struct Addition<'a> {
    layer: &'a Linear,
    norm: Option<&'a [f32]>,
    eps: f32,
    /// What is run next.
    next: Next<'a>,
}

impl Addition<'_> {
    fn add(
        self,
        team: &mut Team,
        input: &mut Activations,
        source: Source<'_>,
        projected: &mut Vec<f32>,
        hidden: &mut [f32],
    ) {
        let width = self.layer.outputs();
        let Some(weight) = self.norm else {
            return team.linear(input, source, self.layer, hidden, width, true, self.next);
        };
        projected.resize(hidden.len(), 0.0);
        team.linear(input, source, self.layer, projected, width, false, self.next);
        team.add_normed(projected, weight, self.eps, hidden);
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
