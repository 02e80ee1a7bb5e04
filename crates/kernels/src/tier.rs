//! Which instructions a machine has, found at run time.

use crate::simd::{Kernel, Portable, Simd};
use std::fmt;

#[cfg(target_arch = "aarch64")]
use crate::simd::neon::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2::Avx2, avx512::Avx512};

/// A set of instructions that this machine has and the kernels are compiled for.
///
/// All tiers compute the same bits; they differ in speed only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier(Token);

/// Proofs that the instructions are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    #[cfg(target_arch = "x86_64")]
    Avx512Gfni(Avx512<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Avx512<false>),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(Avx2<true>),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2<false>),
    #[cfg(target_arch = "aarch64")]
    NeonDot(Neon),
    Portable(Portable),
}

impl Tier {
    /// The fastest tier of this machine.
    pub fn detect() -> Self {
        Self::available().next().unwrap_or(Self::portable())
    }

    /// Safe scalar code, slow and the same everywhere.
    pub fn portable() -> Self {
        Self(Token::Portable(Portable))
    }

    /// The tiers of this machine, fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let tokens = [
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(Token::Avx512Gfni),
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(Token::Avx512Vnni),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(Token::AvxVnni),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(Token::Avx2),
            #[cfg(target_arch = "aarch64")]
            Neon::detect().map(Token::NeonDot),
            Some(Token::Portable(Portable)),
        ];
        tokens.into_iter().flatten().map(Self)
    }

    /// The tier of that [`name`](Self::name), where the machine has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::available().find(|tier| tier.name() == name)
    }

    /// `avx512-gfni`, `avx512-vnni`, `avx-vnni`, `avx2`, `neon-dot` or `portable`.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Token::Avx512Gfni(_) => "avx512-gfni",
            #[cfg(target_arch = "x86_64")]
            Token::Avx512Vnni(_) => "avx512-vnni",
            #[cfg(target_arch = "x86_64")]
            Token::AvxVnni(_) => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(_) => "avx2",
            #[cfg(target_arch = "aarch64")]
            Token::NeonDot(_) => "neon-dot",
            Token::Portable(_) => "portable",
        }
    }

    /// Rows that one load of weights serves.
    pub(crate) fn columns(self) -> usize {
        self.best().0
    }

    /// Queries that one load of keys or values serves.
    pub(crate) fn queries(self) -> usize {
        self.best().1
    }

    /// Both of them.
    fn best(self) -> (usize, usize) {
        /// Asks a tier.
        struct Best;
        impl Kernel for Best {
            type Output = (usize, usize);
            fn run<S: Simd>(self, _: S) -> Self::Output {
                (S::COLUMNS, S::QUERIES)
            }
        }
        self.run(Best)
    }

    /// Runs `kernel`, compiled for the tier.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Token::Avx512Gfni(s) => s.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512Vnni(s) => s.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::AvxVnni(s) => s.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(s) => s.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Token::NeonDot(s) => s.run(kernel),
            Token::Portable(s) => s.run(kernel),
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_the_portable_tier_and_names_find_tiers() {
        let tiers: Vec<Tier> = Tier::available().collect();
        assert_eq!(tiers.last(), Some(&Tier::portable()));
        assert_eq!(Tier::detect(), tiers[0]);
        for tier in tiers {
            assert_eq!(Tier::named(tier.name()), Some(tier));
        }
        assert_eq!(Tier::named("mmx"), None);
        // Where tests are run for the sake of a tier, as under emulation, they must have it.
        if let Ok(wanted) = std::env::var("FORETOKEN_TEST_TIER") {
            assert!(Tier::named(&wanted).is_some(), "this machine has no tier {wanted:?}");
        }
    }
}
