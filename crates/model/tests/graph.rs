//! The graph engine, on the CPU device, against the reference engine.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells its numbers"
)]

mod common;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use common::gguf::Gguf;
use common::{argmax, decoder, host_row, real_model, tiny_model};
use foretoken_acceptance::{Distribution, Proposal, Sampling, repair, threshold};
use foretoken_model::{Device, Engine, LoadOptions, ModelDecoder, load};
use foretoken_runtime::decoder::{Decoder, DecoderError, RowAsk, SessionRows, Slot};
use std::path::Path;

const TINY: [&str; 9] = [
    "gqa-tied-f32",
    "mha-untied-f32",
    "headdim-untied-bf16",
    "padded-llama3-f16",
    "linear-rope-f32",
    "qwen2-tied-f32",
    "qwen3-untied-bf16",
    "yarn-rope-f16",
    "gemma3-tied-bf16",
];

fn graph(path: &Path) -> ModelDecoder {
    let decoder = decoder(path, &LoadOptions { engine: Engine::Graph, ..LoadOptions::default() });
    assert!(matches!(decoder, ModelDecoder::Graph(_)));
    decoder
}

fn reference(path: &Path) -> ModelDecoder {
    decoder(path, &LoadOptions { engine: Engine::Reference, ..LoadOptions::default() })
}

fn sequence(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * i * 7 + i * 11 + seed * 29 + 3) % 64).collect()
}

fn feed(decoder: &mut ModelDecoder, slot: Slot, tokens: &[u32], logits: usize) -> Vec<Vec<f32>> {
    decoder.forward(&[SessionRows { slot, tokens, logits }]).unwrap();
    (0..logits).map(|index| host_row(decoder, index).to_vec()).collect()
}

/// Every position's row, from one pass of a fresh session.
fn whole(decoder: &mut ModelDecoder, tokens: &[u32]) -> Vec<Vec<f32>> {
    let slot = decoder.allocate(tokens.len()).unwrap();
    let rows = feed(decoder, slot, tokens, tokens.len());
    decoder.release(slot);
    rows
}

/// The largest difference as a share of the largest value wanted.
fn difference(got: &[Vec<f32>], want: &[Vec<f32>]) -> f32 {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().flatten().fold(0f32, |m, v| m.max(v.abs()));
    let pairs = got.iter().zip(want).flat_map(|(g, w)| {
        assert_eq!(g.len(), w.len());
        g.iter().zip(w)
    });
    pairs.map(|(g, w)| (g - w).abs() / scale).fold(0.0, f32::max)
}

fn assert_close(got: &[Vec<f32>], want: &[Vec<f32>], limit: f32, what: &str) {
    let difference = difference(got, want);
    println!("{what}: {difference:.1e}");
    assert!(difference <= limit, "{what}: {difference:e}");
}

/// The root mean square of the difference as a share of that of the values wanted.
fn noise(got: &[Vec<f32>], want: &[Vec<f32>]) -> f32 {
    let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>();
    let pairs = got.iter().flatten().zip(want.iter().flatten());
    (squares(&mut pairs.map(|(g, w)| g - w)) / squares(&mut want.iter().flatten().copied())).sqrt()
}

#[test]
fn all_families_agree_with_the_reference() {
    for name in TINY {
        let path = tiny_model(name);
        let (mut graph, mut reference) = (graph(&path), reference(&path));
        assert_eq!(graph.shape().vocab_size, reference.shape().vocab_size);
        let tokens = sequence(1, 64);
        assert_close(&whole(&mut graph, &tokens), &whole(&mut reference, &tokens), 1e-5, name);
    }
}

#[test]
fn gguf_files_of_all_families_agree_with_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let tiny = |name: &str| Gguf::from_tiny(&tiny_model(name));
    for (file, what) in [
        (tiny("gqa-tied-f32"), "llama, neighbours rotated"),
        (tiny("gqa-tied-f32").set("llama.rope.dimension_count", Value::U32(8)), "llama, half rotated"),
        (tiny("qwen2-tied-f32"), "qwen2"),
        (tiny("gemma3-tied-bf16"), "gemma3"),
        (tiny("qwen3-untied-bf16").set("qwen3.rope.dimension_count", Value::U32(6)), "qwen3, half rotated"),
    ] {
        std::fs::write(&path, file.bytes()).unwrap();
        let tokens = sequence(2, 40);
        let want = whole(&mut reference(&path), &tokens);
        assert_close(&whole(&mut graph(&path), &tokens), &want, 1e-5, what);
    }
}

