//! GGUF files: sound ones give the same model as `safetensors`, all others an error that names the fault.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells its numbers"
)]

mod common;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use common::gguf::Gguf;
use common::{decoder, host_row, tiny_model};
use foretoken_model::{LoadError, LoadOptions, Loaded, load};
use foretoken_runtime::decoder::{Decoder, SessionRows};
use std::path::Path;

fn tiny() -> Gguf {
    Gguf::from_tiny(&tiny_model("gqa-tied-f32"))
}

fn qwen(name: &str) -> Gguf {
    Gguf::from_tiny(&tiny_model(name))
}

fn load_bytes(bytes: &[u8]) -> Result<Loaded, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, bytes).unwrap();
    load(&path, &LoadOptions::default(), &mut |_| {})
}

fn refusal(bytes: &[u8]) -> String {
    load_bytes(bytes).expect_err("a faulty file was loaded").to_string()
}

/// Largest difference of two models' logits over one sequence.
fn difference(a: &Path, b: &Path) -> f32 {
    let tokens: Vec<u32> = (0..40).map(|i| (i * 11 + 3) % 64).collect();
    let [a, b] = [a, b].map(|path| {
        let mut decoder = decoder(path, &LoadOptions::default());
        let slot = decoder.allocate(tokens.len()).unwrap();
        decoder.forward(&[SessionRows { slot, tokens: &tokens, logits: tokens.len() }]).unwrap();
        (0..tokens.len()).flat_map(|i| host_row(&decoder, i).to_vec()).collect::<Vec<f32>>()
    });
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn both_formats_and_both_rotary_layouts_are_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    for name in ["gqa-tied-f32", "qwen2-tied-f32", "qwen3-untied-bf16", "gemma3-tied-bf16"] {
        std::fs::write(&path, Gguf::from_tiny(&tiny_model(name)).bytes()).unwrap();
        let difference = difference(&path, &tiny_model(name));
        assert!(difference < 1e-4, "{name}: {difference}");
    }
}

#[test]
fn yarn_is_one_scaling_in_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let file = Gguf::from_tiny(&tiny_model("yarn-rope-f16"));
    let yarn = |file: Gguf| {
        file.set("llama.rope.scaling.type", Value::String("yarn".to_owned()))
            .set("llama.rope.scaling.factor", Value::F32(4.0))
            .set("llama.rope.scaling.original_context_length", Value::U32(16))
            .set("llama.rope.scaling.yarn_beta_fast", Value::F32(4.0))
            .set("llama.rope.scaling.yarn_beta_slow", Value::F32(0.5))
    };
    std::fs::write(&path, yarn(file).bytes()).unwrap();
    assert!(difference(&path, &tiny_model("yarn-rope-f16")) < 1e-4);
    let mixed = yarn(tiny()).set("llama.rope.scaling.yarn_ext_factor", Value::F32(0.5));
    assert!(refusal(&mixed.bytes()).contains("yarn_ext_factor of 0.5"));
}

#[test]
fn divisors_of_one_factor_are_linear_scaling() {
    let folder = tempfile::tempdir().unwrap();
    let (by_tensor, by_key) = (folder.path().join("tensor.gguf"), folder.path().join("key.gguf"));
    let ones = tiny().with_tensor("rope_freqs.weight", &[6], GgmlDType::F32);
    std::fs::write(&by_tensor, ones.bytes()).unwrap();
    std::fs::write(&by_key, tiny().bytes()).unwrap();
    assert!(difference(&by_tensor, &by_key) == 0.0);
    let linear = tiny().set("llama.rope.scaling.factor", Value::F32(2.0));
    std::fs::write(&by_key, linear.bytes()).unwrap();
    assert!(difference(&by_tensor, &by_key) > 1e-2);
}

#[test]
fn what_would_be_computed_wrongly_is_refused_by_name() {
    let text = |text: &str| Value::String(text.to_owned());
    for (file, name) in [
        (tiny().set("general.architecture", text("qwen2moe")), "qwen2moe"),
        (tiny().set("general.architecture", text("qwen3moe")), "qwen3moe"),
        (qwen("qwen2-tied-f32").set("qwen2.expert_count", Value::U32(8)), "qwen2.expert_count"),
        (qwen("qwen2-tied-f32").set("qwen2.rope.scaling.type", text("yarn")), "yarn"),
        (qwen("qwen2-tied-f32").with_tensor("blk.0.attn_output.bias", &[48], GgmlDType::F32), "output.bias"),
        (qwen("qwen3-untied-bf16").with_tensor("blk.0.attn_q.bias", &[64], GgmlDType::F32), "attn_q.bias"),
        (tiny().set("general.architecture", text("mamba")), "mamba"),
        (tiny().set("llama.expert_count", Value::U32(8)), "expert"),
        (tiny().set("llama.rope.scaling.type", text("yarn")), "yarn"),
        (tiny().set("llama.attention.sliding_window", Value::U32(32)), "window of 32"),
        (tiny().set("llama.logit_scale", Value::F32(0.5)), "llama.logit_scale"),
        (tiny().set("llama.attention.causal", Value::Bool(false)), "llama.attention.causal"),
        (tiny().set("llama.attention.value_length", Value::U32(8)), "values of 8"),
        (tiny().set("split.count", Value::U16(2)), "split"),
        (tiny().with_tensor("blk.0.attn_q.bias", &[48], GgmlDType::F32), "blk.0.attn_q.bias"),
        (tiny().with_tensor("blk.1.attn_k_norm.weight", &[12], GgmlDType::F32), "attn_k_norm"),
        (tiny().with_tensor("blk.2.attn_norm.weight", &[48], GgmlDType::F32), "blk.2.attn_norm.weight"),
    ] {
        let message = refusal(&file.bytes());
        assert!(message.contains(name), "{name}: {message}");
    }
}

