//! One pass over tensors: from the tokens of several sessions to logits on the device.

use super::cache::GraphCache;
use super::model::{GraphLayer, GraphModel, Projection};
use crate::compute::rope::{Angles, Pairing};
use crate::slots::{Slots, Span};
use candle_core::{D, Device, Result, Tensor};
use candle_nn::ops::{rms_norm, silu, softmax_last_dim};
use candle_nn::rotary_emb::{rope, rope_i};
use foretoken_runtime::decoder::SessionRows;

/// Rows of one session that attend together. Bounds the scores of a long prompt, which are this many
/// rows a head by the session's length.
const ATTENTION_ROWS: usize = 64;

/// A pass under way.
pub(super) struct Pass<'a> {
    model: &'a GraphModel,
    slots: &'a mut Slots<GraphCache>,
    spans: &'a [Span],
    pieces: Vec<Piece>,
    /// Cosines and sines, a row of pairs for each row of the pass.
    cos: Tensor,
    sin: Tensor,
    rows: usize,
}

/// Consecutive rows of one session, attending to the same positions up to the mask.
struct Piece {
    slot: usize,
    /// Index of its first row among the rows of the pass.
    first: usize,
    rows: usize,
    /// Positions that its last row sees.
    positions: usize,
    /// 0 where a row sees a position, −∞ where not; none for a single row, which sees all.
    mask: Option<Tensor>,
}

impl<'a> Pass<'a> {
    /// Feeds the rows and returns the logits asked for, padding of the vocabulary included; none if
    /// none were.
    pub(super) fn run(
        model: &'a GraphModel,
        slots: &'a mut Slots<GraphCache>,
        batch: &[SessionRows<'_>],
        spans: &'a [Span],
    ) -> Result<Option<Tensor>> {
        let rows = spans.iter().map(|span| span.rows).sum();
        let (cos, sin) = angles(model, spans, rows)?;
        let mut pass = Self { model, slots, spans, pieces: pieces(spans, &model.device)?, cos, sin, rows };
        let tokens: Vec<u32> = batch.iter().flat_map(|session| session.tokens).copied().collect();
        let mut hidden = model.embedding.rows(&Tensor::from_vec(tokens, rows, &model.device)?)?;
        for (index, layer) in model.layers.iter().enumerate() {
            hidden = (&hidden + pass.attention(index, layer, &hidden)?)?;
            hidden = (&hidden + pass.feed_forward(layer, &hidden)?)?;
        }
        let logits = pass.head(&hidden)?;
        for span in spans {
            if let Some(cache) = pass.slots.get_mut(span.slot) {
                cache.advance(span.rows);
            }
        }
        Ok(logits)
    }

    fn attention(&mut self, index: usize, layer: &GraphLayer, hidden: &Tensor) -> Result<Tensor> {
        let config = &self.model.config;
        let (heads, normed) = (config.heads, rms_norm(hidden, &layer.attention_norm, config.norm_eps)?);
        let queries = self.rotate(&self.by_head(&layer.query, &normed, heads.query)?)?;
        let keys = self.rotate(&self.by_head(&layer.key, &normed, heads.key_value)?)?;
        let values = self.by_head(&layer.value, &normed, heads.key_value)?;
        let queries = (queries / (heads.dim as f64).sqrt())?;
        for span in self.spans {
            if let Some(cache) = self.slots.get(span.slot) {
                let rows = |all: &Tensor| all.narrow(1, span.first, span.rows)?.contiguous();
                cache.write(index, &rows(&keys)?, &rows(&values)?)?;
            }
        }
        let mut attended = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            if let Some(cache) = self.slots.get(piece.slot) {
                let (keys, values) = cache.context(index, piece.positions)?;
                attended.push(self.attend(piece, &queries, &keys, &values)?);
            }
        }
        layer.attention_output.forward(&Tensor::cat(&attended, 0)?)
    }

    /// Projects all rows and lays the result out as (heads, rows, head size).
    fn by_head(&self, projection: &Projection, normed: &Tensor, heads: usize) -> Result<Tensor> {
        let config = &self.model.config;
        let mut split = projection.forward(normed)?.reshape((self.rows, heads, config.heads.dim))?;
        if let Some(weight) = &projection.head_norm {
            split = rms_norm(&split, weight, config.norm_eps)?;
        }
        split.transpose(0, 1)?.contiguous()
    }

