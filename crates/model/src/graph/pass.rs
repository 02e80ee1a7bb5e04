//! One pass over tensors: from the tokens of several sessions to logits on the device.

use super::cache::GraphCache;
use super::model::{GraphLayer, GraphModel, Projection};
use crate::compute::rope::{Angles, Pairing, Rope, rope_of};
use crate::slots::{Slots, Span};
use candle_core::{D, Device, Result, Tensor};
use candle_nn::ops::{rms_norm, silu, softmax_last_dim};
use candle_nn::rotary_emb::{rope, rope_i};
use foretoken_kernels::Gate;
use foretoken_runtime::decoder::SessionRows;
use std::ops::Range;

/// Rows of one session that attend together. Bounds the scores of a long prompt, which are this many
/// rows a head by the session's length.
const ATTENTION_ROWS: usize = 64;

/// A pass under way.
pub(super) struct Pass<'a> {
    model: &'a GraphModel,
    slots: &'a mut Slots<GraphCache>,
    spans: &'a [Span],
    pieces: Vec<Piece>,
    /// Cosines and sines of each of the ropes, a row of pairs for each row of the pass.
    angles: Vec<(Tensor, Tensor)>,
    rows: usize,
}

/// Consecutive rows of one session, attending to the same positions up to the mask.
struct Piece {
    slot: usize,
    /// Index of its first row among the rows of the pass.
    first: usize,
    rows: usize,
    /// What the rows see in layers of each of the ropes.
    sights: Vec<Sight>,
}

