//! Models against logits that Hugging Face `transformers` computed from the same files.
//!
//! See `data/make_tiny.py` and `data/make_gguf.py` for how they were made.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells its numbers"
)]

mod common;

use common::{decoder, host_row, tiny_model};
use foretoken_model::{Engine, LoadOptions, load};
use foretoken_runtime::decoder::{Decoder, SessionRows};
use serde_json::Value;
use std::path::Path;

fn check(name: &str) {
    for engine in [Engine::Reference, Engine::Fused, Engine::Graph] {
        check_on(engine, name, &tiny_model(name), 1e-5);
    }
}

/// The largest difference from the logits expected of `name`, as a share of the largest of these, is below `limit`.
fn check_on(engine: Engine, name: &str, path: &Path, limit: f64) {
    let record = std::fs::read(tiny_model(name).join("expected.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let tokens: Vec<u32> = serde_json::from_value(record["tokens"].clone()).unwrap();
    let expected: Vec<Vec<f64>> = serde_json::from_value(record["logits"].clone()).unwrap();

    let mut decoder = decoder(path, &LoadOptions { engine, ..LoadOptions::default() });
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
    assert!(largest <= limit, "{name} on {engine:?}: {largest:e}");
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
fn yarn_rotary_scaling_in_f16() {
    check("yarn-rope-f16");
}

#[test]
fn windows_post_norms_and_the_gate_of_gemma3_in_bf16() {
    check("gemma3-tied-bf16");
}

#[test]
fn a_gguf_file_of_many_types_with_a_sentencepiece_vocabulary() {
    let path = tiny_model("gguf-mixed").join("tiny.gguf");
    check_on(Engine::Reference, "gguf-mixed", &path, 1e-5);
    // These round the inputs of quantised layers to 8 bits.
    for engine in [Engine::Fused, Engine::Graph] {
        check_on(engine, "gguf-mixed", &path, 0.1);
    }
    let loaded = load(&path, &LoadOptions::default(), &mut |_| {}).unwrap();
    let ids = loaded.tokenizer.encode("the thing\n\u{e9}", true).unwrap();
    let texts: Vec<&[u8]> = ids.iter().map(|id| loaded.tokenizer.token_bytes(*id).unwrap()).collect();
    assert_eq!(texts, [&b"<s>"[..], b" the", b" ", b"th", b"ing", b"\n", b"\xc3", b"\xa9"]);
}

#[test]
fn linear_rotary_scaling() {
    check("linear-rope-f32");
}
