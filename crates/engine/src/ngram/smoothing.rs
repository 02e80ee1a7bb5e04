//! How much of a context's counts is its own, and how much is left to the shorter context.
//!
//! A token that came c times of N has, with discount D and concentration θ,
//!
//! p(x) = (max(c − D, 0) + λ · p'(x)) / (N + θ), λ = N + θ − Σ max(c − D, 0),
//!
//! where p' is what the shorter context says: interpolated absolute discounting (Ney, Essen and Kneser 1994, section 4)
//! for θ = 0, the predictive rule of a Pitman-Yor process (Teh 2006, equation 6, one table a word) above. Below the
//! shortest context every token is equally likely, which is next to nothing and left out.
//!
//! The numbers were chosen on prompts of our own, none from a benchmark.

/// D and θ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Smoothing {
    discount: f64,
    concentration: f64,
}

/// Of a table's contexts.
pub(super) const TABLE: Smoothing = Smoothing { discount: 0.75, concentration: 0.0 };

/// Of the text's own contexts of `len` tokens: that one token stood before is weak evidence against a table.
pub(super) const fn text(len: usize) -> Smoothing {
    Smoothing { discount: 0.5, concentration: if len == 1 { 2.0 } else { 0.0 } }
}

/// One context: N + θ, λ and D.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    whole: f64,
    left: f64,
    discount: f64,
}

impl Smoothing {
    /// The context with these counts and `left_out` of tokens unknown; none if nothing was counted.
    pub(super) fn level(self, counts: impl Iterator<Item = f64>, left_out: f64) -> Option<Level> {
        let add = |(all, kept), count: f64| (all + count, kept + (count - self.discount).max(0.0));
        let (all, kept) = counts.fold((left_out, 0.0), add);
        let whole = all + self.concentration;
        (all > 0.0).then_some(Level { whole, left: whole - kept, discount: self.discount })
    }
}

impl Level {
    /// The probability of a token with this count, of which the shorter context says `shorter`.
    pub(super) fn prob(&self, count: f64, shorter: f64) -> f64 {
        ((count - self.discount).max(0.0) + self.left * shorter) / self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_discounted_goes_to_the_shorter_context() {
        let level =
            Smoothing { discount: 0.75, concentration: 1.0 }.level([3.0, 1.0, 0.5].into_iter(), 2.0).unwrap();
        // 7.5 in all, 2.25 and 0.25 and 0 kept.
        let of = |count, shorter: f64| level.prob(count, shorter) * 7.5;
        assert!((of(3.0, 0.0) - 2.25).abs() < 1e-12 && (of(0.5, 0.0)).abs() < 1e-12);
        assert!((of(1.0, 0.4) - 0.25 - 5.0 * 0.4).abs() < 1e-12 && (of(0.0, 0.4) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_context_never_seen_says_nothing() {
        assert_eq!(text(1).level([].into_iter(), 0.0), None);
        // One of which only left-out tokens are known leaves all to the shorter one.
        let level = TABLE.level([].into_iter(), 5.0).unwrap();
        assert_eq!(level.prob(0.0, 0.25), 0.25);
    }
}
