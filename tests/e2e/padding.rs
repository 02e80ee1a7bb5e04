//! One tokenizer and logits of different widths: padding is neither sampled nor drafted, and speculation goes on as ever.
//!
//! The tiny models of `foretoken-model` have the same 64 tokens; the logits of one are 72 wide. Here its padded rows are
//! made louder than all others, so that whoever looks at them takes them.

use std::path::{Path, PathBuf};

use foretoken_draft_worker::Source;
use foretoken_model::{LoadOptions, load};
use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{Answer, generate, ids_request};
use foretoken_testkit::cluster::Cluster;
use foretoken_worker::Host;
use tempfile::TempDir;

const TOKENS: usize = 64;
const WIDTH: usize = 72;
const HIDDEN: usize = 48;

fn tiny_model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/model/tests/data").join(name)
}

/// The padded model with padding that is louder than the other rows: of each two padded rows one is some token's row,
/// and one its opposite, a hundredfold.
fn loud_padding() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = tiny_model("padded-llama3-f16");
    for name in ["config.json", "tokenizer.json"] {
        std::fs::copy(from.join(name), folder.path().join(name)).unwrap();
    }
    let mut file = std::fs::read(from.join("model.safetensors")).unwrap();
    let end = 8 + u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..end]).unwrap();
    let embedding = &header["model.embed_tokens.weight"];
    assert_eq!(embedding["shape"], serde_json::json!([WIDTH, HIDDEN]));
    let start = end + embedding["data_offsets"][0].as_u64().unwrap() as usize;
    for row in TOKENS..WIDTH {
        let scale = if row % 2 == 0 { 100.0 } else { -100.0 };
        for column in 0..HIDDEN {
            let at = |row: usize| start + 2 * (row * HIDDEN + column);
            let source = at(row / 2);
            let value = half::f16::from_le_bytes([file[source], file[source + 1]]).to_f32() * scale;
            file[at(row)..][..2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
        }
    }
    std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
    folder
}

fn host(folder: &Path) -> Host {
    let options = LoadOptions { threads: Some(1), ..LoadOptions::default() };
    let loaded = load(folder, &options, &mut |_| {}).unwrap();
    Host::start(loaded.decoder, loaded.tokenizer, &RuntimeConfig::default()).unwrap()
}

async fn answers(target: &Path, draft: &Path, temperature: f64) -> Vec<Answer> {
    let cluster = Cluster::start(host(target), vec![Source::Model(host(draft))], Config::default()).await;
    let mut answers = Vec::new();
    for first in 0..12 {
        let request = v1::GenerateRequest {
            sampling: (temperature > 0.0).then(|| v1::Sampling { temperature, ..v1::Sampling::default() }),
            seed: Some(first),
            ..ids_request(&[5 + first as u32, 9], 56)
        };
        answers.push(generate(&cluster.orchestrator, request).await.unwrap());
    }
    answers
}

fn ids(answers: &[Answer]) -> Vec<Vec<u32>> {
    answers.iter().map(Answer::ids).collect()
}

/// vllm-project/vllm#7252, #5203, #10913, huggingface/transformers#45307.
#[tokio::test(flavor = "multi_thread")]
async fn models_of_one_tokenizer_and_other_widths_speculate_and_never_give_padding() {
    let (loud, quiet, narrow) = (loud_padding(), tiny_model("padded-llama3-f16"), tiny_model("gqa-tied-f32"));
    for (target, draft, same) in [
        (loud.path(), narrow.as_path(), quiet.as_path()),
        (narrow.as_path(), loud.path(), narrow.as_path()),
        (loud.path(), loud.path(), quiet.as_path()),
    ] {
        for temperature in [0.0, 1.0] {
            let answers = answers(target, draft, temperature).await;
            for answer in &answers {
                assert!(answer.ids().iter().all(|id| (*id as usize) < TOKENS), "{:?}", answer.ids());
                assert!(answer.finished.speculation_off.is_empty(), "{:?}", answer.finished);
            }
            assert!(answers.iter().any(|answer| answer.ledger().drafted > 0));
            if temperature == 0.0 {
                // Padding changes nothing: the same greedy text as with the padded rows as they were.
                assert_eq!(ids(&answers), ids(&self::answers(same, &narrow, 0.0).await));
            }
        }
    }
}
