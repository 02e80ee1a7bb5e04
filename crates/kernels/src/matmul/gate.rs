//! The gate of a feed-forward layer: `silu(gate) * up`.

use crate::simd::{Kernel, LANES, Simd, exp, load_part, store_part};

/// `out = gate / (1 + e^-gate) * up`.
pub(super) struct SiluMul<'a> {
    pub(super) gate: &'a [f32],
    pub(super) up: &'a [f32],
    pub(super) out: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let one = s.splat(1.0);
        let parts = self.gate.chunks(LANES).zip(self.up.chunks(LANES)).zip(self.out.chunks_mut(LANES));
        for ((gate, up), out) in parts {
            let (gate, up) = (load_part(s, gate), load_part(s, up));
            let e = exp(s, s.sub(s.splat(0.0), gate));
            let value = s.div(s.mul(gate, up), s.add(one, e));
            store_part(s, value, out);
        }
    }
}
