//! From the file's bytes of one row into a tile: the bit layouts of each block format.

use super::codes::{Bytes, Codes, Fives, Nibbles, Sixes};
use super::{BLOCK, Format};
use crate::simd::LANES;

/// Columns of a super-block.
const SUPER: usize = 8 * BLOCK;

/// Writes one row of whole blocks as row `row` of a tile.
pub(super) fn put_row(format: Format, from: &[u8], row: usize, codes: &mut [u8], scales: &mut [u8]) {
    let mut tile = TileRow { row, codes, scales };
    match format {
        Format::Q4_0 => tile.blocks::<18, Nibbles>(from, 1, |b| nibbles(&b[2..])),
        Format::Q4_1 => tile.blocks::<20, Nibbles>(from, 2, |b| nibbles(&b[4..])),
        Format::Q5_0 => tile.blocks::<22, Fives>(from, 1, |b| fives(&b[2..6], &b[6..])),
        Format::Q5_1 => tile.blocks::<24, Fives>(from, 2, |b| fives(&b[4..8], &b[8..])),
        Format::Q8_0 => {
            tile.blocks::<34, Bytes>(from, 1, |b| std::array::from_fn(|i| b[2 + i].wrapping_add(128)));
        }
        Format::Q4K => tile.super_blocks::<144, Nibbles>(from, |b| halves_of_pairs(&b[16..], None)),
        Format::Q5K => tile.super_blocks::<176, Fives>(from, |b| halves_of_pairs(&b[48..], Some(&b[16..48]))),
        Format::Q6K => tile.sixes(from),
        Format::F16 | Format::Bf16 => tile.floats::<2>(from),
        Format::F32 => tile.floats::<4>(from),
    }
}

/// A row's place in a tile.
struct TileRow<'a> {
    row: usize,
    codes: &'a mut [u8],
    scales: &'a mut [u8],
}

impl TileRow<'_> {
    /// Blocks of `N` bytes that begin with as many halves as `scales` says.
    fn blocks<const N: usize, C: Codes>(
        &mut self,
        from: &[u8],
        scales: usize,
        unpack: impl Fn(&[u8; N]) -> [u8; BLOCK],
    ) {
        let units = self.scales.chunks_exact_mut(scales * 2 * LANES);
        let blocks = from.as_chunks::<N>().0.iter().zip(self.codes.chunks_exact_mut(C::BYTES)).zip(units);
        for ((block, codes), unit) in blocks {
            C::put(codes, self.row, &unpack(block));
            for i in 0..scales {
                put_half(unit, i, self.row, [block[2 * i], block[2 * i + 1]]);
            }
        }
    }

    /// Super-blocks of `N` bytes that begin with two halves and twelve bytes of 6-bit numbers.
    fn super_blocks<const N: usize, C: Codes>(
        &mut self,
        from: &[u8],
        unpack: impl Fn(&[u8; N]) -> [[u8; BLOCK]; 8],
    ) {
        let units = self.scales.chunks_exact_mut(4 * LANES + 16 * LANES);
        let blocks = from.as_chunks::<N>().0.iter().zip(self.codes.chunks_exact_mut(8 * C::BYTES)).zip(units);
        for ((block, codes), unit) in blocks {
            for (sub, codes) in unpack(block).iter().zip(codes.chunks_exact_mut(C::BYTES)) {
                C::put(codes, self.row, sub);
            }
            put_half(unit, 0, self.row, [block[0], block[1]]);
            put_half(unit, 1, self.row, [block[2], block[3]]);
            for i in 0..8 {
                let (scale, minimum) = six_bits(&block[4..16], i);
                unit[4 * LANES + i * LANES + self.row] = scale;
                unit[4 * LANES + (8 + i) * LANES + self.row] = minimum;
            }
        }
    }

    /// Super-blocks of 6-bit codes, whose factor stands last.
    fn sixes(&mut self, from: &[u8]) {
        let units = self.scales.chunks_exact_mut(2 * LANES + 16 * LANES);
        let tiles = self.codes.chunks_exact_mut(8 * Sixes::BYTES);
        for ((block, codes), unit) in from.as_chunks::<210>().0.iter().zip(tiles).zip(units) {
            let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
            let mut values = [0u8; SUPER];
            for half in 0..2 {
                for l in 0..32 {
                    let (a, b) = (low[64 * half + l], low[64 * half + 32 + l]);
                    let bits = high[32 * half + l];
                    for (quarter, nibble) in [a & 15, b & 15, a >> 4, b >> 4].into_iter().enumerate() {
                        values[128 * half + 32 * quarter + l] = nibble | (bits >> (2 * quarter) & 3) << 4;
                    }
                }
            }
            for (sub, codes) in values.as_chunks().0.iter().zip(codes.chunks_exact_mut(Sixes::BYTES)) {
                Sixes::put(codes, self.row, sub);
            }
            put_half(unit, 0, self.row, [block[208], block[209]]);
            for (i, &scale) in scales.iter().enumerate() {
                unit[2 * LANES + i * LANES + self.row] = scale;
            }
        }
    }

    /// Values of `N` bytes.
    fn floats<const N: usize>(&mut self, from: &[u8]) {
        for (value, sixteen) in from.as_chunks::<N>().0.iter().zip(self.codes.chunks_exact_mut(N * LANES)) {
            sixteen[self.row * N..][..N].copy_from_slice(value);
        }
    }
}

/// Writes a row's half of the `index`-th sixteen.
fn put_half(unit: &mut [u8], index: usize, row: usize, half: [u8; 2]) {
    unit[(index * LANES + row) * 2..][..2].copy_from_slice(&half);
}

/// The 16 low, then the 16 high nibbles.
fn nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}

/// As [`nibbles`], with the fifth bits in a little-endian word.
fn fives(high: &[u8], bytes: &[u8]) -> [u8; BLOCK] {
    let low = nibbles(bytes);
    std::array::from_fn(|i| low[i] | (high[i / 8] >> (i % 8) & 1) << 4)
}

/// Eight blocks, two in the nibbles of every 32 bytes, with a fifth bit of block `i` in bit `i` of `high`.
fn halves_of_pairs(bytes: &[u8], high: Option<&[u8]>) -> [[u8; BLOCK]; 8] {
    std::array::from_fn(|block| {
        std::array::from_fn(|l| {
            let byte = bytes[block / 2 * 32 + l];
            let nibble = if block % 2 == 0 { byte & 15 } else { byte >> 4 };
            nibble | high.map_or(0, |high| (high[l] >> block & 1) << 4)
        })
    })
}

/// The scale and the minimum of block `i` among twelve bytes: six bits each, the upper four blocks' split.
fn six_bits(packed: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        return (packed[i] & 63, packed[i + 4] & 63);
    }
    let scale = (packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4;
    let minimum = (packed[i + 4] >> 4) | (packed[i] >> 6) << 4;
    (scale, minimum)
}
