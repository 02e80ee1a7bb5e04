//! Asking for weights ahead of their use.
//!
//! The stream of a thread's weights goes on behind its tiles of a segment. The first cache has few lines under way at a
//! time, too few to hide the memory's latency; the second has more. So lines are asked for into the second cache far
//! ahead, and from there into the first shortly before they are used.

use crate::pack::{Codes, Scales, Tile};
use crate::simd::Simd;

/// How far ahead lines are asked for into the second cache, bytes.
///
/// Measured on Emerald Rapids, weights of four bits from the memory, two threads: passes of one, five and eight rows take
/// 1.0, 0.87 and 0.91 of what they take where all is asked for into the first cache, 16 KiB ahead. From 24 to 48 KiB
/// passes are alike, and with 1 to 4 KiB for [`NEAR`].
pub(crate) const FAR: usize = 32 << 10;
/// The same for the first cache.
pub(crate) const NEAR: usize = 3 << 10;

/// What a thread's tiles of a segment ask for.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    /// Where the tiles end in their matrix, bytes.
    pub(super) end: usize,
    /// The weights that the thread uses next.
    pub(super) after: Option<&'a [u8]>,
    /// Whether another chunk of rows has asked for all before.
    pub(super) asked: bool,
}

impl Ahead<'_> {
    /// What a tile asks for, which begins at byte `start` of its matrix.
    #[inline(always)]
    pub(super) fn of(&self, tile: &[u8], start: usize) -> Later {
        let beyond = (start + FAR).checked_sub(self.end);
        match (beyond, self.after) {
            _ if self.asked => Later::Nothing,
            (Some(beyond), Some(after)) => {
                Later::There((after.as_ptr().addr() + beyond).wrapping_sub(tile.as_ptr().addr()))
            }
            _ => Later::Here,
        }
    }
}

/// What is asked for while a tile is used.
#[derive(Clone, Copy)]
pub(super) enum Later {
    /// What comes behind it in the same matrix.
    Here,
    /// What is so many bytes away, in another matrix.
    There(usize),
    /// Nothing.
    Nothing,
}

/// Bytes to what is asked for into the second cache and into the first, if it is.
#[derive(Clone, Copy)]
pub(super) struct Distances(Option<[usize; 2]>);

impl Distances {
    /// Asks for all lines that are as far from those of `used`.
    #[inline(always)]
    pub(super) fn ask<S: Simd>(self, s: S, used: &[u8]) {
        if let Some([far, near]) = self.0 {
            for line in (0..used.len()).step_by(64) {
                s.prefetch_far(used, far.wrapping_add(line));
                s.prefetch(used, near.wrapping_add(line));
            }
        }
    }
}

impl Later {
    /// From any place in a tile of floats.
    #[inline(always)]
    pub(super) fn distances(self) -> Distances {
        Distances(match self {
            Self::Here => Some([FAR, NEAR]),
            Self::There(bytes) => Some([bytes, NEAR]),
            Self::Nothing => None,
        })
    }

    /// From the units of a tile's codes and scales.
    #[inline(always)]
    pub(super) fn units<C: Codes, X: Scales>(self, tile: Tile<'_>) -> Units {
        let far = match self {
            Self::Here => Some(FAR),
            Self::There(bytes) => Some(bytes),
            Self::Nothing => None,
        };
        Units::new::<C, X>(tile, far, NEAR)
    }
}

/// What is asked for from each unit of a tile, found before the first of them is used.
#[derive(Clone, Copy)]
pub(super) struct Units {
    /// Into the second cache: so far ahead that the order of codes and scales within a tile does not matter.
    far: Option<usize>,
    /// Into the first cache, from codes and from scales: from the first unit and from the last one.
    near: [[usize; 2]; 2],
    /// The first unit from which the last one's distances lead to the right place.
    turn: usize,
}

impl Units {
    #[inline(always)]
    fn new<C: Codes, X: Scales>(tile: Tile<'_>, far: Option<usize>, ahead: usize) -> Self {
        let (count, units) = units::<C, X>(tile, ahead);
        let near = [distances::<C, X>(tile, 0, ahead), distances::<C, X>(tile, count - 1, ahead)];
        Self { far, near, turn: count - units % count }
    }

