//! The reference engine: every pass in plain arithmetic, one dot product an output.
//!
//! A pass runs every linear layer once over the rows of all sessions, attention per session, and
//! the output head only for the rows asked for. No value of a row is computed from another
//! session's rows, and none by a kernel or an order that depends on how many rows there are.

use crate::cache::SlotCache;
use crate::compute::attention::{Context, attend};
use crate::compute::linear::linear;
use crate::compute::ops::{add, gate_mul, rms_norm, rms_norm_heads};
use crate::compute::rope::{Angles, Ropes, rope_of};
use crate::slots::{Slots, Span};
use crate::weights::{Layer, Weights};
use foretoken_runtime::decoder::{Decoder, DecoderError, ModelShape, Row, SessionRows, Slot};
use rayon::ThreadPool;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

/// A model on the CPU in plain arithmetic, with the caches of its sessions.
#[derive(Debug)]
pub struct LlamaDecoder {
    shape: ModelShape,
    weights: Weights,
    ropes: Ropes,
    pool: ThreadPool,
    slots: Slots<SlotCache>,
    buffers: Buffers,
    /// Rows of `vocab_size` logits of the last pass.
    logits: Vec<f32>,
}

/// Intermediate rows of a pass, kept so that a pass allocates little.
#[derive(Debug, Default)]
struct Buffers {
    hidden: Vec<f32>,
    normed: Vec<f32>,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    projected: Vec<f32>,
    /// Of each row, for each of the ropes.
    angles: [Vec<Angles>; 2],
}

impl LlamaDecoder {
    /// A decoder without slots; `shape` must be that of `weights`.
    pub(crate) fn new(shape: ModelShape, weights: Weights, ropes: Ropes, pool: ThreadPool) -> Self {
        Self {
            shape,
            weights,
            ropes,
            pool,
            slots: Slots::default(),
            buffers: Buffers::default(),
            logits: Vec::new(),
        }
    }
}

impl Decoder for LlamaDecoder {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, capacity: usize) -> Result<Slot, DecoderError> {
        let layers = self.weights.layers.len();
        self.slots.allocate(&self.shape, capacity, || Ok(SlotCache::new(layers, capacity)))
    }

    fn len(&self, slot: Slot) -> usize {
        self.slots.len(slot)
    }

    fn truncate(&mut self, slot: Slot, len: usize) {
        self.slots.truncate(slot, len);
    }

    fn release(&mut self, slot: Slot) {
        self.slots.release(slot);
    }

    fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
        let vocab_size = self.shape.vocab_size;
        let spans = self.slots.plan(batch, vocab_size)?;
        self.logits.clear();
        if spans.is_empty() {
            return Ok(());
        }
        let mut pass = Pass {
            weights: &self.weights,
            ropes: &self.ropes,
            pool: &self.pool,
            slots: &mut self.slots,
            buffers: &mut self.buffers,
            spans: &spans,
            rows: spans.iter().map(|span| span.rows).sum(),
        };
        let logits = &mut self.logits;
        // Inside the pool, so that each parallel region starts without a hand-over.
        let run = self.pool.install(|| pass.run(batch, vocab_size, logits));
        run.map_err(|error| DecoderError::Backend(error.to_string()))
    }

    fn row(&self, index: usize) -> Row<'_> {
        let width = self.shape.vocab_size;
        Row::Host(&self.logits[index * width..(index + 1) * width])
    }
}

/// A pass under way: the decoder's parts, borrowed one by one.
struct Pass<'a> {
    weights: &'a Weights,
    ropes: &'a Ropes,
    pool: &'a ThreadPool,
    slots: &'a mut Slots<SlotCache>,
    buffers: &'a mut Buffers,
    spans: &'a [Span],
    rows: usize,
}

