//! The tiers of AVX-512 with VNNI, with GFNI or without: one register for sixteen lanes.
//!
//! AMX is no tier. Its sums of a block go through the memory before they can be scaled, and while it works, and some
//! eighty cycles longer, the processor has one of its two units for products of floats. Measured on Emerald Rapids with
//! weights of four bits, ns a block against these dot products: five rows 14.8 and 14.3; eight rows 18.4 and 21.1 from
//! the second cache, the same from the memory; sixteen rows 27 to 45 and 43, by how much of the first cache is free.

#![allow(clippy::undocumented_unsafe_blocks, reason = "one argument holds for all, given at the token")]

use super::{Kernel, LANES, Simd, word};
use std::arch::x86_64::*;

/// Proof that the machine has AVX-512 F, BW, DQ, VL, VNNI, FMA and F16C before them, and GFNI where `GFNI`.
///
/// SAFETY argument of every `unsafe` block in this file: a value of this type is made by
/// [`Avx512::detect`] only, so the instructions exist; pointers come from references to arrays of
/// the size that is read or written, and the unaligned forms of loads and stores are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512<const GFNI: bool>(());

impl<const GFNI: bool> Avx512<GFNI> {
    /// The token, on a machine that has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!GFNI || is_x86_feature_detected!("gfni"));
        all.then_some(Self(()))
    }

    /// Runs `kernel` compiled for this tier.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        fn enter<K: Kernel, const GFNI: bool>(s: Avx512<GFNI>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,gfni")]
        fn enter_gfni<K: Kernel, const GFNI: bool>(s: Avx512<GFNI>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        unsafe { if GFNI { enter_gfni(self, kernel) } else { enter(self, kernel) } }
    }
}

/// Lane 0 of the sum of eight, folded by halves.
#[inline(always)]
pub(super) unsafe fn sum8(v: __m256) -> f32 {
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}

/// The greatest of eight.
#[inline(always)]
pub(super) unsafe fn max8(v: __m256) -> f32 {
    unsafe {
        let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
    }
}

/// The sum of eight.
#[inline(always)]
pub(super) unsafe fn sum8_i(v: __m256i) -> i32 {
    unsafe {
        let four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b_01_00_11_10>(four));
        _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b_10_11_00_01>(two)))
    }
}

impl<const GFNI: bool> Simd for Avx512<GFNI> {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    type Sums = __m512i;
    const COLUMNS: usize = 8;
    const QUERIES: usize = 12;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, value: Self::F, to: &mut [f32; LANES]) {
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn exp2_whole(self, n: Self::F) -> Self::F {
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn first(self, count: usize, a: Self::F, b: Self::F) -> Self::F {
        let mask = ((1u32 << count.min(LANES)) - 1) as u16;
        unsafe { _mm512_mask_blend_ps(mask, b, a) }
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        unsafe { sum8(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a))) }
    }
    #[inline(always)]
    fn greatest(self, a: Self::F) -> f32 {
        unsafe { max8(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a))) }
    }
    #[inline(always)]
    fn load_f16(self, from: &[u8; 2 * LANES]) -> Self::F {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bf16(self, from: &[u8; 2 * LANES]) -> Self::F {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn splat_i(self, value: i32) -> Self::I {
        unsafe { _mm512_set1_epi32(value) }
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I {
        unsafe { _mm512_slli_epi32::<N>(a) }
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        unsafe { _mm512_cvtps_epi32(a) }
    }
    #[inline(always)]
    fn sum_i(self, a: Self::I) -> i32 {
        unsafe { sum8_i(_mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64::<1>(a))) }
    }
    #[inline(always)]
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) {
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(a)) }
    }
    #[inline(always)]
    fn store_codes(self, a: Self::I, b: Self::I, to: &mut [i8; 2 * LANES]) -> [i32; 2] {
        unsafe {
            let low = _mm256_castsi128_si256(_mm512_cvtepi32_epi8(a));
            let codes = _mm256_inserti128_si256::<1>(low, _mm512_cvtepi32_epi8(b));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), codes);
            // Sums of eight unsigned bytes, each 128 more than its code.
            let above = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
            let eights = _mm256_sad_epu8(above, _mm256_setzero_si256());
            let sixteen = |eights| {
                let sum = _mm_add_epi32(eights, _mm_unpackhi_epi64(eights, eights));
                _mm_cvtsi128_si32(sum) - 128 * LANES as i32
            };
            [sixteen(_mm256_castsi256_si128(eights)), sixteen(_mm256_extracti128_si256::<1>(eights))]
        }
    }
    #[inline(always)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::B {
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }
    #[inline(always)]
    fn and(self, a: Self::B, mask: u8) -> Self::B {
        unsafe { _mm512_and_si512(a, _mm512_set1_epi8(mask.cast_signed())) }
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    fn high_nibbles(self, a: Self::B) -> Self::B {
        /// Of each byte's bits the upper four, moved down: a matrix of bits, row by row.
        const DOWN: u64 = 0x1020_4080_0000_0000;
        if GFNI {
            // One instruction that either unit has, for a shift that only one of them has and a mask.
            return unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(a, _mm512_set1_epi64(DOWN.cast_signed())) };
        }
        self.and(self.shr::<4>(a), 15)
    }
    #[inline(always)]
    fn shr<const N: u32>(self, a: Self::B) -> Self::B {
        unsafe { _mm512_srli_epi16::<N>(a) }
    }
    #[inline(always)]
    fn shl<const N: u32>(self, a: Self::B) -> Self::B {
        unsafe { _mm512_slli_epi16::<N>(a) }
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
        unsafe { _mm512_dpbusd_epi32(sums, weights, _mm512_set1_epi32(word(x))) }
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
        self.shl_i::<7>(self.splat_i(negated))
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
