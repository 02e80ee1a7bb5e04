//! GGML's tensor types by number: the ones there are kernels for, and the names of the others.

use crate::compute::blocks::Kind;
use candle_core::quantized::GgmlDType;
use foretoken_kernels::Format;

/// How the values of a supported tensor type are laid out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Layout {
    F32,
    F16,
    Bf16,
    Blocks(Kind),
    Super(GgmlDType),
}

impl Layout {
    /// The layout of a type's number, or what the type is called.
    pub(super) fn of(kind: u32) -> Result<Self, String> {
        Ok(match kind {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Blocks(Kind::Q4_0),
            3 => Self::Blocks(Kind::Q4_1),
            6 => Self::Blocks(Kind::Q5_0),
            7 => Self::Blocks(Kind::Q5_1),
            8 => Self::Blocks(Kind::Q8_0),
            10 => Self::Super(GgmlDType::Q2K),
            11 => Self::Super(GgmlDType::Q3K),
            12 => Self::Super(GgmlDType::Q4K),
            13 => Self::Super(GgmlDType::Q5K),
            14 => Self::Super(GgmlDType::Q6K),
            30 => Self::Bf16,
            _ => return Err(name(kind)),
        })
    }

    /// The layout as the fused kernels have it, where they do.
    pub(super) fn format(self) -> Option<Format> {
        Some(match self {
            Self::F32 => Format::F32,
            Self::F16 => Format::F16,
            Self::Bf16 => Format::Bf16,
            Self::Blocks(Kind::Q4_0) => Format::Q4_0,
            Self::Blocks(Kind::Q4_1) => Format::Q4_1,
            Self::Blocks(Kind::Q5_0) => Format::Q5_0,
            Self::Blocks(Kind::Q5_1) => Format::Q5_1,
            Self::Blocks(Kind::Q8_0) => Format::Q8_0,
            Self::Super(GgmlDType::Q4K) => Format::Q4K,
            Self::Super(GgmlDType::Q5K) => Format::Q5K,
            Self::Super(GgmlDType::Q6K) => Format::Q6K,
            Self::Super(_) => return None,
        })
    }

    /// Values and bytes of one block.
    pub(super) fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Blocks(kind) => (crate::compute::blocks::BLOCK, kind.block_bytes()),
            Self::Super(dtype) => (dtype.block_size(), dtype.type_size()),
        }
    }
}

fn name(kind: u32) -> String {
    let known = match kind {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return format!("number {kind}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::matrix::Matrix;
    use crate::load::raw::store;
    use foretoken_kernels::Packed;
    use serde_json::Value;

    fn unhex(text: &Value) -> Vec<u8> {
        let digits = text.as_str().unwrap().as_bytes().chunks(2);
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    /// See `tests/data/make_quantised.py`.
    #[test]
    fn every_type_is_read_as_the_gguf_package_reads_it() {
        const ROWS: usize = 2;
        const COLS: usize = 256;
        let golden = include_str!("../../tests/data/quantised.json");
        let golden: serde_json::Map<String, Value> = serde_json::from_str(golden).unwrap();
        assert_eq!(golden.len(), 11);
        for (name, golden) in golden {
            let layout = Layout::of(golden["number"].as_u64().unwrap() as u32).unwrap();
            let bytes = unhex(&golden["bytes"]);
            let want: Vec<f32> =
                unhex(&golden["values"]).as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
            let packed = Packed::new(layout.format().unwrap(), ROWS, COLS, &bytes).unwrap();
            let matrix = Matrix::new(ROWS, COLS, store(layout, bytes)).unwrap();
            let mut scratch = Vec::new();
            assert_eq!(matrix.widen(0..ROWS, &mut scratch).unwrap(), want, "{name}");
            let mut row = vec![0.0; COLS];
            for index in 0..ROWS {
                packed.widen_row(index, &mut row);
                assert_eq!(row, want[index * COLS..][..COLS], "{name} packed");
            }
        }
    }
}
