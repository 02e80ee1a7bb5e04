//! The tier of NEON with the dot product instruction: four registers for sixteen lanes.

#![allow(clippy::undocumented_unsafe_blocks, reason = "one argument holds for all, given at the token")]

use super::{Kernel, LANES, Simd, word};
use std::arch::aarch64::*;
use std::arch::asm;
use std::arch::is_aarch64_feature_detected;

/// Proof that the machine has NEON and its dot product.
///
/// SAFETY argument of every `unsafe` block in this file: a value of this type is made by
/// [`Neon::detect`] only, so the instructions exist; pointers come from references to arrays of the
/// size that is read or written, which the instructions need not be aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Neon(());

impl Neon {
    /// The token, on a machine that has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        let all = is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod");
        all.then_some(Self(()))
    }

    /// Runs `kernel` compiled for this tier.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "neon,dotprod")]
        fn enter<K: Kernel>(s: Neon, kernel: K) -> K::Output {
            kernel.run(s)
        }
        unsafe { enter(self, kernel) }
    }
}

/// Applies an operation to all registers of its operands.
macro_rules! all {
    ($op:ident($($v:expr),+)) => {
        [$op($($v[0]),+), $op($($v[1]),+), $op($($v[2]),+), $op($($v[3]),+)]
    };
}

/// Words of 16 bits shifted to the left by `count`, which may be negative.
#[inline(always)]
unsafe fn shifted(bytes: [uint8x16_t; 4], count: int16x8_t) -> [uint8x16_t; 4] {
    unsafe {
        let (words, count) = (all!(vreinterpretq_u16_u8(bytes)), [count; 4]);
        let words = all!(vshlq_u16(words, count));
        all!(vreinterpretq_u8_u16(words))
    }
}

