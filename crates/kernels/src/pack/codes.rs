//! Codes of 4, 5, 6 and 8 bits, in blocks of sixteen rows by 32 columns.
//!
//! A block is eight groups of four columns. A vector of 64 bytes holds four columns of sixteen rows,
//! row by row. Four bits are stored for two groups in one vector: the even group in the low, the odd
//! one in the high nibble. Bits above the fourth lie in vectors of their own, behind.

use super::BLOCK;
use crate::simd::{LANES, Simd};

/// Bytes of a vector: four columns of sixteen rows.
const VECTOR: usize = 4 * LANES;
/// Bytes of the nibbles of a block.
const NIBBLES: usize = LANES * BLOCK / 2;

/// How the codes of a block are stored.
pub(crate) trait Codes {
    /// Bytes of a block.
    const BYTES: usize;
    /// The greatest code.
    const MOST: u8;
    /// Whether codes are signed numbers plus 128.
    const BIASED: bool = Self::MOST > 127;
    /// Groups `2z` and `2z + 1` of a block.
    fn pair<S: Simd>(s: S, block: &[u8], z: usize) -> (S::B, S::B);
    /// Writes one row's codes.
    fn put(block: &mut [u8], row: usize, codes: &[u8; BLOCK]);
}

/// Four bits.
pub(crate) struct Nibbles;
/// Five bits: nibbles, then one vector with a bit for each group.
pub(crate) struct Fives;
/// Six bits: nibbles, then two vectors with two bits for each of four groups.
pub(crate) struct Sixes;
/// Eight bits, a vector a group.
pub(crate) struct Bytes;

/// The `index`-th vector of a block.
#[inline(always)]
fn vector<S: Simd>(s: S, block: &[u8], index: usize) -> S::B {
    s.load_bytes(&block.as_chunks().0[index])
}

/// The nibbles of two groups.
#[inline(always)]
fn nibbles<S: Simd>(s: S, block: &[u8], z: usize) -> (S::B, S::B) {
    let both = vector(s, block, z);
    (s.and(both, 15), s.high_nibbles(both))
}

/// Writes the low four bits of one row.
fn put_nibbles(block: &mut [u8], row: usize, codes: &[u8; BLOCK]) {
    for (pair, vector) in codes.as_chunks::<8>().0.iter().zip(block.as_chunks_mut::<VECTOR>().0) {
        for j in 0..4 {
            vector[row * 4 + j] = (pair[j] & 15) | (pair[4 + j] << 4);
        }
    }
}

impl Codes for Nibbles {
    const BYTES: usize = NIBBLES;
    const MOST: u8 = 15;
    #[inline(always)]
    fn pair<S: Simd>(s: S, block: &[u8], z: usize) -> (S::B, S::B) {
        nibbles(s, block, z)
    }
    fn put(block: &mut [u8], row: usize, codes: &[u8; BLOCK]) {
        put_nibbles(block, row, codes);
    }
}

impl Codes for Fives {
    const BYTES: usize = NIBBLES + VECTOR;
    const MOST: u8 = 31;
    #[inline(always)]
    fn pair<S: Simd>(s: S, block: &[u8], z: usize) -> (S::B, S::B) {
        let (even, odd) = nibbles(s, block, z);
        let bits = vector(s, block, NIBBLES / VECTOR);
        // Group g has bit g, which goes to bit 4.
        let (high_even, high_odd) = match z {
            0 => (s.shl::<4>(bits), s.shl::<3>(bits)),
            1 => (s.shl::<2>(bits), s.shl::<1>(bits)),
            2 => (bits, s.shr::<1>(bits)),
            _ => (s.shr::<2>(bits), s.shr::<3>(bits)),
        };
        (s.or(even, s.and(high_even, 16)), s.or(odd, s.and(high_odd, 16)))
    }
    fn put(block: &mut [u8], row: usize, codes: &[u8; BLOCK]) {
        put_nibbles(block, row, codes);
        for (group, four) in codes.as_chunks::<4>().0.iter().enumerate() {
            for (j, code) in four.iter().enumerate() {
                block[NIBBLES + row * 4 + j] |= (code >> 4 & 1) << group;
            }
        }
    }
}

impl Codes for Sixes {
    const BYTES: usize = NIBBLES + 2 * VECTOR;
    const MOST: u8 = 63;
    #[inline(always)]
    fn pair<S: Simd>(s: S, block: &[u8], z: usize) -> (S::B, S::B) {
        let (even, odd) = nibbles(s, block, z);
        let bits = vector(s, block, NIBBLES / VECTOR + z / 2);
        // Group g has the bits from 2 (g % 4), which go to bits 4 and 5.
        let (high_even, high_odd) =
            if z.is_multiple_of(2) { (s.shl::<4>(bits), s.shl::<2>(bits)) } else { (bits, s.shr::<2>(bits)) };
        (s.or(even, s.and(high_even, 48)), s.or(odd, s.and(high_odd, 48)))
    }
    fn put(block: &mut [u8], row: usize, codes: &[u8; BLOCK]) {
        put_nibbles(block, row, codes);
        for (group, four) in codes.as_chunks::<4>().0.iter().enumerate() {
            for (j, code) in four.iter().enumerate() {
                block[NIBBLES + group / 4 * VECTOR + row * 4 + j] |= (code >> 4 & 3) << (2 * (group % 4));
            }
        }
    }
}

impl Codes for Bytes {
    const BYTES: usize = LANES * BLOCK;
    const MOST: u8 = 255;
    #[inline(always)]
    fn pair<S: Simd>(s: S, block: &[u8], z: usize) -> (S::B, S::B) {
        (vector(s, block, 2 * z), vector(s, block, 2 * z + 1))
    }
    fn put(block: &mut [u8], row: usize, codes: &[u8; BLOCK]) {
        for (four, vector) in codes.as_chunks::<4>().0.iter().zip(block.as_chunks_mut::<VECTOR>().0) {
            vector[row * 4..row * 4 + 4].copy_from_slice(four);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Portable;
    use proptest::prelude::*;

    fn round_trip<C: Codes>(rows: &[[u8; BLOCK]], bits: u32) {
        let mut block = vec![0; C::BYTES];
        let mask = ((1u16 << bits) - 1) as u8;
        for (row, codes) in rows.iter().enumerate() {
            C::put(&mut block, row, &codes.map(|code| code & mask));
        }
        for z in 0..4 {
            let (even, odd) = C::pair(Portable, &block, z);
            for (row, codes) in rows.iter().enumerate() {
                for j in 0..4 {
                    assert_eq!(even[row * 4 + j], codes[z * 8 + j] & mask);
                    assert_eq!(odd[row * 4 + j], codes[z * 8 + 4 + j] & mask);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 2 } else { 64 }, ..ProptestConfig::default() })]
        #[test]
        fn codes_come_back(rows in prop::collection::vec(prop::array::uniform32(any::<u8>()), LANES)) {
            round_trip::<Nibbles>(&rows, 4);
            round_trip::<Fives>(&rows, 5);
            round_trip::<Sixes>(&rows, 6);
            round_trip::<Bytes>(&rows, 8);
        }
    }
}
