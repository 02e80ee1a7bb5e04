//! Widening of the quantised kinds with 32 values a block to `f32`.
//!
//! These five are written out because they are what small models ship in and the loops vectorise;
//! the kinds with 256 values a block are widened by candle (see [`super::matrix`]).

/// Values in one block of every kind here.
pub(crate) const BLOCK: usize = 32;

/// A quantised kind with blocks of 32 values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 4-bit codes, scale.
    Q4_0,
    /// 4-bit codes, scale and minimum.
    Q4_1,
    /// 5-bit codes, scale.
    Q5_0,
    /// 5-bit codes, scale and minimum.
    Q5_1,
    /// 8-bit codes, scale.
    Q8_0,
}

impl Kind {
    /// Bytes of one block.
    pub(crate) fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
        }
    }

    /// Writes the values of whole blocks; `out` holds 32 for each.
    pub(crate) fn widen(self, bytes: &[u8], out: &mut [f32]) {
        let (out, _) = out.as_chunks_mut::<BLOCK>();
        match self {
            Self::Q4_0 => widen::<18>(bytes, out, None, |b, codes| nibbles(&b[2..], 8, codes)),
            Self::Q4_1 => widen::<20>(bytes, out, Some(2), |b, codes| nibbles(&b[4..], 0, codes)),
            Self::Q5_0 => widen::<22>(bytes, out, None, |b, codes| fives(&b[2..6], &b[6..], 16, codes)),
            Self::Q5_1 => widen::<24>(bytes, out, Some(2), |b, codes| fives(&b[4..8], &b[8..], 0, codes)),
            Self::Q8_0 => widen::<34>(bytes, out, None, |b, codes| {
                for (code, &byte) in codes.iter_mut().zip(&b[2..]) {
                    *code = byte.cast_signed();
                }
            }),
        }
    }
}

/// Blocks unpacked before they are scaled.
const BATCH: usize = 32;

/// `code * d + m` for blocks of `N` bytes that begin with `d` and have `m`, if any, at `minimum`.
fn widen<const N: usize>(
    bytes: &[u8],
    out: &mut [[f32; BLOCK]],
    minimum: Option<usize>,
    unpack: impl Fn(&[u8; N], &mut [i8; BLOCK]),
) {
    let (blocks, _) = bytes.as_chunks::<N>();
    let mut codes = [[0i8; BLOCK]; BATCH];
    for (blocks, out) in blocks.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
        for (block, codes) in blocks.iter().zip(&mut codes) {
            unpack(block, codes);
        }
        scale_codes(blocks, &codes, minimum, out);
    }
}

/// Kept apart from its callers, and with a loop for each step: so it is vectorised for the narrowest
/// machine too, which is not the case when the two steps are one expression.
#[inline(never)]
fn scale_codes<const N: usize>(
    blocks: &[[u8; N]],
    codes: &[[i8; BLOCK]],
    minimum: Option<usize>,
    out: &mut [[f32; BLOCK]],
) {
    for ((block, codes), out) in blocks.iter().zip(codes).zip(out) {
        let d = scale(block, 0);
        for (o, &code) in out.iter_mut().zip(codes) {
            *o = f32::from(code) * d;
        }
        if let Some(at) = minimum {
            let m = scale(block, at);
            for o in out.iter_mut() {
                *o += m;
            }
        }
    }
}

/// The 16 low, then the 16 high nibbles, each less `zero`.
fn nibbles(bytes: &[u8], zero: i8, codes: &mut [i8; BLOCK]) {
    let (low, high) = codes.split_at_mut(BLOCK / 2);
    for (code, &byte) in low.iter_mut().zip(bytes) {
        *code = (byte & 15).cast_signed() - zero;
    }
    for (code, &byte) in high.iter_mut().zip(bytes) {
        *code = (byte >> 4).cast_signed() - zero;
    }
}

/// As [`nibbles`], with the fifth bits of the 32 codes in a little-endian word.
fn fives(high_bits: &[u8], bytes: &[u8], zero: i8, codes: &mut [i8; BLOCK]) {
    let word = high_bits.iter().rev().fold(0u32, |word, &byte| word << 8 | u32::from(byte));
    nibbles(bytes, zero, codes);
    for (j, code) in codes.iter_mut().enumerate() {
        *code += ((word >> j & 1) << 4) as i8;
    }
}

/// The half-precision number at `at`.
fn scale(block: &[u8], at: usize) -> f32 {
    half_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Widens a half without asking the processor for its features, which `half` does at every call.
///
/// The exponent is rebased by a multiplication, which also normalises subnormals; infinities and
/// NaN take the largest exponent.
fn half_to_f32(bits: u16) -> f32 {
    /// 2^112, the difference of the two exponents' biases.
    const REBASE: f32 = f32::from_bits(0x7780_0000);
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let value = if magnitude >= 0x0f80_0000 {
        f32::from_bits(magnitude | 0x7f80_0000)
    } else {
        f32::from_bits(magnitude) * REBASE
    };
    f32::from_bits(value.to_bits() | u32::from(bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};

    #[test]
    fn every_half_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let (got, want) = (half_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{bits:#06x}: {got} {want}"
            );
        }
    }

    #[test]
    fn every_kind_agrees_with_candle() {
        let values: Vec<f32> = (0..8 * BLOCK).map(|i| ((i * i) as f32 * 0.13).sin() * 3.0 + 0.2).collect();
        let tensor = Tensor::from_slice(&values, (2, 4 * BLOCK), &Device::Cpu).unwrap();
        for (kind, dtype) in [
            (Kind::Q4_0, GgmlDType::Q4_0),
            (Kind::Q4_1, GgmlDType::Q4_1),
            (Kind::Q5_0, GgmlDType::Q5_0),
            (Kind::Q5_1, GgmlDType::Q5_1),
            (Kind::Q8_0, GgmlDType::Q8_0),
        ] {
            assert_eq!(kind.block_bytes(), dtype.type_size());
            let quantized = QTensor::quantize(&tensor, dtype).unwrap();
            let want =
                quantized.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let mut got = vec![0f32; values.len()];
            kind.widen(&quantized.data().unwrap(), &mut got);
            assert_eq!(got, want, "{kind:?}");
        }
    }
}
