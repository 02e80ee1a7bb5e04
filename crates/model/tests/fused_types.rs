//! The fused engine on every tensor type: equal rows in every split, and near to the reference.
//!
//! The models are made here, in the shapes that super-blocks need, with random weights.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells its numbers"
)]

mod common;

use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use common::gguf::Gguf;
use common::{decoder, host_row, tiny_model};
use foretoken_model::{Engine, LoadOptions, ModelDecoder, Tier};
use foretoken_runtime::decoder::{Decoder, SessionRows, Slot};
use proptest::prelude::*;
use std::path::Path;
use tempfile::TempDir;

const HIDDEN: usize = 256;
const FEED_FORWARD: usize = 512;
const HEADS: (usize, usize) = (4, 2);
const TOKENS: usize = 64;
/// Tokens of a sequence that is split in all ways.
const LEN: usize = 64;

/// Types of the matrices: all of one, or of two as files of mixed quality have them.
const TYPES: [(GgmlDType, GgmlDType); 12] = [
    (GgmlDType::Q4_0, GgmlDType::Q4_0),
    (GgmlDType::Q4_1, GgmlDType::Q8_0),
    (GgmlDType::Q5_0, GgmlDType::Q5_0),
    (GgmlDType::Q5_1, GgmlDType::Q5_1),
    (GgmlDType::Q8_0, GgmlDType::Q8_0),
    (GgmlDType::Q4K, GgmlDType::Q6K),
    (GgmlDType::Q5K, GgmlDType::Q6K),
    (GgmlDType::Q6K, GgmlDType::Q6K),
    (GgmlDType::F16, GgmlDType::F16),
    (GgmlDType::BF16, GgmlDType::BF16),
    (GgmlDType::F32, GgmlDType::F32),
    (GgmlDType::Q4K, GgmlDType::F16),
];

/// A model file: `main` for most matrices, `fine` for values, down projections and the embedding.
fn write(folder: &TempDir, main: GgmlDType, fine: GgmlDType) -> std::path::PathBuf {
    let mut file = Gguf::from_tiny(&tiny_model("gqa-tied-f32"));
    for (key, value) in [
        ("llama.embedding_length", HIDDEN),
        ("llama.feed_forward_length", FEED_FORWARD),
        ("llama.attention.head_count", HEADS.0),
        ("llama.attention.head_count_kv", HEADS.1),
        ("llama.context_length", 1024),
    ] {
        file = file.set(key, Value::U32(value as u32));
    }
    let dim = HIDDEN / HEADS.0;
    let mut seed = 1u64;
    let mut tensor = |rows: usize, cols: usize, dtype: GgmlDType| {
        let values: Vec<f32> = (0..rows * cols)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((seed >> 40) as f32 / (1u32 << 23) as f32 - 1.0) / (cols as f32).sqrt()
            })
            .collect();
        let tensor = Tensor::from_vec(values, (rows, cols), &Device::Cpu).unwrap();
        QTensor::quantize(&tensor, dtype).unwrap()
    };
    file.tensors.clear();
    let ones = |n: usize| {
        let ones = Tensor::ones(n, candle_core::DType::F32, &Device::Cpu).unwrap();
        QTensor::quantize(&ones, GgmlDType::F32).unwrap()
    };
    file.tensors.insert("token_embd.weight".to_owned(), tensor(TOKENS, HIDDEN, fine));
    file.tensors.insert("output_norm.weight".to_owned(), ones(HIDDEN));
    for layer in 0..2 {
        let mut put = |name: &str, tensor: QTensor| {
            file.tensors.insert(format!("blk.{layer}.{name}.weight"), tensor);
        };
        put("attn_norm", ones(HIDDEN));
        put("ffn_norm", ones(HIDDEN));
        put("attn_q", tensor(HIDDEN, HIDDEN, main));
        put("attn_k", tensor(HEADS.1 * dim, HIDDEN, main));
        put("attn_v", tensor(HEADS.1 * dim, HIDDEN, fine));
        put("attn_output", tensor(HIDDEN, HIDDEN, main));
        put("ffn_gate", tensor(FEED_FORWARD, HIDDEN, main));
        put("ffn_up", tensor(FEED_FORWARD, HIDDEN, main));
        put("ffn_down", tensor(HIDDEN, FEED_FORWARD, fine));
    }
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    path
}

fn load(path: &Path, threads: usize, tier: Option<Tier>) -> ModelDecoder {
    decoder(path, &LoadOptions { engine: Engine::Fused, threads: Some(threads), tier, ..Default::default() })
}

