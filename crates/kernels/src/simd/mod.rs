//! Sixteen lanes at a time: what every kernel is written in, once, and each tier implements.
//!
//! A [`Simd`] value is a token: it exists only where the machine has the tier's instructions, so its
//! methods are safe. Kernels are generic over it and safe code. Every operation is defined to the
//! bit (fused multiply-add, ties to even, one order of lane sums), so all tiers give equal results,
//! and the [`Portable`] one is what the others are tested against.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;

pub(crate) use portable::Portable;

use std::ops::Range;

/// Lanes of a vector; output rows of a weight tile; positions of a key tile.
pub(crate) const LANES: usize = 16;

/// One tier's instructions on sixteen lanes.
pub(crate) trait Simd: Copy + Send + Sync {
    /// Sixteen `f32`.
    type F: Copy;
    /// Sixteen `i32`.
    type I: Copy;
    /// Sixty-four bytes: four for each lane.
    type B: Copy;
    /// Sixteen sums of inner products, as they are while they grow.
    type Sums: Copy;
    /// Columns of activations that one load of weights is best used for.
    const COLUMNS: usize;
    /// Queries that one load of keys or values is best used for: with two sums each they fill the registers.
    const QUERIES: usize = Self::COLUMNS;
    /// Whether there are sixteen registers only, of half the lanes.
    const FEW_REGISTERS: bool = false;

    fn splat(self, value: f32) -> Self::F;
    fn load(self, from: &[f32; LANES]) -> Self::F;
    fn store(self, value: Self::F, to: &mut [f32; LANES]);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The greater of two numbers; of either where one is no number.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// To the nearest whole number, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// `2^n` for whole numbers `n` from -126 to 127.
    fn exp2_whole(self, n: Self::F) -> Self::F;
    /// The first `count` lanes of `a`, the others of `b`.
    fn first(self, count: usize, a: Self::F, b: Self::F) -> Self::F;
    /// Lane `i` with `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    fn sum(self, a: Self::F) -> f32;
    fn greatest(self, a: Self::F) -> f32;

    /// Sixteen halves, widened.
    fn load_f16(self, from: &[u8; 2 * LANES]) -> Self::F;
    /// Sixteen brain floats, widened.
    fn load_bf16(self, from: &[u8; 2 * LANES]) -> Self::F;
    /// Sixteen unsigned bytes, widened.
    fn load_u8(self, from: &[u8; LANES]) -> Self::F;
    /// Sixteen signed bytes, widened.
    fn load_i8(self, from: &[u8; LANES]) -> Self::F;

    fn splat_i(self, value: i32) -> Self::I;
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I;
    fn to_float(self, a: Self::I) -> Self::F;
    /// To the nearest `i32`, ties to even; the input is within its range.
    fn to_int(self, a: Self::F) -> Self::I;
    fn sum_i(self, a: Self::I) -> i32;
    /// The low bytes of lanes that are all within `i8`.
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]);
    /// As [`Self::store_i8`] of two, from -127 on; returns the sum of each.
    #[inline(always)]
    fn store_codes(self, a: Self::I, b: Self::I, to: &mut [i8; 2 * LANES]) -> [i32; 2] {
        let [low, high] = to.as_chunks_mut().0 else { unreachable!("two halves") };
        self.store_i8(a, low);
        self.store_i8(b, high);
        [self.sum_i(a), self.sum_i(b)]
    }

    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::B;
    fn and(self, a: Self::B, mask: u8) -> Self::B;
    fn or(self, a: Self::B, b: Self::B) -> Self::B;
    /// The upper four bits of each byte.
    #[inline(always)]
    fn high_nibbles(self, a: Self::B) -> Self::B {
        self.and(self.shr::<4>(a), 15)
    }
    /// Shifts words of 16 bits; the caller masks what crosses from byte to byte.
    fn shr<const N: u32>(self, a: Self::B) -> Self::B;
    /// As [`Self::shr`], to the left.
    fn shl<const N: u32>(self, a: Self::B) -> Self::B;

    /// How many times [`Self::dot`] may be called with bytes of at most `most` between [`Self::begin`] and [`Self::end`].
    fn dots(most: u8) -> usize;
    /// Begins to add to `sums`.
    fn begin(self, sums: Self::I) -> Self::Sums;
    /// Adds to each lane the inner product of its four bytes, at most 127 each, with `x` of at least -127.
    fn dot(self, sums: Self::Sums, weights: Self::B, x: &[i8; 4]) -> Self::Sums;
    /// The sums that they `began` with, and what has been added.
    fn end(self, began: Self::I, sums: Self::Sums) -> Self::I;
    /// As [`Self::dot`] over bytes that stand for themselves less 128;
    /// the sums must have begun as [`Self::begin_biased`].
    fn dot_biased(self, sums: Self::I, weights: Self::B, x: &[i8; 4]) -> Self::I;
    /// Sums to begin with where the values of `x` are going to sum up to `-negated`.
    fn begin_biased(self, negated: i32) -> Self::I;

    /// Asks for the cache line `ahead` bytes behind the start of `from`, into the first cache; it need not exist.
    fn prefetch<T>(self, from: &[T], ahead: usize);
    /// As [`Self::prefetch`], into the second cache.
    fn prefetch_far<T>(self, from: &[T], ahead: usize);
}