impl Pass<'_> {
    fn run(
        &mut self,
        batch: &[SessionRows<'_>],
        vocab_size: usize,
        logits: &mut Vec<f32>,
    ) -> Result<(), candle_core::Error> {
        self.embed(batch)?;
        let weights = self.weights;
        for (index, layer) in weights.layers.iter().enumerate() {
            self.attention(index, layer)?;
            self.feed_forward(layer)?;
        }
        self.head(vocab_size, logits)?;
        for span in self.spans {
            if let Some(cache) = self.slots.get_mut(span.slot) {
                cache.advance(span.rows);
            }
        }
        Ok(())
    }

    /// The tokens' embeddings and the rotary angles of their positions.
    fn embed(&mut self, batch: &[SessionRows<'_>]) -> Result<(), candle_core::Error> {
        let buffers = &mut *self.buffers;
        buffers.hidden.clear();
        for angles in &mut buffers.angles {
            angles.resize_with(self.rows, Angles::default);
        }
        let scale = self.weights.config.embedding_scale;
        let mut scratch = Vec::new();
        for (session, span) in batch.iter().zip(self.spans) {
            for (i, &token) in session.tokens.iter().enumerate() {
                let token = token as usize;
                let row = self.weights.embedding.widen(token..token + 1, &mut scratch)?;
                buffers.hidden.extend(row.iter().map(|v| v * scale));
                for (rope, angles) in self.ropes.each().iter().zip(&mut buffers.angles) {
                    rope.angles(span.position + i, &mut angles[span.first + i]);
                }
            }
        }
        Ok(())
    }

    fn attention(&mut self, index: usize, layer: &Layer) -> Result<(), candle_core::Error> {
        let config = &self.weights.config;
        let (heads, window, turn) = (config.heads, config.window(index), rope_of(config, index));
        let (query_width, width) = (heads.query_width(), heads.key_value_width());
        let Buffers { hidden, normed, queries, keys, values, attended, projected, angles, .. } =
            &mut *self.buffers;
        norm_rows(hidden, &layer.attention_norm, config.norm_eps, normed);
        queries.resize(self.rows * query_width, 0.0);
        keys.resize(self.rows * width, 0.0);
        values.resize(self.rows * width, 0.0);
        let mut layers = [
            (&layer.query, query_width, &mut queries[..]),
            (&layer.key, width, &mut keys[..]),
            (&layer.value, width, &mut values[..]),
        ];
        linear(self.pool, normed, &mut layers)?;
        if let Some(biases) = &layer.biases {
            for (rows, bias) in
                [(&mut *queries, &biases.query), (&mut *keys, &biases.key), (&mut *values, &biases.value)]
            {
                rows.chunks_exact_mut(bias.len()).for_each(|row| add(row, bias));
            }
        }
        if let Some(norms) = &layer.head_norms {
            rms_norm_heads(queries, &norms.query, config.norm_eps);
            rms_norm_heads(keys, &norms.key, config.norm_eps);
        }
        let (rope, angles) = (&self.ropes.each()[turn], &angles[turn]);
        for (row, angles) in queries.chunks_exact_mut(query_width).zip(angles) {
            rope.rotate(row, heads.dim, angles);
        }
        for (row, angles) in keys.chunks_exact_mut(width).zip(angles) {
            rope.rotate(row, heads.dim, angles);
        }
        for span in self.spans {
            if let Some(cache) = self.slots.get_mut(span.slot) {
                let rows = span.first * width..(span.first + span.rows) * width;
                cache.write(index, &keys[rows.clone()], &values[rows], width);
            }
        }
        let mut contexts: Vec<Context<'_>> = Vec::with_capacity(self.rows);
        for span in self.spans {
            if let Some(cache) = self.slots.get(span.slot) {
                let context = |i| cache.context(index, span.position + i, window, width);
                contexts.extend((0..span.rows).map(context));
            }
        }
        attended.resize(self.rows * query_width, 0.0);
        attend(heads, config.attention_scale, queries, &contexts, attended);
        projected.resize(hidden.len(), 0.0);
        linear(self.pool, attended, &mut [(&layer.attention_output, config.hidden, projected)])?;
        let norm = layer.post_norms.as_ref().map(|norms| &norms.attention);
        add_normed(hidden, projected, norm, config.norm_eps, normed);
        Ok(())
    }

    fn feed_forward(&mut self, layer: &Layer) -> Result<(), candle_core::Error> {
        let config = &self.weights.config;
        let width = config.feed_forward;
        let Buffers { hidden, normed, gate, up, projected, .. } = &mut *self.buffers;
        norm_rows(hidden, &layer.feed_forward_norm, config.norm_eps, normed);
        gate.resize(self.rows * width, 0.0);
        up.resize(self.rows * width, 0.0);
        linear(self.pool, normed, &mut [(&layer.gate, width, gate), (&layer.up, width, up)])?;
        let share = gate.len().div_ceil(self.pool.current_num_threads());
        gate.par_chunks_mut(share)
            .zip(up.par_chunks(share))
            .for_each(|(gate, up)| gate_mul(config.gate, gate, up));
        linear(self.pool, gate, &mut [(&layer.down, config.hidden, projected)])?;
        let norm = layer.post_norms.as_ref().map(|norms| &norms.feed_forward);
        add_normed(hidden, projected, norm, config.norm_eps, normed);
        Ok(())
    }

    /// Logits of the rows asked for, over the tokenizer's vocabulary only.
    fn head(&mut self, vocab_size: usize, logits: &mut Vec<f32>) -> Result<(), candle_core::Error> {
        let hidden_size = self.weights.config.hidden;
        let Buffers { hidden, normed, projected, .. } = &mut *self.buffers;
        projected.clear();
        for span in self.spans {
            let end = span.first + span.rows;
            projected.extend_from_slice(&hidden[(end - span.logits) * hidden_size..end * hidden_size]);
        }
        norm_rows(projected, &self.weights.final_norm, self.weights.config.norm_eps, normed);
        logits.resize(projected.len() / hidden_size * vocab_size, 0.0);
        linear(self.pool, normed, &mut [(self.weights.head(), vocab_size, logits)])
    }
}

/// Adds `rows` to `hidden`, normed where there is a norm.
fn add_normed(hidden: &mut [f32], rows: &[f32], norm: Option<&Vec<f32>>, eps: f32, scratch: &mut Vec<f32>) {
    match norm {
        Some(weight) => {
            norm_rows(rows, weight, eps, scratch);
            add(hidden, scratch);
        }
        None => add(hidden, rows),
    }
}

/// Norms every row of `rows` into `out`.
fn norm_rows(rows: &[f32], weight: &[f32], eps: f32, out: &mut Vec<f32>) {
    out.resize(rows.len(), 0.0);
    for (row, out) in rows.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
        rms_norm(row, weight, eps, out);
    }
}