    /// Rotates the first components of every head by its row's angles.
    fn rotate(&self, rows: &Tensor) -> Result<Tensor> {
        let config = &self.model.config;
        let (rotated, dim) = (config.rope_dimensions, config.heads.dim);
        let turn = |part: &Tensor| {
            let part = part.unsqueeze(0)?;
            let turned = match config.pairing {
                Pairing::Halves => rope(&part, &self.cos, &self.sin)?,
                Pairing::Neighbours => rope_i(&part, &self.cos, &self.sin)?,
            };
            turned.squeeze(0)
        };
        if rotated == dim {
            return turn(rows);
        }
        let kept = rows.narrow(D::Minus1, rotated, dim - rotated)?;
        Tensor::cat(&[turn(&rows.narrow(D::Minus1, 0, rotated)?.contiguous()?)?, kept], D::Minus1)
    }

    /// `softmax(q kᵀ) v` of one piece, as rows of all its heads side by side.
    fn attend(&self, piece: &Piece, queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        let heads = self.model.config.heads;
        // The query heads of one key head lie behind each other, so they are one matrix of its rows.
        let grouped = (heads.key_value, heads.query / heads.key_value * piece.rows, heads.dim);
        let single = (heads.query, piece.rows, piece.positions);
        let queries = queries.narrow(1, piece.first, piece.rows)?.contiguous()?.reshape(grouped)?;
        let mut scores = queries.matmul(&keys.t()?)?.reshape(single)?;
        if let Some(mask) = &piece.mask {
            scores = scores.broadcast_add(mask)?;
        }
        let weights = softmax_last_dim(&scores)?.reshape((grouped.0, grouped.1, piece.positions))?;
        let out = weights.matmul(values)?.reshape((heads.query, piece.rows, heads.dim))?;
        out.transpose(0, 1)?.contiguous()?.reshape((piece.rows, heads.query_width()))
    }

    fn feed_forward(&self, layer: &GraphLayer, hidden: &Tensor) -> Result<Tensor> {
        let normed = rms_norm(hidden, &layer.feed_forward_norm, self.model.config.norm_eps)?;
        let gate = silu(&layer.gate.forward(&normed)?)?;
        layer.down.forward(&(gate * layer.up.forward(&normed)?)?)
    }

    fn head(&self, hidden: &Tensor) -> Result<Option<Tensor>> {
        let asked =
            |span: &Span| (span.first + span.rows - span.logits..span.first + span.rows).map(|r| r as u32);
        let asked: Vec<u32> = self.spans.iter().flat_map(asked).collect();
        if asked.is_empty() {
            return Ok(None);
        }
        let count = asked.len();
        let rows = hidden.index_select(&Tensor::from_vec(asked, count, &self.model.device)?, 0)?;
        let normed = rms_norm(&rows, &self.model.final_norm, self.model.config.norm_eps)?;
        self.model.head.forward(&normed).map(Some)
    }
}

/// The angles of every row, computed as the reference engine computes them.
fn angles(model: &GraphModel, spans: &[Span], rows: usize) -> Result<(Tensor, Tensor)> {
    let pairs = model.config.rope_dimensions / 2;
    let (mut cos, mut sin) = (Vec::with_capacity(rows * pairs), Vec::with_capacity(rows * pairs));
    let mut angles = Angles::default();
    for position in spans.iter().flat_map(|span| span.position..span.position + span.rows) {
        model.rope.angles(position, &mut angles);
        cos.extend_from_slice(angles.cos());
        sin.extend_from_slice(angles.sin());
    }
    let tensor = |values| Tensor::from_vec(values, (rows, pairs), &model.device);
    Ok((tensor(cos)?, tensor(sin)?))
}

/// Cuts the sessions' rows into pieces.
fn pieces(spans: &[Span], device: &Device) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    for span in spans {
        for start in (0..span.rows).step_by(ATTENTION_ROWS) {
            let rows = ATTENTION_ROWS.min(span.rows - start);
            let before = span.position + start;
            let mask = if rows == 1 { None } else { Some(mask(before, rows, device)?) };
            let (slot, first) = (span.slot, span.first + start);
            pieces.push(Piece { slot, first, rows, positions: before + rows, mask });
        }
    }
    Ok(pieces)
}

/// The causal mask of `rows` rows behind `before` positions; made on the device, for all layers.
fn mask(before: usize, rows: usize, device: &Device) -> Result<Tensor> {
    let (first, end) = (before as u32, (before + rows) as u32);
    let columns = Tensor::arange(0, end, device)?.unsqueeze(0)?;
    let own = Tensor::arange(first, end, device)?.unsqueeze(1)?;
    let unseen = columns.broadcast_gt(&own)?;
    let fill = |value: f32| Tensor::new(value, device)?.broadcast_as(unseen.shape());
    unseen.where_cond(&fill(f32::NEG_INFINITY)?, &fill(0.0)?)
}
