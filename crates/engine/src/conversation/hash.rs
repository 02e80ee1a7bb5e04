//! The hash by which both ends know that they speak of the same text.

/// 64-bit FNV-1a over each token id as four little-endian bytes, chained token by token.
///
/// It guards against mistakes (a lost frame, a wrong rollback), not against a forger. `proto/README.md`
/// fixes the algorithm with test vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextHash(u64);

impl TextHash {
    /// The hash of no tokens: FNV's offset basis.
    pub const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);
    const PRIME: u64 = 0x0000_0100_0000_01b3;

    /// The hash of the text with `token` behind it.
    #[must_use]
    pub fn then(self, token: u32) -> Self {
        Self(
            token
                .to_le_bytes()
                .iter()
                .fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(Self::PRIME)),
        )
    }

    /// The hash of the text with all of `tokens` behind it.
    #[must_use]
    pub fn then_all(self, tokens: &[u32]) -> Self {
        tokens.iter().fold(self, |hash, &token| hash.then(token))
    }

    /// The number sent in a frame.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

impl From<u64> for TextHash {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors_of_the_protocol_page() {
        assert_eq!(TextHash::EMPTY.value(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(TextHash::EMPTY.then(0).value(), 0x4d25_767f_9dce_13f5);
        assert_eq!(TextHash::EMPTY.then_all(&[1, 2, 3]), TextHash::EMPTY.then(1).then(2).then(3));
        // FNV-1a of the ASCII bytes "abcd", a published vector.
        assert_eq!(TextHash::EMPTY.then(u32::from_le_bytes(*b"abcd")).value(), 0xfc17_9f83_ee07_24dd);
    }
}
