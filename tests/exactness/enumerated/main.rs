//! The token rule and the block rule, enumerated: every draft, every outcome of the accept coins and every repair of a
//! round on 4-token models, so that the distribution of the text is known exactly instead of sampled.
//!
//! * [`right`]: what the project does, in all forms of q and p, has a total variation of at most 1e-12 from the
//!   target;
//! * [`wrong`]: each wrong rule found in the field has the error an independent program computes in rationals, to
//!   1e-9 (`../data/generate.py` makes `../data/wrong.txt` and the models);
//! * [`windows`]: the same for rounds without bonus, composed;
//! * [`sampled`]: the same code with real coins, Gumbel coupling among it, over whole texts, against the target's
//!   probabilities.
//!
//! The functions under test are called, not copied: [`rule`] holds the enumeration, which right and wrong rules share.
//! No services, frames or models of language here.

#![allow(clippy::unwrap_used, reason = "in a suite a failed unwrap is a failed test")]

mod blocks;
mod models;
mod outcomes;
mod right;
mod rule;
mod sampled;
mod windows;
mod wrong;
mod wrong_coins;
mod wrong_rules;