#[test]
fn storage_without_a_kernel_is_refused_by_name() {
    let whole = tiny().bytes();
    let name = b"output_norm.weight";
    // Behind the name: one dimension's count and size.
    let kind = whole.windows(name.len()).position(|w| w == name).unwrap() + name.len() + 4 + 8;
    for (number, called) in [(9u32, "Q8_1"), (23, "IQ4_XS"), (39, "MXFP4"), (77, "number 77")] {
        let mut file = whole.clone();
        file[kind..kind + 4].copy_from_slice(&number.to_le_bytes());
        let message = refusal(&file);
        assert!(message.contains("output_norm.weight is stored as") && message.contains(called), "{message}");
    }
}

#[test]
fn missing_and_misshapen_parts_are_named() {
    for (file, names) in [
        (tiny().without("blk.1.ffn_up.weight"), ["blk.1.ffn_up.weight", "missing"]),
        (tiny().without("token_embd.weight"), ["token_embd.weight", "missing"]),
        (qwen("qwen2-tied-f32").without("blk.1.attn_v.bias"), ["blk.1.attn_v.bias", "missing"]),
        (qwen("qwen3-untied-bf16").without("blk.0.attn_k_norm.weight"), ["blk.0.attn_k_norm", "missing"]),
        (
            qwen("qwen3-untied-bf16").with_tensor("blk.0.attn_q_norm.weight", &[64], GgmlDType::F32),
            ["blk.0.attn_q_norm.weight", "[64]"],
        ),
        (tiny().without("llama.block_count"), ["llama.block_count", "missing"]),
        (tiny().without("tokenizer.ggml.model"), ["tokenizer.ggml.model", "missing"]),
        (
            tiny().with_tensor("blk.0.attn_v.weight", &[24, 47], GgmlDType::F32),
            ["blk.0.attn_v.weight", "[24, 47]"],
        ),
        (
            tiny().with_tensor("output_norm.weight", &[1, 48], GgmlDType::F32),
            ["output_norm.weight", "[1, 48]"],
        ),
        (tiny().with_tensor("token_embd.weight", &[63, 48], GgmlDType::F32), ["64 tokens", "63 rows"]),
        (tiny().set("llama.embedding_length", Value::U32(0)), ["hidden size", "0"]),
        (tiny().set("llama.embedding_length", Value::I32(-4)), ["llama.embedding_length", "whole number"]),
        (tiny().set("llama.block_count", Value::U64(u64::MAX)), ["layer count", "18446744073709551615"]),
        (tiny().set("llama.attention.head_count", Value::U32(5)), ["llama.attention.head_count", "5"]),
        (
            tiny().set("llama.attention.head_count", Value::Array(vec![Value::U32(4)])),
            ["llama.attention.head_count", "whole number"],
        ),
        (tiny().set("llama.rope.dimension_count", Value::U32(13)), ["rotary dimension", "13"]),
        (tiny().set("general.alignment", Value::U32(0)), ["general.alignment", "0"]),
        (tiny().with_tensor("rope_freqs.weight", &[5], GgmlDType::F32), ["rotary scaling", "Divisors"]),
        (tiny().set("tokenizer.ggml.tokens", Value::U32(3)), ["tokenizer.ggml.tokens", "list of texts"]),
    ] {
        let message = refusal(&file.bytes());
        assert!(names.iter().all(|name| message.contains(name)), "{names:?}: {message}");
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = tiny().bytes();
    assert!(load_bytes(&whole).is_ok());
    let header = whole.windows(4).rposition(|w| w == b"outp").unwrap();
    let in_header = (0..header).step_by(97);
    let in_data = [header + 200, whole.len() / 2, whole.len() - 400];
    for length in in_header.chain(in_data) {
        let message = refusal(&whole[..length]);
        assert!(message.contains("left") || message.contains("cut short"), "cut at {length}: {message}");
    }
}

#[test]
fn absurd_numbers_in_the_header_cost_no_memory() {
    let whole = tiny().bytes();
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let huge = u64::MAX.to_le_bytes();
    for (file, what) in [
        (patched(0, b"GGML"), "GGUF"),
        (patched(4, &1u32.to_le_bytes()), "version 1"),
        (patched(4, &[0, 0, 0, 3]), "version 50331648"),
        (patched(8, &huge), "tensor table"),
        (patched(8, &(1u64 << 40).to_le_bytes()), "tensor table"),
        (patched(16, &huge), "metadata"),
        (patched(24, &huge), "metadata key"),
        (Vec::new(), "magic"),
    ] {
        let message = refusal(&file);
        assert!(message.contains(what), "{what}: {message}");
    }
}

#[test]
fn no_single_flipped_byte_panics() {
    let whole = tiny().bytes();
    let header = whole.windows(11).position(|w| w == b"token_embd.").unwrap() + 60;
    for at in (0..header).step_by(5) {
        let mut file = whole.clone();
        file[at] ^= 0xff;
        // Some flips leave a sound file, such as one in a token's text.
        let _ = load_bytes(&file);
    }
}
