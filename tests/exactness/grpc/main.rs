//! Exactness, end to end: real services over real gRPC on models whose probabilities are known.
//!
//! * [`served`]: answers follow the enumerated probabilities, for every sampling parameter and drafter;
//! * [`tables`]: so do those drafted from a table of n-grams, whose q is its own;
//! * [`rules`]: the same test through the round loop passes the exact rule and catches the field's wrong ones;
//! * [`overlaps`]: drafted tokens are accepted as often as Σ min(p, q) says, position by position;
//! * [`seeds`]: equal seeds replay, different ones differ, absent ones are chosen and told;
//! * [`bias`]: the smallest requests that show a sampler that is off;
//! * [`parameters`]: so do answers under bias, penalties, masks and `n`, and mistakes about these are caught;
//! * [`rounds`]: whatever the drafter does, greedy text and the ledger's sums hold.
//!
//! [`clocked`] holds the models and counts of the statistical suites, [`services`] the cluster they are served from,
//! and [`looped`] the round loop alone, over any verifier. The token rule by itself is enumerated in the suite beside
//! this one; faults of transport and processes are tested elsewhere.

#![allow(clippy::unwrap_used, reason = "in a suite a failed unwrap is a failed test")]
#![allow(clippy::print_stdout, reason = "a statistical suite tells what it measured")]

mod bias;
mod clocked;
mod looped;
mod overlaps;
mod parameters;
mod rounds;
mod rules;
mod seeds;
mod served;
mod services;
mod tables;
