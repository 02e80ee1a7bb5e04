//! Root-mean-square norm of a row.

use crate::simd::{Kernel, LANES, Simd, load_part, parts, store_part};

/// Partial sums, so that the squares are not one long chain of additions.
const CHAINS: usize = 4;

/// `out = x / rms(x) * weight`, or `out +=` that if `add`.
pub(crate) struct RmsNorm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
    pub(crate) out: &'a mut [f32],
    pub(crate) add: bool,
}

impl Kernel for RmsNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scale = s.splat(inverse_rms(s, self.x, self.eps));
        for part in parts(self.x.len()) {
            let (x, weight) = (load_part(s, &self.x[part.clone()]), load_part(s, &self.weight[part.clone()]));
            let out = &mut self.out[part];
            let value = s.mul(s.mul(x, scale), weight);
            store_part(s, if self.add { s.add(load_part(s, out), value) } else { value }, out);
        }
    }
}

/// `x = x / rms(x) * weight`, of a head.
#[inline(always)]
pub(crate) fn rms_norm_in_place<S: Simd>(s: S, x: &mut [f32], weight: &[f32], eps: f32) {
    let scale = s.splat(inverse_rms(s, x, eps));
    for part in parts(x.len()) {
        let value = s.mul(s.mul(load_part(s, &x[part.clone()]), scale), load_part(s, &weight[part.clone()]));
        store_part(s, value, &mut x[part]);
    }
}

#[inline(always)]
fn inverse_rms<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    let mut sums = [s.splat(0.0); CHAINS];
    let (whole, rest) = x.as_chunks::<{ CHAINS * LANES }>();
    for four in whole {
        for (sum, part) in sums.iter_mut().zip(four.as_chunks::<LANES>().0) {
            let v = s.load(part);
            *sum = s.fma(v, v, *sum);
        }
    }
    for (sum, part) in sums.iter_mut().zip(rest.chunks(LANES)) {
        let v = load_part(s, part);
        *sum = s.fma(v, v, *sum);
    }
    let square = s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
    1.0 / (square / x.len() as f32 + eps).sqrt()
}
