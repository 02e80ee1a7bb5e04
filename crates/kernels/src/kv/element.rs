//! How a number of a key or a value is kept: whole, or in half the room.

use crate::buffer::Plain;
use crate::simd::{LANES, Simd};
use half::f16;
use std::fmt;
use std::str::FromStr;

/// How keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// As they are computed: 4 bytes a number.
    #[default]
    F32,
    /// Rounded to half precision, ties to even: 2 bytes a number. What is too large for it becomes the
    /// largest number that is not.
    F16,
}

impl Precision {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => size_of::<f32>(),
            Self::F16 => size_of::<Half>(),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        })
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "f32" => Ok(Self::F32),
            "f16" => Ok(Self::F16),
            _ => Err(format!("{text:?} is neither f32 nor f16")),
        }
    }
}

/// A number as it is kept in a page.
pub(crate) trait Element: Plain {
    /// The nearest to `value`.
    fn narrow(value: f32) -> Self;
    /// Sixteen of them, widened.
    fn load<S: Simd>(s: S, from: &[Self; LANES]) -> S::F;
}

/// The bytes of a half, as loads want them.
pub(crate) type Half = [u8; 2];

impl Element for f32 {
    #[inline(always)]
    fn narrow(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[Self; LANES]) -> S::F {
        s.load(from)
    }
}

impl Element for Half {
    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let most = f16::MAX.to_f32_const();
        f16::from_f32(value.clamp(-most, most)).to_le_bytes()
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[Self; LANES]) -> S::F {
        from.as_flattened().first_chunk().map_or(s.splat(0.0), |from| s.load_f16(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Portable;

    #[test]
    fn halves_are_the_nearest_and_never_infinite() {
        let cases = [(0.0, 0.0), (1.0, 1.0), (1.0 + 1.0 / 2048.0, 1.0), (1e9, 65504.0), (-1e9, -65504.0)];
        for (value, want) in cases {
            let lanes = Half::load(Portable, &[Half::narrow(value); LANES]);
            assert_eq!(lanes, [want; LANES], "{value}");
        }
    }

    #[test]
    fn precisions_are_named_as_they_are_read() {
        for precision in [Precision::F32, Precision::F16] {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        assert!("f8".parse::<Precision>().unwrap_err().contains("f8"));
    }
}
