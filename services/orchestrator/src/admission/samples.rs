//! How many answers a request gets and what is told of their tokens.

use foretoken_engine::generate::Plan;
use foretoken_engine::{MAX_LOGPROBS, RequestKeys};
use foretoken_proto::convert::narrow;
use foretoken_proto::error::Problem;

use super::Admitted;
use crate::args::Config;

/// Samples of a request.
pub const MAX_SAMPLES: usize = 16;

pub(super) fn samples(given: Option<u32>, config: &Config) -> Result<usize, Problem> {
    let limit = MAX_SAMPLES.min(config.max_requests);
    match given.unwrap_or(1) as usize {
        n if (1..=limit).contains(&n) => Ok(n),
        n => Err(Problem::field("n", format!("n is {n}; it must be between 1 and {limit}"))),
    }
}

pub(super) fn logprobs(given: Option<u32>) -> Result<Option<usize>, Problem> {
    match given.map(|top| top as usize) {
        Some(top) if top > MAX_LOGPROBS => {
            Err(Problem::field("logprobs", format!("logprobs is {top}; it must be at most {MAX_LOGPROBS}")))
        }
        top => Ok(top),
    }
}

impl Admitted {
    /// One plan for each sample: sessions of its own, and coins of its own.
    #[must_use]
    pub fn plans(&self) -> Vec<Plan> {
        let plan = |sample: usize| Plan {
            session_id: format!("{}.{sample}", self.plan.session_id),
            keys: RequestKeys::new(self.started.seed, narrow(sample)),
            ..self.plan.clone()
        };
        (0..self.samples).map(plan).collect()
    }
}
