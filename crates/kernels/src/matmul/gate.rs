//! The gate of a feed-forward layer: `act(gate) * up`.

use crate::simd::{Kernel, Simd, exp, load_part, parts, store_part};

/// What a gate is put through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// `x / (1 + e^-x)`.
    Silu,
    /// The approximation of GELU by a tangent, `x / 2 * (1 + tanh z)` with `z = √(2/π) (x + 0.044715 x³)`.
    GeluTanh,
}

/// `out = act(gate) * up`.
pub(super) struct Gated<'a> {
    pub(super) act: Gate,
    pub(super) gate: &'a [f32],
    pub(super) up: &'a [f32],
    pub(super) out: &'a mut [f32],
}

impl Kernel for Gated<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.act {
            Gate::Silu => self.run_with(s, |gate| s.sub(s.splat(0.0), gate)),
            Gate::GeluTanh => self.run_with(s, |gate| gelu_exponent(s, gate)),
        }
    }
}

impl Gated<'_> {
    /// Both are `gate / (1 + e^t) * up`, and differ in `t`.
    #[inline(always)]
    fn run_with<S: Simd>(self, s: S, exponent: impl Fn(S::F) -> S::F) {
        let one = s.splat(1.0);
        for part in parts(self.out.len()) {
            let (gate, up) = (load_part(s, &self.gate[part.clone()]), load_part(s, &self.up[part.clone()]));
            let e = exp(s, exponent(gate));
            let value = s.div(s.mul(gate, up), s.add(one, e));
            store_part(s, value, &mut self.out[part]);
        }
    }
}

/// `-2 z`, because `(1 + tanh z) / 2 = 1 / (1 + e^-2z)`.
#[inline(always)]
fn gelu_exponent<S: Simd>(s: S, x: S::F) -> S::F {
    /// `-2 √(2/π)`.
    const SCALE: f32 = -1.595_769_2;
    let inner = s.fma(s.mul(s.splat(0.044_715), s.mul(x, x)), x, x);
    s.mul(s.splat(SCALE), inner)
}