/// What the rows of a piece see.
struct Sight {
    /// Positions that one of them sees.
    positions: Range<usize>,
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
        let ropes = model.ropes.each();
        let angles = ropes.iter().map(|rope| angles(model, rope, spans, rows)).collect::<Result<_>>()?;
        let mut pass = Self { model, slots, spans, pieces: pieces(model, spans)?, angles, rows };
        let tokens: Vec<u32> = batch.iter().flat_map(|session| session.tokens).copied().collect();
        let mut hidden = model.embedding.rows(&Tensor::from_vec(tokens, rows, &model.device)?)?;
        if model.config.embedding_scale != 1.0 {
            hidden = (hidden * f64::from(model.config.embedding_scale))?;
        }
        for (index, layer) in model.layers.iter().enumerate() {
            let [attention_norm, feed_forward_norm] =
                layer.post_norms.as_ref().map_or([None, None], |norms| norms.each_ref().map(Some));
            let attended = pass.attention(index, layer, &hidden)?;
            hidden = (&hidden + pass.normed(attended, attention_norm)?)?;
            let fed = pass.feed_forward(layer, &hidden)?;
            hidden = (&hidden + pass.normed(fed, feed_forward_norm)?)?;
        }
        let logits = pass.head(&hidden)?;
        for span in spans {
            if let Some(cache) = pass.slots.get_mut(span.slot) {
                cache.advance(span.rows);
            }
        }
        Ok(logits)
    }

    /// The rows, normed where there is a norm.
    fn normed(&self, rows: Tensor, norm: Option<&Tensor>) -> Result<Tensor> {
        match norm {
            Some(weight) => rms_norm(&rows, weight, self.model.config.norm_eps),
            None => Ok(rows),
        }
    }

    fn attention(&mut self, index: usize, layer: &GraphLayer, hidden: &Tensor) -> Result<Tensor> {
        let config = &self.model.config;
        let (heads, normed) = (config.heads, rms_norm(hidden, &layer.attention_norm, config.norm_eps)?);
        let turn = rope_of(config, index);
        let queries = self.rotate(turn, &self.by_head(&layer.query, &normed, heads.query)?)?;
        let keys = self.rotate(turn, &self.by_head(&layer.key, &normed, heads.key_value)?)?;
        let values = self.by_head(&layer.value, &normed, heads.key_value)?;
        let queries = (queries * f64::from(config.attention_scale))?;
        for span in self.spans {
            if let Some(cache) = self.slots.get(span.slot) {
                let rows = |all: &Tensor| all.narrow(1, span.first, span.rows)?.contiguous();
                cache.write(index, &rows(&keys)?, &rows(&values)?)?;
            }
        }
        let mut attended = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            if let Some(cache) = self.slots.get(piece.slot) {
                let sight = &piece.sights[turn];
                let (keys, values) = cache.context(index, sight.positions.clone())?;
                attended.push(self.attend(piece, sight, &queries, &keys, &values)?);
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
    fn rotate(&self, turn: usize, rows: &Tensor) -> Result<Tensor> {
        let (cos, sin) = &self.angles[turn];
        let config = &self.model.config;
        let (rotated, dim) = (config.rope_dimensions, config.heads.dim);
        let turn = |part: &Tensor| {
            let part = part.unsqueeze(0)?;
            let turned = match config.pairing {
                Pairing::Halves => rope(&part, cos, sin)?,
                Pairing::Neighbours => rope_i(&part, cos, sin)?,
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
    fn attend(
        &self,
        piece: &Piece,
        sight: &Sight,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<Tensor> {
        let heads = self.model.config.heads;
        // The query heads of one key head lie behind each other, so they are one matrix of its rows.
        let grouped = (heads.key_value, heads.query / heads.key_value * piece.rows, heads.dim);
        let single = (heads.query, piece.rows, sight.positions.len());
        let queries = queries.narrow(1, piece.first, piece.rows)?.contiguous()?.reshape(grouped)?;
        let mut scores = queries.matmul(&keys.t()?)?.reshape(single)?;
        if let Some(mask) = &sight.mask {
            scores = scores.broadcast_add(mask)?;
        }
        let weights = softmax_last_dim(&scores)?.reshape((grouped.0, grouped.1, single.2))?;
        let out = weights.matmul(values)?.reshape((heads.query, piece.rows, heads.dim))?;
        out.transpose(0, 1)?.contiguous()?.reshape((piece.rows, heads.query_width()))
    }

    fn feed_forward(&self, layer: &GraphLayer, hidden: &Tensor) -> Result<Tensor> {
        let normed = rms_norm(hidden, &layer.feed_forward_norm, self.model.config.norm_eps)?;
        let gate = layer.gate.forward(&normed)?;
        let gate = match self.model.config.gate {
            Gate::Silu => silu(&gate)?,
            // Candle's is the one by a tangent.
            Gate::GeluTanh => gate.gelu()?,
        };
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
fn angles(model: &GraphModel, rope: &Rope, spans: &[Span], rows: usize) -> Result<(Tensor, Tensor)> {
    let pairs = model.config.rope_dimensions / 2;
    let (mut cos, mut sin) = (Vec::with_capacity(rows * pairs), Vec::with_capacity(rows * pairs));
    let mut angles = Angles::default();
    for position in spans.iter().flat_map(|span| span.position..span.position + span.rows) {
        rope.angles(position, &mut angles);
        cos.extend_from_slice(angles.cos());
        sin.extend_from_slice(angles.sin());
    }
    let tensor = |values| Tensor::from_vec(values, (rows, pairs), &model.device);
    Ok((tensor(cos)?, tensor(sin)?))
}

/// Cuts the sessions' rows into pieces.
fn pieces(model: &GraphModel, spans: &[Span]) -> Result<Vec<Piece>> {
    let window = model.config.local.as_ref().map(|local| Some(local.window));
    let windows = [None].into_iter().chain(window);
    let mut pieces = Vec::new();
    for span in spans {
        for start in (0..span.rows).step_by(ATTENTION_ROWS) {
            let rows = ATTENTION_ROWS.min(span.rows - start);
            let before = span.position + start;
            let sight = |window| Sight::new(before, rows, window, &model.device);
            let sights = windows.clone().map(sight).collect::<Result<_>>()?;
            pieces.push(Piece { slot: span.slot, first: span.first + start, rows, sights });
        }
    }
    Ok(pieces)
}

impl Sight {
    /// What `rows` rows behind `before` positions see; the mask is made on the device, for all layers.
    fn new(before: usize, rows: usize, window: Option<usize>, device: &Device) -> Result<Self> {
        let start = window.map_or(0, |window| (before + 1).saturating_sub(window));
        let positions = start..before + rows;
        if rows == 1 {
            return Ok(Self { positions, mask: None });
        }
        let columns = Tensor::arange(start as u32, positions.end as u32, device)?.unsqueeze(0)?;
        let own = Tensor::arange(before as u32, positions.end as u32, device)?.unsqueeze(1)?;
        let mut unseen = columns.broadcast_gt(&own)?;
        if let Some(window) = window {
            // A position is never both too late and too early.
            let reach = Tensor::new(window as u32, device)?;
            unseen = (unseen + columns.broadcast_add(&reach)?.broadcast_le(&own)?)?;
        }
        let fill = |value: f32| Tensor::new(value, device)?.broadcast_as(unseen.shape());
        let mask = unseen.where_cond(&fill(f32::NEG_INFINITY)?, &fill(0.0)?)?;
        Ok(Self { positions, mask: Some(mask) })
    }
}