#[test]
fn long_prompts_are_attended_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("random.gguf");
    std::fs::write(&path, Gguf::random(GgmlDType::F32).bytes()).unwrap();
    let tokens = sequence(3, 200);
    let want = whole(&mut reference(&path), &tokens);
    let mut graph = graph(&path);
    assert_close(&whole(&mut graph, &tokens), &want, 1e-5, "in one pass");
    let slot = graph.allocate(200).unwrap();
    let mut rows = feed(&mut graph, slot, &tokens[..71], 71);
    rows.extend(feed(&mut graph, slot, &tokens[71..72], 1));
    rows.extend(feed(&mut graph, slot, &tokens[72..], 128));
    assert_close(&rows, &want, 1e-5, "in three passes");
}

#[test]
fn quantised_weights_agree_up_to_the_rounding_of_activations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("random.gguf");
    let tokens = sequence(4, 24);
    for dtype in [GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q5_0, GgmlDType::Q5_1, GgmlDType::Q8_0]
        .into_iter()
        .chain([GgmlDType::Q4K, GgmlDType::Q5K, GgmlDType::Q6K])
    {
        std::fs::write(&path, Gguf::random(dtype).bytes()).unwrap();
        let (mut graph, mut reference) = (graph(&path), reference(&path));
        assert_eq!(graph.shape().weight_bytes, reference.shape().weight_bytes);
        let noise = noise(&whole(&mut graph, &tokens), &whole(&mut reference, &tokens));
        println!("{dtype:?}: noise of {noise:.1e}");
        assert!(noise < 0.1, "{dtype:?}: {noise}");
    }
}

#[test]
fn ragged_passes_and_truncation_agree_with_whole_sequences() {
    for name in ["gqa-tied-f32", "qwen2-tied-f32", "qwen3-untied-bf16", "gemma3-tied-bf16"] {
        let mut graph = graph(&tiny_model(name));
        let sequences: Vec<_> = (0..3).map(|seed| sequence(seed, 30)).collect();
        let want: Vec<_> = sequences.iter().map(|tokens| whole(&mut graph, tokens)).collect();
        let slots: Vec<_> = (0..3).map(|_| graph.allocate(40).unwrap()).collect();
        let mut held = [0usize; 3];
        for takes in [[7, 1, 12], [1, 5, 1], [4, 0, 9], [9, 20, 1], [2, 1, 3]] {
            // Wrong tokens first, in the same passes of all sessions, and cut off again.
            let wrong = [63, 62, 61, 60];
            let misled: Vec<_> =
                slots.iter().map(|&slot| SessionRows { slot, tokens: &wrong, logits: 2 }).collect();
            graph.forward(&misled).unwrap();
            let mut batch = Vec::new();
            let mut rows = Vec::new();
            for (s, take) in takes.into_iter().enumerate() {
                graph.truncate(slots[s], held[s]);
                assert_eq!(graph.len(slots[s]), held[s]);
                if take > 0 {
                    let tokens = &sequences[s][held[s]..held[s] + take];
                    let logits = take.div_ceil(2);
                    batch.push(SessionRows { slot: slots[s], tokens, logits });
                    held[s] += take;
                    rows.extend((held[s] - logits..held[s]).map(|position| want[s][position].clone()));
                }
            }
            graph.forward(&batch).unwrap();
            let got: Vec<_> = (0..rows.len()).map(|index| host_row(&graph, index).to_vec()).collect();
            assert_close(&got, &rows, 1e-5, name);
        }
    }
}

