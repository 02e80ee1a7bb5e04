//! The tier of safe scalar code: for machines without another, and the yardstick of the others.

use super::{Kernel, LANES, Simd};
use half::f16;

/// Scalar code on any machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Portable;

impl Portable {
    /// Runs `kernel` in scalar code.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
}

/// Applies `f` lane by lane.
#[inline(always)]
fn lanes<T: Copy>(f: impl FnMut(usize) -> T) -> [T; LANES] {
    std::array::from_fn(f)
}

/// The 16-bit words of a byte vector, shifted.
#[inline(always)]
fn words(bytes: [u8; 4 * LANES], shift: impl Fn(u16) -> u16) -> [u8; 4 * LANES] {
    let mut shifted = bytes;
    for word in shifted.as_chunks_mut::<2>().0 {
        *word = shift(u16::from_le_bytes(*word)).to_le_bytes();
    }
    shifted
}

/// Halves the lanes until one is left.
#[inline(always)]
fn fold<T: Copy>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = f(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

impl Simd for Portable {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type B = [u8; 4 * LANES];
    type Sums = [i32; LANES];
    const COLUMNS: usize = 4;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        *from
    }
    #[inline(always)]
    fn store(self, value: Self::F, to: &mut [f32; LANES]) {
        *to = value;
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        lanes(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        lanes(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        lanes(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        lanes(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        lanes(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        lanes(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        lanes(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        lanes(|i| a[i].abs())
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        lanes(|i| a[i].round_ties_even())
    }
    #[inline(always)]
    fn exp2_whole(self, n: Self::F) -> Self::F {
        lanes(|i| f32::from_bits(((n[i] as i32 + 127) << 23).cast_unsigned()))
    }
    #[inline(always)]
    fn first(self, count: usize, a: Self::F, b: Self::F) -> Self::F {
        lanes(|i| if i < count { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        fold(a, |a, b| a + b)
    }
    #[inline(always)]
    fn greatest(self, a: Self::F) -> f32 {
        fold(a, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn load_f16(self, from: &[u8; 2 * LANES]) -> Self::F {
        lanes(|i| f16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32())
    }
    #[inline(always)]
    fn load_bf16(self, from: &[u8; 2 * LANES]) -> Self::F {
        lanes(|i| f32::from_le_bytes([0, 0, from[2 * i], from[2 * i + 1]]))
    }
    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::F {
        lanes(|i| f32::from(from[i]))
    }
    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Self::F {
        lanes(|i| f32::from(from[i].cast_signed()))
    }
    #[inline(always)]
    fn splat_i(self, value: i32) -> Self::I {
        [value; LANES]
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I {
        lanes(|i| a[i] << N)
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        lanes(|i| a[i] as f32)
    }
    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        lanes(|i| a[i].round_ties_even() as i32)
    }
    #[inline(always)]
    fn sum_i(self, a: Self::I) -> i32 {
        fold(a, i32::wrapping_add)
    }
    #[inline(always)]
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) {
        *to = lanes(|i| a[i] as i8);
    }
    #[inline(always)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::B {
        *from
    }
    #[inline(always)]
    fn and(self, a: Self::B, mask: u8) -> Self::B {
        a.map(|byte| byte & mask)
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn shr<const N: u32>(self, a: Self::B) -> Self::B {
        words(a, |word| word >> N)
    }
    #[inline(always)]
    fn shl<const N: u32>(self, a: Self::B) -> Self::B {
        words(a, |word| word << N)
    }
    #[inline(always)]
    fn dots(_most: u8) -> usize {
        usize::MAX
    }
    #[inline(always)]
    fn begin(self, sums: Self::I) -> Self::Sums {
        sums
    }
    #[inline(always)]
    fn dot(self, sums: Self::Sums, weights: Self::B, x: &[i8; 4]) -> Self::Sums {
        lanes(|i| (0..4).fold(sums[i], |sum, j| sum + i32::from(weights[4 * i + j]) * i32::from(x[j])))
    }
    #[inline(always)]
    fn end(self, _began: Self::I, sums: Self::Sums) -> Self::I {
        sums
    }
    #[inline(always)]
    fn dot_biased(self, sums: Self::I, weights: Self::B, x: &[i8; 4]) -> Self::I {
        self.dot(sums, weights, x)
    }
    #[inline(always)]
    fn begin_biased(self, negated: i32) -> Self::I {
        [negated << 7; LANES]
    }
    #[inline(always)]
    fn prefetch<T>(self, _from: &[T], _ahead: usize) {}
    #[inline(always)]
    fn prefetch_far<T>(self, _from: &[T], _ahead: usize) {}
}
