//! What the model's tests share.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod gguf;

use foretoken_model::{LoadOptions, ModelDecoder, load};
use foretoken_runtime::decoder::{Decoder, Row};
use std::path::{Path, PathBuf};

/// The shipped model's file; a test that asks for it fails where it is not named.
pub(crate) fn real_model() -> PathBuf {
    let path = std::env::var_os("FORETOKEN_TEST_MODEL");
    PathBuf::from(path.expect("FORETOKEN_TEST_MODEL must name SmolLM2-135M-Instruct.Q4_1.gguf"))
}

/// A folder of the stored tiny models.
pub(crate) fn tiny_model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub(crate) fn decoder(path: &Path, options: &LoadOptions) -> ModelDecoder {
    load(path, options, &mut |_| {}).unwrap().decoder
}

pub(crate) fn host_row(decoder: &ModelDecoder, index: usize) -> &[f32] {
    match decoder.row(index) {
        Row::Host(row) => row,
        other => panic!("a CPU decoder gave {other:?}"),
    }
}

pub(crate) fn argmax(row: &[f32]) -> usize {
    let mut best = 0;
    for (i, v) in row.iter().enumerate() {
        if *v > row[best] {
            best = i;
        }
    }
    best
}
