//! What the decoder promises beyond the numbers: shape, slots, and refusals that change nothing.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells its numbers"
)]

mod common;

use common::{decoder, host_row, tiny_model};
use foretoken_model::{Engine, LoadOptions, LoadStep, ModelDecoder, load};
use foretoken_runtime::decoder::{Decoder, DecoderError, SessionRows, Slot};

fn padded() -> ModelDecoder {
    decoder(
        &tiny_model("padded-llama3-f16"),
        &LoadOptions { max_context: Some(32), threads: Some(2), ..LoadOptions::default() },
    )
}

fn feed(decoder: &mut ModelDecoder, slot: Slot, tokens: &[u32], logits: usize) -> Result<(), DecoderError> {
    decoder.forward(&[SessionRows { slot, tokens, logits }])
}

#[test]
fn the_shape_tells_what_the_files_hold() {
    let mut stages = Vec::new();
    let folder = tiny_model("padded-llama3-f16");
    let loaded = load(&folder, &LoadOptions::default(), &mut |stage| stages.push(stage)).unwrap();
    let shape = loaded.decoder.shape();
    assert_eq!((shape.name.as_str(), shape.device.as_str()), ("padded-llama3-f16", "cpu"));
    assert_eq!((shape.vocab_size, shape.max_context), (64, 64));
    assert_eq!(loaded.tokenizer.vocab_size(), 64);
    // Value rows are filled up to sixteen numbers, and so are the outputs of a matrix.
    assert_eq!(shape.kv_bytes_per_token, 2 * 2 * (12 + 16) * 4);
    // Matrices stay in half precision, norms are widened.
    let layer = 48 * (48 + 32 + 32 + 48 + 2 * 80) + 80 * 48;
    assert_eq!(shape.weight_bytes, (80 * 48 + 2 * layer) * 2 + 5 * 48 * 4);
    let reference = LoadOptions { engine: Engine::Reference, ..LoadOptions::default() };
    let reference = decoder(&folder, &reference);
    assert_eq!(reference.shape().kv_bytes_per_token, 2 * 2 * 2 * 12 * 4);
    let layer = 48 * (48 + 24 + 24 + 48 + 3 * 80);
    assert_eq!(reference.shape().weight_bytes, (72 * 48 + 2 * layer) * 2 + 5 * 48 * 4);
    assert_eq!(reference.shape().fingerprint, shape.fingerprint);
    assert_eq!(shape.fingerprint.len(), 64);
    assert!(shape.fingerprint.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    let steps = [LoadStep::Fingerprint, LoadStep::Weights];
    for step in steps {
        let last = stages.iter().rfind(|stage| stage.step == step).unwrap();
        assert!(last.done == last.total && last.total > 0, "{last:?}");
    }
}

#[test]
fn a_weights_file_loads_as_its_folder_does() {
    let folder = tiny_model("gqa-tied-f32");
    let by_file = decoder(&folder.join("model.safetensors"), &LoadOptions::default());
    let by_folder = decoder(&folder, &LoadOptions::default());
    assert_eq!(by_file.shape().fingerprint, by_folder.shape().fingerprint);
}

#[test]
fn padded_rows_are_neither_given_nor_accepted() {
    let mut decoder = padded();
    let slot = decoder.allocate(8).unwrap();
    feed(&mut decoder, slot, &[63, 0], 2).unwrap();
    assert_eq!((host_row(&decoder, 0).len(), host_row(&decoder, 1).len()), (64, 64));
    let refused = feed(&mut decoder, slot, &[1, 64], 1);
    assert!(matches!(refused, Err(DecoderError::Token { token: 64, vocab_size: 64 })), "{refused:?}");
    assert_eq!(decoder.len(slot), 2);
}

#[test]
fn a_refused_batch_leaves_every_slot_as_it_was() {
    let mut decoder = padded();
    let (a, b) = (decoder.allocate(8).unwrap(), decoder.allocate(4).unwrap());
    feed(&mut decoder, a, &[1, 2], 0).unwrap();
    let full = SessionRows { slot: b, tokens: &[1, 2, 3, 4, 5], logits: 1 };
    let refused = decoder.forward(&[SessionRows { slot: a, tokens: &[3], logits: 1 }, full]);
    assert!(
        matches!(refused, Err(DecoderError::Capacity { slot: 1, len: 0, capacity: 4, rows: 5 })),
        "{refused:?}"
    );
    assert_eq!((decoder.len(a), decoder.len(b)), (2, 0));
    feed(&mut decoder, b, &[1, 2, 3, 4], 1).unwrap();
    assert_eq!(decoder.len(b), 4);
}

#[test]
fn batches_that_break_the_contract_are_refused() {
    let mut decoder = padded();
    let slot = decoder.allocate(8).unwrap();
    let row = SessionRows { slot, tokens: &[1], logits: 1 };
    let cases: [(&[SessionRows<'_>], &str); 4] = [
        (&[row, row], "twice"),
        (&[SessionRows { tokens: &[], logits: 0, ..row }], "0 rows"),
        (&[SessionRows { logits: 2, ..row }], "2 rows of logits"),
        (&[SessionRows { slot: Slot(7), ..row }], "not allocated"),
    ];
    for (batch, problem) in cases {
        let error = decoder.forward(batch).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        assert_eq!(decoder.len(slot), 0);
    }
    decoder.forward(&[]).unwrap();
}

#[test]
fn slots_are_reused_and_start_empty() {
    let mut decoder = padded();
    let (a, b) = (decoder.allocate(4).unwrap(), decoder.allocate(4).unwrap());
    feed(&mut decoder, a, &[1, 2, 3], 0).unwrap();
    decoder.release(a);
    assert_eq!(decoder.len(a), 0);
    let again = decoder.allocate(4).unwrap();
    assert_eq!((again, decoder.len(again)), (a, 0));
    assert_ne!(again, b);
    decoder.release(Slot(99));
    decoder.truncate(Slot(99), 0);
}

#[test]
fn capacity_is_bounded_by_the_context() {
    let mut decoder = padded();
    assert_eq!(decoder.shape().max_context, 32);
    assert!(decoder.allocate(32).is_ok());
    assert!(matches!(decoder.allocate(33), Err(DecoderError::Capacity { capacity: 32, rows: 33, .. })));
}
