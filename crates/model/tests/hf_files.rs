//! Hugging Face folders that are incomplete, damaged or not what they claim.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells its numbers"
)]

mod common;

use common::{decoder, host_row, tiny_model};
use foretoken_model::{LoadOptions, load};
use foretoken_runtime::decoder::{Decoder, SessionRows};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A copy of a tiny model to damage.
fn copy() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(tiny_model("gqa-tied-f32").join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn refusal(folder: &Path) -> String {
    let loaded = load(folder, &LoadOptions::default(), &mut |_| {});
    loaded.expect_err("a faulty folder was loaded").to_string()
}

fn with_header(change: impl Fn(String) -> String) -> String {
    let folder = copy();
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let end = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header = change(String::from_utf8(bytes[8..end].to_vec()).unwrap());
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&bytes[end..]);
    fs::write(&path, file).unwrap();
    refusal(folder.path())
}

#[test]
fn each_missing_file_is_named() {
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let folder = copy();
        fs::remove_file(folder.path().join(name)).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains(name), "{message}");
    }
    let message = refusal(Path::new("/nonexistent/model"));
    assert!(message.contains("/nonexistent/model"), "{message}");
}

#[test]
fn damaged_headers_are_refused() {
    let header = |change: fn(String) -> String| with_header(change);
    let cases = [
        (header(|h| h.replacen("\"F32\"", "\"I32\"", 1)), "I32"),
        (header(|h| h.replacen("[48]", "[49]", 1)), "[49]"),
        (header(|h| h.replacen("[48]", "[18446744073709551615, 3]", 1)), "do not fit"),
        (header(|h| h.replacen("model.norm.weight", "model.nork.weight", 1)), "model.norm.weight is missing"),
        (header(|h| h[..h.len() / 2].to_owned()), "damaged"),
    ];
    for (message, what) in cases {
        assert!(message.contains(what), "{what}: {message}");
    }
}

#[test]
fn cut_weights_are_refused() {
    let whole = fs::read(tiny_model("gqa-tied-f32").join("model.safetensors")).unwrap();
    for length in [0, 7, 8, 500, whole.len() / 2, whole.len() - 4] {
        let folder = copy();
        fs::write(folder.path().join("model.safetensors"), &whole[..length]).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains("bytes"), "cut at {length}: {message}");
    }
    let folder = copy();
    let mut huge = whole;
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(folder.path().join("model.safetensors"), huge).unwrap();
    assert!(refusal(folder.path()).contains("header should be 18446744073709551615 bytes"));
}

#[test]
fn an_index_of_shards_is_followed_but_not_out_of_the_folder() {
    let folder = copy();
    let index = folder.path().join("model.safetensors.index.json");
    fs::rename(
        folder.path().join("model.safetensors"),
        folder.path().join("model-00001-of-00001.safetensors"),
    )
    .unwrap();
    fs::write(&index, r#"{"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}"#)
        .unwrap();
    let sharded = decoder(folder.path(), &LoadOptions::default());
    let single = decoder(&tiny_model("gqa-tied-f32"), &LoadOptions::default());
    assert_eq!(sharded.shape().fingerprint, single.shape().fingerprint);
    fs::write(&index, r#"{"weight_map": {"model.norm.weight": "../secret.safetensors"}}"#).unwrap();
    assert!(refusal(folder.path()).contains("../secret.safetensors"));
}

/// The tiny model in two shards, their index as `change` leaves it.
fn sharded(change: impl FnOnce(&mut serde_json::Value)) -> TempDir {
    let folder = copy();
    let single = folder.path().join("model.safetensors");
    let tensors = candle_core::safetensors::load(&single, &candle_core::Device::Cpu).unwrap();
    fs::remove_file(single).unwrap();
    let mut index = serde_json::json!({"metadata": {"total_size": 0}, "weight_map": {}});
    let mut shards = [std::collections::HashMap::new(), std::collections::HashMap::new()];
    for (name, tensor) in tensors {
        let shard = usize::from(name.contains(".layers.1."));
        index["weight_map"][&name] = shard_name(shard).into();
        shards[shard].insert(name, tensor);
    }
    for (number, tensors) in shards.iter().enumerate() {
        candle_core::safetensors::save(tensors, folder.path().join(shard_name(number))).unwrap();
    }
    change(&mut index);
    fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    folder
}

fn shard_name(number: usize) -> String {
    format!("model-{:05}-of-00002.safetensors", number + 1)
}

#[test]
fn a_model_in_shards_is_the_model() {
    let tokens: Vec<u32> = (0..40).map(|i| (i * 11 + 3) % 64).collect();
    let folder = sharded(|_| {});
    let [whole, parts] = [tiny_model("gqa-tied-f32"), folder.path().to_owned()].map(|path| {
        let mut decoder = decoder(&path, &LoadOptions::default());
        let slot = decoder.allocate(tokens.len()).unwrap();
        decoder.forward(&[SessionRows { slot, tokens: &tokens, logits: tokens.len() }]).unwrap();
        (0..tokens.len()).flat_map(|i| host_row(&decoder, i).to_vec()).collect::<Vec<f32>>()
    });
    assert_eq!(whole, parts);
}

#[test]
fn shards_that_are_missing_doubled_or_mixed_up_are_named() {
    let norm = "model.layers.1.input_layernorm.weight";
    let folder = sharded(|_| {});
    fs::remove_file(folder.path().join(shard_name(1))).unwrap();
    let message = refusal(folder.path());
    assert!(message.contains(&shard_name(1)) && message.contains("not in the folder"), "{message}");

    let folder = sharded(|index| index["weight_map"][norm] = shard_name(0).into());
    let message = refusal(folder.path());
    assert!(message.contains(norm) && message.contains(&format!("{} holds it", shard_name(1))), "{message}");

    let folder = sharded(|index| index["weight_map"]["model.extra.weight"] = shard_name(0).into());
    let message = refusal(folder.path());
    assert!(message.contains("model.extra.weight") && message.contains("does not hold it"), "{message}");

    let folder = sharded(|_| {});
    fs::copy(folder.path().join(shard_name(1)), folder.path().join("again.safetensors")).unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    json["weight_map"][norm] = "again.safetensors".into();
    fs::write(&index, json.to_string()).unwrap();
    let message = refusal(folder.path());
    assert!(message.contains("again.safetensors too"), "{message}");

    // A shard that the index forgot.
    let folder = sharded(|index| {
        let map = index["weight_map"].as_object_mut().unwrap();
        map.retain(|_, file| *file == serde_json::json!(shard_name(0)));
    });
    let message = refusal(folder.path());
    assert!(message.contains("model.layers.1.") && message.contains("missing"), "{message}");
}

#[test]
fn a_tensor_nobody_uses_is_refused() {
    let message = with_header(|h| {
        h.replacen("{\"", "{\"extra\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"", 1)
    });
    assert!(message.contains("extra"), "{message}");
}

#[test]
fn options_out_of_range_are_refused() {
    for (options, name) in [
        (LoadOptions { threads: Some(0), ..LoadOptions::default() }, "threads"),
        (LoadOptions { max_context: Some(0), ..LoadOptions::default() }, "max_context"),
    ] {
        let error = load(&tiny_model("gqa-tied-f32"), &options, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}
