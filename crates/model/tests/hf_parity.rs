//! `safetensors` models against logits that Hugging Face `transformers` computed from the same files.
//!
//! See `data/make_tiny.py` for how they were made.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells its numbers"
)]

mod common;

use common::{decoder, host_row, tiny_model};
use foretoken_model::{Engine, LoadOptions};
use foretoken_runtime::decoder::{Decoder, SessionRows};
use serde_json::Value;

fn check(name: &str) {
    for engine in [Engine::Reference, Engine::Fused] {
        check_on(engine, name);
    }
}

fn check_on(engine: Engine, name: &str) {
    let folder = tiny_model(name);
    let record = std::fs::read(folder.join("expected.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let tokens: Vec<u32> = serde_json::from_value(record["tokens"].clone()).unwrap();
    let expected: Vec<Vec<f64>> = serde_json::from_value(record["logits"].clone()).unwrap();

    let mut decoder = decoder(&folder, &LoadOptions { engine, ..LoadOptions::default() });
    let slot = decoder.allocate(tokens.len()).unwrap();
    decoder.forward(&[SessionRows { slot, tokens: &tokens, logits: tokens.len() }]).unwrap();
    let vocab_size = decoder.shape().vocab_size;
    let scale = expected.iter().flatten().fold(0f64, |m, v| m.max(v.abs()));
    let mut largest = 0f64;
    for (position, want) in expected.iter().enumerate() {
        let got = host_row(&decoder, position);
        assert_eq!(got.len(), vocab_size);
        for (&g, &w) in got.iter().zip(want) {
            largest = largest.max((f64::from(g) - w).abs() / scale);
        }
    }
    println!("{name} on {engine:?}: largest difference {largest:.2e} of the largest logit {scale:.2}");
    assert!(largest <= 1e-5, "{name}: {largest:e}");
}

#[test]
fn grouped_heads_and_a_tied_head() {
    check("gqa-tied-f32");
}

#[test]
fn one_key_head_a_query_head_and_an_untied_head() {
    check("mha-untied-f32");
}

#[test]
fn a_head_size_that_is_not_hidden_over_heads_in_bf16() {
    check("headdim-untied-bf16");
}

#[test]
fn padded_logits_and_llama_3_rotary_scaling_in_f16() {
    check("padded-llama3-f16");
}

#[test]
fn biases_of_qwen2() {
    check("qwen2-tied-f32");
}

#[test]
fn head_norms_of_qwen3_in_bf16() {
    check("qwen3-untied-bf16");
}

#[test]
fn linear_rotary_scaling() {
    check("linear-rope-f32");
}
