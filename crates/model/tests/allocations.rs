//! A pass of the fused engine allocates nothing, on none of its threads, once it has had its like before.
//!
//! The only test of its binary: the counters are the whole process's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::alloc::System;

use common::{decoder, tiny_model};
use foretoken_model::{Engine, LoadOptions};
use foretoken_runtime::decoder::{Decoder, SessionRows};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Rounds of which the first grow what they need.
const ROUNDS: usize = 6;
const WARM: usize = 2;

#[test]
fn a_pass_allocates_nothing_once_it_has_had_its_like() {
    for model in ["gqa-tied-f32", "qwen3-untied-bf16", "gguf-mixed/tiny.gguf"] {
        let options = LoadOptions { engine: Engine::Fused, threads: Some(2), ..LoadOptions::default() };
        let mut decoder = decoder(&tiny_model(model), &options);
        let slots = [decoder.allocate(60).unwrap(), decoder.allocate(60).unwrap()];
        let tokens: Vec<u32> = (0..8).collect();
        for round in 0..ROUNDS {
            let region = Region::new(COUNTED);
            // A block of one session beside a plain step of another, and what was rejected is cut off.
            let batch = [
                SessionRows { slot: slots[0], tokens: &tokens, logits: 8 },
                SessionRows { slot: slots[1], tokens: &tokens[..1], logits: 1 },
            ];
            decoder.forward(&batch).unwrap();
            decoder.truncate(slots[0], (round + 1) * 3);
            let seen = region.change();
            assert!(round > 0 || seen.allocations > 0, "nothing is counted");
            assert!(
                round < WARM || (seen.allocations, seen.reallocations, seen.deallocations) == (0, 0, 0),
                "{model}, round {round}: {seen:?}"
            );
        }
    }
}
