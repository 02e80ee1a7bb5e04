//! The row-wise float operations of a pass: dot product, norm, softmax, activation.
//!
//! Each result depends on its own row alone and is summed in one fixed order, however many rows a
//! pass has: this is what makes a row's logits bit-identical in every batch. Nothing here is
//! parallel; callers split work between whole results, never inside one.

use candle_core::quantized::GgmlType;
use foretoken_kernels::Gate;
use std::f32::consts::PI;

/// Independent partial sums of a reduction, so that it is not one long chain of additions.
const LANES: usize = 8;

/// Inner product of two equally long slices.
///
/// Candle picks the widest kernel of the machine once per process, by the machine and never by the
/// arguments, so equal slices give equal bits on one machine.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Candle checks the lengths in debug builds only.
    assert_eq!(a.len(), b.len(), "dot product of slices of different lengths");
    <f32 as GgmlType>::vec_dot(a.len(), a, b)
}

/// `out = x / rms(x) * weight`.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let scale = rms_scale(x, eps);
    for ((o, &v), &w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * scale * w;
    }
}

/// [`rms_norm`] in place, of each head of a row by itself; `weight` is as long as one head.
pub(crate) fn rms_norm_heads(row: &mut [f32], weight: &[f32], eps: f32) {
    for head in row.chunks_exact_mut(weight.len()) {
        let scale = rms_scale(head, eps);
        for (v, &w) in head.iter_mut().zip(weight) {
            *v = *v * scale * w;
        }
    }
}

/// `1 / rms(x)`.
fn rms_scale(x: &[f32], eps: f32) -> f32 {
    let mean_square = dot(x, x) / x.len() as f32;
    1.0 / (mean_square + eps).sqrt()
}

/// `x += y`.
pub(crate) fn add(x: &mut [f32], y: &[f32]) {
    for (a, &b) in x.iter_mut().zip(y) {
        *a += b;
    }
}

/// `gate = act(gate) * up`.
pub(crate) fn gate_mul(act: Gate, gate: &mut [f32], up: &[f32]) {
    for (g, &u) in gate.iter_mut().zip(up) {
        *g = match act {
            Gate::Silu => *g / (1.0 + (-*g).exp()),
            Gate::GeluTanh => {
                let z = (2.0 / PI).sqrt() * (*g + 0.044_715 * *g * *g * *g);
                0.5 * *g * (1.0 + z.tanh())
            }
        } * u;
    }
}

/// Replaces scores by `exp(score - max)` and returns the reciprocal of their sum.
pub(crate) fn softmax_weights(scores: &mut [f32]) -> f32 {
    let max = scores.iter().fold(f32::NEG_INFINITY, |m, &s| m.max(s));
    let mut lanes = [0f32; LANES];
    for chunk in scores.chunks_mut(LANES) {
        for (lane, s) in lanes.iter_mut().zip(chunk) {
            *s = (*s - max).exp();
            *lane += *s;
        }
    }
    1.0 / lanes.iter().sum::<f32>()
}

/// `out += weight * row`.
pub(crate) fn add_scaled(out: &mut [f32], weight: f32, row: &[f32]) {
    for (o, &v) in out.iter_mut().zip(row) {
        *o += weight * v;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_matches_a_wide_sum() {
        for n in [1, 7, 16, 31, 32, 33, 64, 96, 577] {
            let a: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
            let b: Vec<f32> = (0..n).map(|i| (i as f32 * 0.61).cos()).collect();
            let want: f64 = a.iter().zip(&b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
            assert!((f64::from(dot(&a, &b)) - want).abs() < 1e-4, "n = {n}");
        }
    }

    #[test]
    fn softmax_weights_sum_to_one() {
        let mut scores: Vec<f32> = (0..37).map(|i| i as f32 * 3.0 - 200.0).collect();
        let scale = softmax_weights(&mut scores);
        let total: f32 = scores.iter().map(|s| s * scale).sum();
        assert!((total - 1.0).abs() < 1e-6, "{total}");
    }

    #[test]
    fn norm_scales_to_unit_rms() {
        let x = [3.0f32, -4.0, 5.0, 0.5];
        let mut out = [0f32; 4];
        rms_norm(&x, &[1.0; 4], 0.0, &mut out);
        let rms = (out.iter().map(|v| v * v).sum::<f32>() / 4.0).sqrt();
        assert!((rms - 1.0).abs() < 1e-6, "{rms}");
    }

    #[test]
    fn heads_are_normed_one_by_one() {
        let mut row = [3.0f32, -4.0, 0.25, 0.5];
        let weight = [2.0f32, 1.0];
        let mut want = [0f32; 4];
        for (head, out) in row.chunks(2).zip(want.chunks_mut(2)) {
            rms_norm(head, &weight, 1e-6, out);
        }
        rms_norm_heads(&mut row, &weight, 1e-6);
        assert_eq!(row, want);
    }
}
