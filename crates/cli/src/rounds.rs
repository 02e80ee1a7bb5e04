//! How a round is drafted and judged, on the command line.

use clap::{Args, ValueEnum};
use foretoken_proto::v1;

use crate::sampling::number;

/// The rules by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rule {
    /// Token by token
    Token,
    /// The block as a whole: on average no fewer accepted
    Block,
    /// By noise that draft and target share: the text depends on the seed only, whoever drafts
    Gumbel,
}

impl Rule {
    /// Its name as the service says it; none of a later version.
    pub(crate) fn of_wire(rule: v1::Rule) -> Option<Self> {
        match rule {
            v1::Rule::Unspecified => None,
            v1::Rule::Token => Some(Self::Token),
            v1::Rule::Block => Some(Self::Block),
            v1::Rule::Gumbel => Some(Self::Gumbel),
        }
    }

    pub(crate) fn wire(self) -> v1::Rule {
        match self {
            Self::Token => v1::Rule::Token,
            Self::Block => v1::Rule::Block,
            Self::Gumbel => v1::Rule::Gumbel,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Block => "block",
            Self::Gumbel => "gumbel",
        }
    }
}

/// How much is drafted, how it is judged and where it stops.
#[derive(Args, Debug, Clone, Copy, Default)]
#[command(next_help_heading = "Drafting")]
pub(crate) struct RoundArgs {
    /// Tokens drafted per round; 0 is plain decoding [default: the orchestrator's]
    #[arg(long, value_name = "N", env = "FORETOKEN_DRAFT_LEN")]
    pub(crate) draft_len: Option<u32>,

    /// How drafted tokens are judged; every rule is exact [default: gumbel with a seed, else the orchestrator's]
    #[arg(long, value_name = "RULE", env = "FORETOKEN_RULE")]
    pub(crate) rule: Option<Rule>,

    /// Stop a draft in front of a token that it is less sure of than this; 0 never stops it [default: the orchestrator's]
    #[arg(long, value_name = "P", value_parser = confidence, env = "FORETOKEN_MIN_CONFIDENCE")]
    pub(crate) min_confidence: Option<f64>,
}

fn confidence(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..=1.0).contains(&value), "between 0 and 1")
}
