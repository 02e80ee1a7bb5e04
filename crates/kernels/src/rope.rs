//! Rotary position embedding of one head.
//!
//! One layout only: component `j` is rotated with component `j + pairs`. Weights whose file pairs
//! neighbours have the rows of their heads put in this order when they are packed.

use crate::simd::{Simd, load_part, parts, store_part};

/// Cosines and sines of the rows of a pass.
#[derive(Debug, Clone, Default)]
pub struct Angles {
    pairs: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Angles {
    /// No rows, of `pairs` pairs of components each.
    pub fn new(pairs: usize) -> Self {
        Self { pairs, cos: Vec::new(), sin: Vec::new() }
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.cos.clear();
        self.sin.clear();
    }

    /// Adds a row by the angles of its pairs; `magnitude` is what rotated components are multiplied by.
    ///
    /// # Panics
    /// If there are not as many angles as pairs.
    pub fn push(&mut self, angles: impl Iterator<Item = f32>, magnitude: f32) {
        let before = self.cos.len();
        for angle in angles {
            let (sin, cos) = angle.sin_cos();
            self.cos.push(cos * magnitude);
            self.sin.push(sin * magnitude);
        }
        assert_eq!(self.cos.len() - before, self.pairs, "an angle a pair");
    }

    /// Rows held.
    pub fn rows(&self) -> usize {
        self.cos.len() / self.pairs.max(1)
    }

    /// Pairs of components that are rotated.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// Cosines and sines of a row.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> (&[f32], &[f32]) {
        let range = row * self.pairs..(row + 1) * self.pairs;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

/// Rotates the first `2 * cos.len()` components of a head.
#[inline(always)]
pub(crate) fn rotate<S: Simd>(s: S, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let pairs = cos.len();
    let (first, rest) = head.split_at_mut(pairs);
    for part in parts(pairs) {
        let (x, y) = (load_part(s, &first[part.clone()]), load_part(s, &rest[part.clone()]));
        let (cos, sin) = (load_part(s, &cos[part.clone()]), load_part(s, &sin[part.clone()]));
        store_part(s, s.sub(s.mul(x, cos), s.mul(y, sin)), &mut first[part.clone()]);
        store_part(s, s.add(s.mul(x, sin), s.mul(y, cos)), &mut rest[part]);
    }
}