#[test]
fn slots_keep_the_contract() {
    let mut graph = graph(&tiny_model("padded-llama3-f16"));
    let slot = graph.allocate(8).unwrap();
    assert!(feed(&mut graph, slot, &[1, 2], 0).is_empty());
    assert_eq!(feed(&mut graph, slot, &[63], 1)[0].len(), 64);
    let refused = graph.forward(&[SessionRows { slot, tokens: &[64], logits: 1 }]);
    assert!(matches!(refused, Err(DecoderError::Token { token: 64, vocab_size: 64 })), "{refused:?}");
    let refused = graph.forward(&[SessionRows { slot, tokens: &[1; 6], logits: 1 }]);
    assert!(
        matches!(refused, Err(DecoderError::Capacity { len: 3, capacity: 8, rows: 6, .. })),
        "{refused:?}"
    );
    assert_eq!(graph.len(slot), 3);
    assert!(graph.allocate(65).is_err());
    graph.forward(&[]).unwrap();
    graph.release(slot);
    assert_eq!((graph.len(slot), graph.allocate(0).unwrap()), (0, slot));
}

#[test]
fn rows_are_judged_where_they_lie_and_can_still_be_read() {
    let path = tiny_model("padded-llama3-f16");
    let (mut graph, mut reference) = (graph(&path), reference(&path));
    let sampling = Sampling::new(0.8, 0, 1.0, 0.0).unwrap();
    let asks: Vec<_> = (0..3u32)
        .map(|row| RowAsk {
            row: row as usize,
            drafted: (row < 2).then_some((row + 7, Proposal::OneHot(row + 7))),
            coin: 0.4,
        })
        .collect();
    assert!(graph.judge(&sampling, &asks).is_none(), "no pass has run");
    let slot = graph.allocate(8).unwrap();
    graph.forward(&[SessionRows { slot, tokens: &[1, 2, 3, 4], logits: 3 }]).unwrap();
    assert_eq!(graph.copied_to_host(), 0, "a pass alone brings nothing to the host");
    let judged = graph.judge(&sampling, &asks).unwrap();
    // A total, p at a token, and one block of weights with its sum.
    let answers = graph.copied_to_host();
    assert_eq!(answers, 3 * 8 * (1 + 1 + 1 + 512));
    for (ask, judged) in asks.iter().zip(judged) {
        let p = Distribution::from_logits(host_row(&graph, ask.row), &sampling).unwrap();
        match ask.drafted {
            Some((token, q)) => {
                assert!((judged.threshold - threshold(&p, q, token)).abs() < 1e-12);
                assert_eq!(judged.token, repair(&p, q, ask.coin));
            }
            None => assert_eq!(judged.token, p.draw(ask.coin)),
        }
    }
    assert_eq!(graph.copied_to_host() - answers, 3 * 64 * 4, "all rows come in one copy");
    let slot = reference.allocate(8).unwrap();
    reference.forward(&[SessionRows { slot, tokens: &[1, 2, 3, 4], logits: 3 }]).unwrap();
    assert_eq!(reference.copied_to_host(), 0);
    assert!(reference.judge(&sampling, &asks).is_none(), "rows in host memory are read");
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL"]
fn the_real_model_agrees_up_to_the_rounding_of_activations() {
    let path = real_model();
    let tokens: Vec<u32> = (0..48u32).map(|i| 1000 + i * 37 % 900).collect();
    let (got, want) = (whole(&mut graph(&path), &tokens), whole(&mut reference(&path), &tokens));
    let same = got.iter().zip(&want).filter(|(g, w)| argmax(g) == argmax(w)).count();
    let noise = noise(&got, &want);
    println!("noise of {noise:.1e}, {same} of {} likeliest tokens the same", tokens.len());
    assert!(noise < 0.05 && same * 10 >= tokens.len() * 8, "{noise} {same}");
}

#[test]
fn the_reference_runs_on_the_cpu_only() {
    let options =
        LoadOptions { device: Device::Cuda(0), engine: Engine::Reference, ..LoadOptions::default() };
    let error = load(&tiny_model("gqa-tied-f32"), &options, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("cuda:0") && error.contains("graph"), "{error}");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_device_that_is_not_built_is_refused_before_anything_is_read() {
    let options = LoadOptions { device: Device::Cuda(0), ..LoadOptions::default() };
    let error = load(Path::new("/nonexistent.gguf"), &options, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("cargo build --release --features cuda"), "{error}");
}
