//! Scales of sixteen rows, for a block of 32 columns or for a super-block of 256.
//!
//! Numbers are kept as exact as the file has them: super-blocks have their half-precision factors and
//! small integers, multiplied in single precision when they are used.

use crate::simd::{LANES, Simd};

/// Bytes of sixteen halves.
const HALVES: usize = 2 * LANES;

/// How the scales of some blocks are stored.
pub(crate) trait Scales {
    /// Blocks of 32 columns that one unit of scales is for.
    const BLOCKS: usize;
    /// Bytes of a unit.
    const BYTES: usize;
    /// Scales of one block: one for all 32 columns, or one for each half.
    const HALVES: usize = 1;
    /// Whether values have a minimum added.
    const MIN: bool;
    /// What is read once a unit: factors of scales and minima.
    fn open<S: Simd>(s: S, unit: &[u8]) -> (S::F, S::F);
    /// The scale of a half of a block.
    fn scale<S: Simd>(s: S, unit: &[u8], opened: (S::F, S::F), block: usize, half: usize) -> S::F;
    /// The minimum of a block, 0 where there is none.
    fn minimum<S: Simd>(s: S, unit: &[u8], opened: (S::F, S::F), block: usize) -> S::F;
}

/// A scale a block.
pub(crate) struct Half;
/// A scale and a minimum a block.
pub(crate) struct HalfMin;
/// Factors, then a scale and a minimum of 6 bits a block, in bytes.
pub(crate) struct Super;
/// A factor, then a signed scale of 8 bits every half block.
pub(crate) struct SuperSigned;

/// The `index`-th sixteen halves.
#[inline(always)]
fn halves<S: Simd>(s: S, unit: &[u8], index: usize) -> S::F {
    s.load_f16(&unit.as_chunks().0[index])
}

/// The `index`-th sixteen bytes behind the first `skip`.
#[inline(always)]
fn bytes(unit: &[u8], skip: usize, index: usize) -> &[u8; LANES] {
    &unit.as_chunks().0[skip / LANES + index]
}

impl Scales for Half {
    const BLOCKS: usize = 1;
    const BYTES: usize = HALVES;
    const MIN: bool = false;
    #[inline(always)]
    fn open<S: Simd>(s: S, unit: &[u8]) -> (S::F, S::F) {
        (halves(s, unit, 0), s.splat(0.0))
    }
    #[inline(always)]
    fn scale<S: Simd>(_: S, _: &[u8], opened: (S::F, S::F), _: usize, _: usize) -> S::F {
        opened.0
    }
    #[inline(always)]
    fn minimum<S: Simd>(_: S, _: &[u8], opened: (S::F, S::F), _: usize) -> S::F {
        opened.1
    }
}

impl Scales for HalfMin {
    const BLOCKS: usize = 1;
    const BYTES: usize = 2 * HALVES;
    const MIN: bool = true;
    #[inline(always)]
    fn open<S: Simd>(s: S, unit: &[u8]) -> (S::F, S::F) {
        (halves(s, unit, 0), halves(s, unit, 1))
    }
    #[inline(always)]
    fn scale<S: Simd>(_: S, _: &[u8], opened: (S::F, S::F), _: usize, _: usize) -> S::F {
        opened.0
    }
    #[inline(always)]
    fn minimum<S: Simd>(_: S, _: &[u8], opened: (S::F, S::F), _: usize) -> S::F {
        opened.1
    }
}

impl Scales for Super {
    const BLOCKS: usize = 8;
    const BYTES: usize = 2 * HALVES + 16 * LANES;
    const MIN: bool = true;
    #[inline(always)]
    fn open<S: Simd>(s: S, unit: &[u8]) -> (S::F, S::F) {
        (halves(s, unit, 0), s.sub(s.splat(0.0), halves(s, unit, 1)))
    }
    #[inline(always)]
    fn scale<S: Simd>(s: S, unit: &[u8], opened: (S::F, S::F), block: usize, _: usize) -> S::F {
        s.mul(opened.0, s.load_u8(bytes(unit, 2 * HALVES, block)))
    }
    #[inline(always)]
    fn minimum<S: Simd>(s: S, unit: &[u8], opened: (S::F, S::F), block: usize) -> S::F {
        s.mul(opened.1, s.load_u8(bytes(unit, 2 * HALVES, 8 + block)))
    }
}

impl Scales for SuperSigned {
    const BLOCKS: usize = 8;
    const BYTES: usize = HALVES + 16 * LANES;
    const HALVES: usize = 2;
    const MIN: bool = false;
    #[inline(always)]
    fn open<S: Simd>(s: S, unit: &[u8]) -> (S::F, S::F) {
        (halves(s, unit, 0), s.splat(0.0))
    }
    #[inline(always)]
    fn scale<S: Simd>(s: S, unit: &[u8], opened: (S::F, S::F), block: usize, half: usize) -> S::F {
        s.mul(opened.0, s.load_i8(bytes(unit, HALVES, 2 * block + half)))
    }
    #[inline(always)]
    fn minimum<S: Simd>(_: S, _: &[u8], opened: (S::F, S::F), _: usize) -> S::F {
        opened.1
    }
}
