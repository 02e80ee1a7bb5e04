//! The tiers of AVX2, with VNNI on 256 bits or without: two registers for sixteen lanes.

#![allow(clippy::undocumented_unsafe_blocks, reason = "one argument holds for all, given at the token")]

use super::avx512::{max8, sum8, sum8_i};
use super::{Kernel, LANES, Simd, word};
use std::arch::x86_64::*;

/// Proof that the machine has AVX2, FMA and F16C, and AVX-VNNI where `VNNI`.
///
/// SAFETY argument of every `unsafe` block in this file: a value of this type is made by
/// [`Avx2::detect`] only, so the instructions exist; pointers come from references to arrays of
/// the size that is read or written, and the unaligned forms of loads and stores are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// The token, on a machine that has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || is_x86_feature_detected!("avxvnni"));
        all.then_some(Self(()))
    }

    /// Runs `kernel` compiled for this tier.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn plain<K: Kernel, const VNNI: bool>(s: Avx2<VNNI>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        fn vnni<K: Kernel, const VNNI: bool>(s: Avx2<VNNI>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        if VNNI { unsafe { vnni(self, kernel) } } else { unsafe { plain(self, kernel) } }
    }
}

/// Applies an operation to both registers of its operands.
macro_rules! both {
    ($op:ident($($v:expr),+)) => { [$op($($v[0]),+), $op($($v[1]),+)] };
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    type B = [__m256i; 2];
    /// With VNNI like `I`; without, words: sums of the products of two bytes each, which need no more for a while.
    type Sums = [__m256i; 2];
    const COLUMNS: usize = 4;
    const FEW_REGISTERS: bool = true;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        unsafe { [_mm256_set1_ps(value); 2] }
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
    }
    #[inline(always)]
    fn store(self, value: Self::F, to: &mut [f32; LANES]) {
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), value[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), value[1]);
        }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { both!(_mm256_add_ps(a, b)) }
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { both!(_mm256_sub_ps(a, b)) }
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { both!(_mm256_mul_ps(a, b)) }
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { both!(_mm256_div_ps(a, b)) }
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { both!(_mm256_fmadd_ps(a, b, c)) }
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { both!(_mm256_max_ps(a, b)) }
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { both!(_mm256_min_ps(a, b)) }
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        unsafe {
            let sign = [_mm256_set1_ps(-0.0); 2];
            both!(_mm256_andnot_ps(sign, a))
        }
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        unsafe { [_mm256_round_ps::<NEAREST>(a[0]), _mm256_round_ps::<NEAREST>(a[1])] }
    }
    #[inline(always)]
    fn exp2_whole(self, n: Self::F) -> Self::F {
        let one = |n| unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        };
        [one(n[0]), one(n[1])]
    }
    #[inline(always)]
    fn first(self, count: usize, a: Self::F, b: Self::F) -> Self::F {
        unsafe {
            let count = _mm256_set1_epi32(count.min(LANES) as i32);
            let low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let index = [low, _mm256_add_epi32(low, _mm256_set1_epi32(8))];
            let count = [count; 2];
            let mask = both!(_mm256_cmpgt_epi32(count, index));
            let mask = both!(_mm256_castsi256_ps(mask));
            both!(_mm256_blendv_ps(b, a, mask))
        }
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        unsafe { sum8(_mm256_add_ps(a[0], a[1])) }
    }
    #[inline(always)]
    fn greatest(self, a: Self::F) -> f32 {
        unsafe { max8(_mm256_max_ps(a[0], a[1])) }
    }
    #[inline(always)]
    fn load_f16(self, from: &[u8; 2 * LANES]) -> Self::F {
        unsafe {
            let from: *const __m128i = from.as_ptr().cast();
            [_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from.add(1)))]
        }
    }
    #[inline(always)]
    fn load_bf16(self, from: &[u8; 2 * LANES]) -> Self::F {
        unsafe {
            let from: *const __m128i = from.as_ptr().cast();
            let one = |half| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half)));
            [one(_mm_loadu_si128(from)), one(_mm_loadu_si128(from.add(1)))]
        }
    }
    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::F {
        unsafe {
            let bytes = _mm_loadu_si128(from.as_ptr().cast());
            let wide = [_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes))];
            both!(_mm256_cvtepi32_ps(wide))
        }
    }
    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Self::F {
        unsafe {
            let bytes = _mm_loadu_si128(from.as_ptr().cast());
            let wide = [_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes))];
            both!(_mm256_cvtepi32_ps(wide))
        }
    }
    #[inline(always)]
    fn splat_i(self, value: i32) -> Self::I {
        unsafe { [_mm256_set1_epi32(value); 2] }
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I {
        let count = N as i32;
        unsafe {
            let count = _mm_cvtsi32_si128(count);
            [_mm256_sll_epi32(a[0], count), _mm256_sll_epi32(a[1], count)]
        }
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        unsafe { both!(_mm256_cvtepi32_ps(a)) }
    }
    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        unsafe { both!(_mm256_cvtps_epi32(a)) }
    }
    #[inline(always)]
    fn sum_i(self, a: Self::I) -> i32 {
        unsafe { sum8_i(_mm256_add_epi32(a[0], a[1])) }
    }
    #[inline(always)]
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) {
        unsafe {
            // Packing works within halves of a register: the last step puts them in order.
            let words = _mm256_permute4x64_epi64::<0b_11_01_10_00>(_mm256_packs_epi32(a[0], a[1]));
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes);
        }
    }
    #[inline(always)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::B {
        unsafe {
            let from: *const __m256i = from.as_ptr().cast();
            [_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))]
        }
    }
    #[inline(always)]
    fn and(self, a: Self::B, mask: u8) -> Self::B {
        unsafe {
            let mask = [_mm256_set1_epi8(mask.cast_signed()); 2];
            both!(_mm256_and_si256(a, mask))
        }
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        unsafe { both!(_mm256_or_si256(a, b)) }
    }
    #[inline(always)]
    fn shr<const N: u32>(self, a: Self::B) -> Self::B {
        unsafe {
            let count = _mm_cvtsi32_si128(N as i32);
            [_mm256_srl_epi16(a[0], count), _mm256_srl_epi16(a[1], count)]
        }
    }
    #[inline(always)]
    fn shl<const N: u32>(self, a: Self::B) -> Self::B {
        unsafe {
            let count = _mm_cvtsi32_si128(N as i32);
            [_mm256_sll_epi16(a[0], count), _mm256_sll_epi16(a[1], count)]
        }
    }
    #[inline(always)]
    fn dots(most: u8) -> usize {
        // What a word takes of pairs of products.
        if VNNI { usize::MAX } else { i16::MAX as usize / (2 * 127 * most as usize) }
    }
    #[inline(always)]
    fn begin(self, sums: Self::I) -> Self::Sums {
        if VNNI { sums } else { self.splat_i(0) }
    }
    #[inline(always)]
    fn dot(self, sums: Self::Sums, weights: Self::B, x: &[i8; 4]) -> Self::Sums {
        unsafe {
            let x = [_mm256_set1_epi32(word(x)); 2];
            if VNNI {
                return both!(_mm256_dpbusd_avx_epi32(sums, weights, x));
            }
            let pairs = both!(_mm256_maddubs_epi16(weights, x));
            both!(_mm256_add_epi16(sums, pairs))
        }
    }
    #[inline(always)]
    fn end(self, began: Self::I, sums: Self::Sums) -> Self::I {
        if VNNI {
            return sums;
        }
        unsafe {
            let ones = [_mm256_set1_epi16(1); 2];
            let quads = both!(_mm256_madd_epi16(sums, ones));
            both!(_mm256_add_epi32(began, quads))
        }
    }
    #[inline(always)]
    fn dot_biased(self, sums: Self::I, weights: Self::B, x: &[i8; 4]) -> Self::I {
        if VNNI {
            return self.dot(sums, weights, x);
        }
        unsafe {
            // Signs go over to `x`, so that a pair is at most 2 · 128 · 127, below 2^15.
            let flip = [_mm256_set1_epi8(-128); 2];
            let signed = both!(_mm256_xor_si256(weights, flip));
            let x = [_mm256_set1_epi32(word(x)); 2];
            let (size, x) = (both!(_mm256_abs_epi8(signed)), both!(_mm256_sign_epi8(x, signed)));
            let (pairs, ones) = (both!(_mm256_maddubs_epi16(size, x)), [_mm256_set1_epi16(1); 2]);
            let quads = both!(_mm256_madd_epi16(pairs, ones));
            both!(_mm256_add_epi32(sums, quads))
        }
    }
    #[inline(always)]
    fn begin_biased(self, negated: i32) -> Self::I {
        if VNNI { self.shl_i::<7>(self.splat_i(negated)) } else { self.splat_i(0) }
    }
    #[inline(always)]
    fn prefetch<T>(self, from: &[T], ahead: usize) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.as_ptr().cast::<i8>().wrapping_add(ahead)) }
    }
    #[inline(always)]
    fn prefetch_far<T>(self, from: &[T], ahead: usize) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.as_ptr().cast::<i8>().wrapping_add(ahead)) }
    }
}