/// Work to be done with some tier's instructions.
pub(crate) trait Kernel {
    /// What it computes.
    type Output;
    /// Does the work; must be inlined, so that it is compiled with the tier's instructions.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Four bytes as the one word that instructions spread over all lanes.
///
/// Spelt out: what innermost loops call must be inlined whatever the build's settings, and the closure of an array's
/// `map` is a function of the library that a build in many units without optimisation over them leaves where it is.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn word(bytes: &[i8; 4]) -> i32 {
    let [a, b, c, d] = *bytes;
    i32::from_le_bytes([a.cast_unsigned(), b.cast_unsigned(), c.cast_unsigned(), d.cast_unsigned()])
}

/// The ranges of sixteen numbers each, the last one of what is left, that `len` numbers are taken in.
#[inline(always)]
pub(crate) fn parts(len: usize) -> Parts {
    Parts { at: 0, len }
}

/// See [`parts`]. An iterator of this crate, so that it is inlined in every build, as [`word`] is.
pub(crate) struct Parts {
    at: usize,
    len: usize,
}

impl Iterator for Parts {
    type Item = Range<usize>;
    #[inline(always)]
    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.at = (start + LANES).min(self.len);
        (start < self.len).then_some(start..self.at)
    }
}

/// Loads up to sixteen numbers, zeros behind them.
#[inline(always)]
pub(crate) fn load_part<S: Simd>(s: S, from: &[f32]) -> S::F {
    match from.first_chunk() {
        Some(whole) => s.load(whole),
        None => {
            let mut lanes = [0.0; LANES];
            lanes[..from.len()].copy_from_slice(from);
            s.load(&lanes)
        }
    }
}

/// Stores the first `to.len()` lanes, at most sixteen.
#[inline(always)]
pub(crate) fn store_part<S: Simd>(s: S, value: S::F, to: &mut [f32]) {
    match to.first_chunk_mut() {
        Some(whole) => s.store(value, whole),
        None => {
            let mut lanes = [0.0; LANES];
            s.store(value, &mut lanes);
            to.copy_from_slice(&lanes[..to.len()]);
        }
    }
}

/// `e^x`, within two units in the last place; 0 below -87, as if `x` were 88 above that.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    /// Two parts of ln 2; the first has so few bits that its multiples are exact.
    const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    /// Reciprocals of the factorials, from 7 downwards.
    const TERMS: [f32; 7] =
        [1.984_127e-4, 1.388_888_9e-3, 8.333_334e-3, 4.166_666_8e-2, 0.166_666_67, 0.5, 1.0];
    let x = s.min(s.max(x, s.splat(-87.0)), s.splat(88.0));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-LN2[0]), x);
    let r = s.fma(n, s.splat(-LN2[1]), r);
    let mut p = s.splat(TERMS[0]);
    for term in &TERMS[1..] {
        p = s.fma(p, r, s.splat(*term));
    }
    let p = s.fma(p, r, s.splat(1.0));
    s.mul(p, s.exp2_whole(n))
}