fn tokens(seed: u32) -> Vec<u32> {
    (0..LEN as u32).map(|i| (i * i * 7 + i * 13 + seed * 29) % TOKENS as u32).collect()
}

fn bits(decoder: &ModelDecoder, index: usize) -> Vec<u32> {
    host_row(decoder, index).iter().map(|v| v.to_bits()).collect()
}

/// Every row of a sequence fed in pieces; each pass is shared with rows of a neighbour.
fn rows(decoder: &mut ModelDecoder, tokens: &[u32], pieces: &[(usize, usize)]) -> Vec<Vec<u32>> {
    let slot = decoder.allocate(tokens.len()).unwrap();
    let neighbour = decoder.allocate(512).unwrap();
    let other: Vec<u32> = (0..512).map(|i| i * 5 % TOKENS as u32).collect();
    let (mut at, mut beside, mut all) = (0, 0, Vec::new());
    let mut pieces = pieces.iter().copied().chain(std::iter::repeat((LEN, 0)));
    while at < tokens.len() {
        let (take, shared) = pieces.next().unwrap();
        let take = take.min(tokens.len() - at);
        let mine = SessionRows { slot, tokens: &tokens[at..at + take], logits: take };
        let theirs =
            SessionRows { slot: neighbour, tokens: &other[beside..beside + shared], logits: shared.min(1) };
        if shared > 0 {
            decoder.forward(&[theirs, mine]).unwrap();
        } else {
            decoder.forward(&[mine]).unwrap();
        }
        all.extend((0..take).map(|i| bits(decoder, i + theirs.logits)));
        (at, beside) = (at + take, beside + shared);
    }
    release(decoder, &[slot, neighbour]);
    all
}

fn release(decoder: &mut ModelDecoder, slots: &[Slot]) {
    for &slot in slots {
        decoder.release(slot);
    }
}

#[test]
fn every_split_and_any_neighbour_gives_equal_rows_in_every_type_and_tier() {
    for (main, fine) in TYPES {
        let folder = tempfile::tempdir().unwrap();
        let path = write(&folder, main, fine);
        let mut model = load(&path, 2, None);
        let tokens = tokens(1);
        let single = vec![(1, 0); LEN];
        let want = rows(&mut model, &tokens, &single);
        let pieces = prop::collection::vec((1usize..24, 0usize..7), 1..20);
        let config = ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let model = std::cell::RefCell::new(model);
        let result = runner.run(&pieces, |pieces| {
            prop_assert!(rows(&mut model.borrow_mut(), &tokens, &pieces) == want, "{main:?} {pieces:?}");
            Ok(())
        });
        assert!(result.is_ok(), "{main:?} with {fine:?}: {result:?}");
        for tier in Tier::available() {
            let mut other = load(&path, 3, Some(tier));
            assert!(rows(&mut other, &tokens, &[(40, 3)]) == want, "{main:?} with {fine:?} on {tier}");
        }
    }
}

#[test]
fn every_type_is_near_to_the_reference() {
    for (main, fine) in TYPES {
        let folder = tempfile::tempdir().unwrap();
        let path = write(&folder, main, fine);
        let mut fused = load(&path, 2, None);
        let mut exact = decoder(&path, &LoadOptions { engine: Engine::Reference, ..Default::default() });
        let tokens = tokens(2);
        for model in [&mut fused, &mut exact] {
            let slot = model.allocate(LEN).unwrap();
            model.forward(&[SessionRows { slot, tokens: &tokens, logits: LEN }]).unwrap();
        }
        let (mut error, mut size) = (0f64, 0f64);
        for row in 0..LEN {
            for (a, b) in host_row(&fused, row).iter().zip(host_row(&exact, row)) {
                error += f64::from(a - b).powi(2);
                size += f64::from(*b).powi(2);
            }
        }
        let relative = (error / size).sqrt();
        println!("{main:?} with {fine:?}: {relative:.1e} of the logits' size");
        let floats = [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16].contains(&main);
        assert!(relative < if floats { 1e-5 } else { 2e-2 }, "{main:?}: {relative:e}");
    }
}

#[test]
fn types_without_a_kernel_run_on_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, GgmlDType::Q3K, GgmlDType::Q6K);
    assert!(matches!(decoder(&path, &LoadOptions::default()), ModelDecoder::Reference(_)));
    let options = LoadOptions { engine: Engine::Fused, ..Default::default() };
    let refused = foretoken_model::load(&path, &options, &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("blk.0.attn_") && refused.contains("Q3K"), "{refused}");
}