/// `sums + weights · x`, four signed bytes a lane; the intrinsic for it is not stable yet.
#[inline(always)]
unsafe fn sdot(mut sums: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t {
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {sums:v}.4s, {weights:v}.16b, {x:v}.16b",
            sums = inout(vreg) sums,
            weights = in(vreg) weights,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

impl Simd for Neon {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];
    type B = [uint8x16_t; 4];
    type Sums = [int32x4_t; 4];
    const COLUMNS: usize = 3;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        unsafe { [vdupq_n_f32(value); 4] }
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        let at = |i: usize| unsafe { vld1q_f32(from.as_ptr().add(4 * i)) };
        [at(0), at(1), at(2), at(3)]
    }
    #[inline(always)]
    fn store(self, value: Self::F, to: &mut [f32; LANES]) {
        for (four, part) in value.into_iter().zip(to.as_chunks_mut::<4>().0) {
            unsafe { vst1q_f32(part.as_mut_ptr(), four) };
        }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { all!(vaddq_f32(a, b)) }
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { all!(vsubq_f32(a, b)) }
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { all!(vmulq_f32(a, b)) }
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { all!(vdivq_f32(a, b)) }
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { all!(vfmaq_f32(c, a, b)) }
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe {
            let greater = all!(vcgtq_f32(a, b));
            all!(vbslq_f32(greater, a, b))
        }
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe {
            let less = all!(vcltq_f32(a, b));
            all!(vbslq_f32(less, a, b))
        }
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        unsafe { all!(vabsq_f32(a)) }
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        unsafe { all!(vrndnq_f32(a)) }
    }
    #[inline(always)]
    fn exp2_whole(self, n: Self::F) -> Self::F {
        let one = |n| unsafe {
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127))))
        };
        [one(n[0]), one(n[1]), one(n[2]), one(n[3])]
    }
    #[inline(always)]
    fn first(self, count: usize, a: Self::F, b: Self::F) -> Self::F {
        let count = count.min(LANES) as u32;
        let mask = |i: u32| unsafe {
            let index = vaddq_u32(vld1q_u32([0, 1, 2, 3].as_ptr()), vdupq_n_u32(4 * i));
            vcltq_u32(index, vdupq_n_u32(count))
        };
        let mask = [mask(0), mask(1), mask(2), mask(3)];
        unsafe { all!(vbslq_f32(mask, a, b)) }
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        unsafe {
            let four = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }
    #[inline(always)]
    fn greatest(self, a: Self::F) -> f32 {
        let half = self.max(a, [a[2], a[3], a[2], a[3]]);
        let four = self.max(half, [half[1]; 4])[0];
        unsafe { vmaxvq_f32(four) }
    }
    #[inline(always)]
    fn load_f16(self, from: &[u8; 2 * LANES]) -> Self::F {
        let mut wide = [0.0; LANES];
        for (lane, bytes) in wide.iter_mut().zip(from.as_chunks().0) {
            *lane = half_to_single(u16::from_le_bytes(*bytes));
        }
        self.load(&wide)
    }
    #[inline(always)]
    fn load_bf16(self, from: &[u8; 2 * LANES]) -> Self::F {
        let four = |part: &[u8; 8]| unsafe {
            vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(part.as_ptr()))))
        };
        let parts = from.as_chunks::<8>().0;
        [four(&parts[0]), four(&parts[1]), four(&parts[2]), four(&parts[3])]
    }
    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::F {
        unsafe {
            let bytes = vld1q_u8(from.as_ptr());
            let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
            let low = [vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low)];
            let high = [vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)];
            let wide = [low[0], low[1], high[0], high[1]];
            all!(vcvtq_f32_u32(wide))
        }
    }
    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Self::F {
        unsafe {
            let bytes = vreinterpretq_s8_u8(vld1q_u8(from.as_ptr()));
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            let low = [vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low)];
            let high = [vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)];
            let wide = [low[0], low[1], high[0], high[1]];
            all!(vcvtq_f32_s32(wide))
        }
    }
    #[inline(always)]
    fn splat_i(self, value: i32) -> Self::I {
        unsafe { [vdupq_n_s32(value); 4] }
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I {
        unsafe {
            let count = [vdupq_n_s32(N as i32); 4];
            all!(vshlq_s32(a, count))
        }
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        unsafe { all!(vcvtq_f32_s32(a)) }
    }
    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        unsafe { all!(vcvtnq_s32_f32(a)) }
    }
    #[inline(always)]
    fn sum_i(self, a: Self::I) -> i32 {
        unsafe { vaddvq_s32(vaddq_s32(vaddq_s32(a[0], a[2]), vaddq_s32(a[1], a[3]))) }
    }
    #[inline(always)]
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) {
        unsafe {
            let low = vcombine_s16(vmovn_s32(a[0]), vmovn_s32(a[1]));
            let high = vcombine_s16(vmovn_s32(a[2]), vmovn_s32(a[3]));
            vst1q_s8(to.as_mut_ptr(), vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
        }
    }
    #[inline(always)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::B {
        let at = |i: usize| unsafe { vld1q_u8(from.as_ptr().add(16 * i)) };
        [at(0), at(1), at(2), at(3)]
    }
    #[inline(always)]
    fn and(self, a: Self::B, mask: u8) -> Self::B {
        unsafe {
            let mask = [vdupq_n_u8(mask); 4];
            all!(vandq_u8(a, mask))
        }
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        unsafe { all!(vorrq_u8(a, b)) }
    }
    #[inline(always)]
    fn shr<const N: u32>(self, a: Self::B) -> Self::B {
        unsafe { shifted(a, vdupq_n_s16(-(N as i16))) }
    }
    #[inline(always)]
    fn shl<const N: u32>(self, a: Self::B) -> Self::B {
        unsafe { shifted(a, vdupq_n_s16(N as i16)) }
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
        unsafe {
            let x = vreinterpretq_s8_s32(vdupq_n_s32(word(x)));
            let w = all!(vreinterpretq_s8_u8(weights));
            [sdot(sums[0], w[0], x), sdot(sums[1], w[1], x), sdot(sums[2], w[2], x), sdot(sums[3], w[3], x)]
        }
    }
    #[inline(always)]
    fn end(self, _began: Self::I, sums: Self::Sums) -> Self::I {
        sums
    }
    #[inline(always)]
    fn dot_biased(self, sums: Self::I, weights: Self::B, x: &[i8; 4]) -> Self::I {
        // Less 128, the bytes are signed ones: the product needs no correction.
        let signed = unsafe {
            let flip = [vdupq_n_u8(128); 4];
            all!(veorq_u8(weights, flip))
        };
        self.dot(sums, signed, x)
    }
    #[inline(always)]
    fn begin_biased(self, _negated: i32) -> Self::I {
        self.splat_i(0)
    }
    #[inline(always)]
    fn prefetch<T>(self, from: &[T], ahead: usize) {
        let at = from.as_ptr().cast::<u8>().wrapping_add(ahead);
        unsafe {
            asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly))
        };
    }
    #[inline(always)]
    fn prefetch_far<T>(self, from: &[T], ahead: usize) {
        let at = from.as_ptr().cast::<u8>().wrapping_add(ahead);
        unsafe {
            asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly))
        };
    }
}

/// Widens a half, branch-free in what matters so that sixteen are widened at once.
///
/// The exponent is rebased by a multiplication, which also normalises subnormals; infinities and NaN
/// take the largest exponent.
#[inline(always)]
fn half_to_single(bits: u16) -> f32 {
    /// 2^112, the difference of the two exponents' biases.
    const REBASE: f32 = f32::from_bits(0x7780_0000);
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let finite = f32::from_bits(magnitude) * REBASE;
    let value = if magnitude >= 0x0f80_0000 { magnitude | 0x7f80_0000 } else { finite.to_bits() };
    f32::from_bits(value | u32::from(bits & 0x8000) << 16)
}
