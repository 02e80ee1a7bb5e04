//! Which rule decides what becomes of drafted tokens.

use std::fmt;
use std::str::FromStr;

/// The rules there are. All are exact; they differ in what is accepted on average and in what an answer depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Token by token: [`threshold`](crate::threshold), [`repair`](crate::repair).
    #[default]
    Token,
    /// The block as a whole: [`block_rule`](crate::block_rule). Never accepts fewer than the token rule on average.
    Block,
    /// Noise shared by draft and target: [`gumbel`](crate::gumbel). The text depends on seed and target only.
    Gumbel,
}

/// A word that names no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rule; it must be token, block or gumbel")]
pub struct UnknownRule(String);

impl Rule {
    /// Its name, as [`FromStr`] reads it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Block => "block",
            Self::Gumbel => "gumbel",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        let all = [Self::Token, Self::Block, Self::Gumbel];
        all.into_iter().find(|rule| rule.name() == text).ok_or_else(|| UnknownRule(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for rule in [Rule::Token, Rule::Block, Rule::Gumbel] {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        let error = "Block".parse::<Rule>().unwrap_err();
        assert_eq!(error.to_string(), "\"Block\" is no rule; it must be token, block or gumbel");
    }
}
