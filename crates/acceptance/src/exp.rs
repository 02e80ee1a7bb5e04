//! e^x for x ≤ 0 as straight-line arithmetic, so that a loop over a whole vocabulary vectorises, and so that every
//! platform computes the same bits: only additions, multiplications and selections, never a fused multiply-add
//! (Rust does not contract floats by itself). `libm::exp` branches and would run scalar.

/// Below this e^x is returned as exactly 0, just before results would become subnormal (which are slow, and too
/// unlikely ever to be drawn).
pub(crate) const UNDERFLOW: f64 = -708.0;

/// Adding this to a number below 2^51 in size rounds it to an integer, which then stands in the low mantissa bits.
const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52

/// ln 2 in two parts. The upper has 11 trailing zero bits, so that its product with |n| ≤ 1022 is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEFA_3800);
const LN_2_LOW: f64 = f64::from_bits(0x3D2E_F357_93C7_6730);

/// e^x for x ≤ 0, to a relative error below 1e-14; exactly 0 below [`UNDERFLOW`] and at −∞, exactly 1 at 0.
#[inline(always)]
pub(crate) fn exp_nonpositive(x: f64) -> f64 {
    let clamped = if x > UNDERFLOW { x } else { UNDERFLOW };
    // x = n·ln 2 + r with |r| ≤ ln 2 / 2.
    let shifted = clamped * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * LN_2_HIGH - n * LN_2_LOW;
    // Taylor to r^12: the first term left out is below 0.35^13 / 13! < 2e-16.
    let mut e = 1.0 / 479_001_600.0;
    e = e * r + 1.0 / 39_916_800.0;
    e = e * r + 1.0 / 3_628_800.0;
    e = e * r + 1.0 / 362_880.0;
    e = e * r + 1.0 / 40_320.0;
    e = e * r + 1.0 / 5_040.0;
    e = e * r + 1.0 / 720.0;
    e = e * r + 1.0 / 120.0;
    e = e * r + 1.0 / 24.0;
    e = e * r + 1.0 / 6.0;
    e = e * r + 0.5;
    e = e * r + 1.0;
    e = e * r + 1.0;
    // 2^n, by writing n + 1023 (within 2..=1023) into the exponent.
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    if x >= UNDERFLOW { e * power } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relative_error(x: f64) -> f64 {
        let right = libm::exp(x);
        ((exp_nonpositive(x) - right) / right).abs()
    }

    #[test]
    fn agrees_with_libm_over_the_whole_range() {
        let steps = 2_000_000;
        let worst = (0..=steps)
            .map(|i| relative_error(UNDERFLOW * f64::from(i) / f64::from(steps)))
            .fold(0.0, f64::max);
        assert!(worst <= 1e-14, "relative error {worst:e}");
        // Small arguments, down to those that vanish against 1.
        let worst = (0..400).map(|i| relative_error(-libm::exp2(-f64::from(i) / 4.0))).fold(0.0, f64::max);
        assert!(worst <= 1e-14, "relative error {worst:e}");
    }

    #[test]
    fn never_leaves_zero_to_one_and_never_rises() {
        let mut last = 1.0;
        for i in 0..1_000_000 {
            let e = exp_nonpositive(-f64::from(i) * 7.2e-4);
            assert!((0.0..=1.0).contains(&e));
            assert!(e <= last * (1.0 + 1e-15), "rises at step {i}");
            last = e;
        }
    }

    #[test]
    fn has_exact_ends() {
        assert_eq!(exp_nonpositive(0.0), 1.0);
        assert_eq!(exp_nonpositive(-0.0), 1.0);
        assert!(exp_nonpositive(UNDERFLOW).is_normal());
        for x in [UNDERFLOW - 1e-9, -745.0, -1e9, -1e300, f64::MIN, f64::NEG_INFINITY] {
            assert_eq!(exp_nonpositive(x), 0.0);
        }
    }

    #[test]
    fn gives_the_same_bits_everywhere() {
        // From the same steps in another language's doubles.
        let golden: [(f64, u64); 5] = [
            (-0.5, 0x3fe3_68b2_fc6f_960a),
            (-1.0, 0x3fd7_8b56_362c_ef38),
            (-10.0, 0x3f07_cd79_b564_7c9b),
            (-123.456, 0x34cd_a9fb_9e4e_e720),
            (-700.0, 0x00d1_4f2b_0fb9_307f),
        ];
        for (x, bits) in golden {
            assert_eq!(exp_nonpositive(x).to_bits(), bits, "at {x}");
        }
    }
}