    /// From unit `at`: from its codes, and from its scales.
    #[inline(always)]
    pub(super) fn at(&self, at: usize) -> [Distances; 2] {
        let [codes, scales] = self.near[usize::from(at >= self.turn)];
        match self.far {
            Some(far) => [Distances(Some([far, codes])), Distances(Some([far, scales]))],
            None => [Distances(None); 2],
        }
    }
}

/// Units of a tile, and those that are about `ahead` bytes.
#[inline(always)]
fn units<C: Codes, X: Scales>(tile: Tile<'_>, ahead: usize) -> (usize, usize) {
    let codes = C::BYTES * X::BLOCKS;
    ((tile.codes.len() / codes).max(1), ahead / (codes + X::BYTES))
}

/// Bytes from unit `at` of a tile to the one that is `ahead` bytes behind it, in this tile or a later one: from codes to
/// codes and from scales to scales, which lie in two places.
#[inline(always)]
fn distances<C: Codes, X: Scales>(tile: Tile<'_>, at: usize, ahead: usize) -> [usize; 2] {
    let (count, units) = units::<C, X>(tile, ahead);
    let tiles = units / count + usize::from(at + units % count >= count);
    let units = units.wrapping_sub(tiles * count);
    let bytes = |unit| (tiles * tile.bytes).wrapping_add(units.wrapping_mul(unit));
    [bytes(C::BYTES * X::BLOCKS), bytes(X::BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{BLOCK, Format, HalfMin, Nibbles, Packed, Super};
    use proptest::prelude::*;

    fn lead_to_later_units<X: Scales>(format: Format, count: usize, ahead: usize) {
        let cols = count * X::BLOCKS * BLOCK;
        let bytes = vec![0; cols / format.block_values() * format.block_bytes()];
        let packed = Packed::new(format, 1, cols, &bytes).expect("a matrix of one row");
        let tile = packed.tile(0);
        let sizes = [Nibbles::BYTES * X::BLOCKS, X::BYTES];
        let (found, units) = units::<Nibbles, X>(tile, ahead);
        assert_eq!(found, count);
        assert!((units * (sizes[0] + sizes[1])..(units + 1) * (sizes[0] + sizes[1])).contains(&ahead));
        let asked = Units::new::<Nibbles, X>(tile, Some(FAR), ahead);
        for at in 0..count {
            let later = at + units;
            let want = sizes.map(|size| later / count * tile.bytes + later % count * size);
            let [codes, scales] = asked.at(at).map(|distances| distances.0.expect("something is asked for"));
            assert_eq!([codes[0], scales[0]], [FAR; 2]);
            assert_eq!([codes[1].wrapping_add(at * sizes[0]), scales[1].wrapping_add(at * sizes[1])], want);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 2 } else { 64 }, ..ProptestConfig::default() })]
        #[test]
        fn distances_lead_to_what_comes_later(count in 1usize..80, ahead in 0usize..40_000) {
            lead_to_later_units::<HalfMin>(Format::Q4_1, count, ahead);
            lead_to_later_units::<Super>(Format::Q4K, count, ahead);
        }
    }

    #[test]
    fn the_stream_goes_on_in_the_next_matrix() {
        let (matrix, next) = (vec![0u8; 64 << 10], vec![0u8; 64 << 10]);
        let mut ahead = Ahead { end: matrix.len(), after: Some(&next), asked: false };
        assert!(matches!(ahead.of(&matrix, 0), Later::Here));
        let start = matrix.len() - (8 << 10);
        let Later::There(bytes) = ahead.of(&matrix[start..], start) else { panic!("it is in the next one") };
        let from = matrix[start..].as_ptr().addr();
        assert_eq!(from.wrapping_add(bytes), next[FAR - (8 << 10)..].as_ptr().addr());
        ahead.asked = true;
        assert!(matches!(ahead.of(&matrix, 0), Later::Nothing));
    }
}
