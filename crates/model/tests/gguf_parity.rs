//! The shipped model against candle's own decoder on the same file.
//!
//! Two comparisons. With the weights widened to `f32` both sides do the same arithmetic and must
//! agree closely. On the file as shipped candle also quantises activations, which we do not, so
//! only the loose bound of that noise holds.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells its numbers"
)]

mod common;

use candle_core::quantized::gguf_file::{self, Content};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use common::{argmax, decoder, host_row, real_model};
use foretoken_model::{Engine, LoadOptions, load};
use foretoken_runtime::decoder::{Decoder, SessionRows};
use std::fs::File;
use std::io::{BufReader, Cursor, Seek};

const STEPS: usize = 48;
/// Tokens fed before the greedy ones; any will do.
const PROMPT: [u32; 12] = [6403, 1980, 253, 655, 28, 665, 436, 253, 1165, 3413, 3365, 9];

/// Greedy steps of both; returns the largest logit difference and the steps whose argmax differ,
/// with the gap between candle's two best.
fn compare(mut stock: ModelWeights, engine: Engine) -> (f32, Vec<f32>) {
    let mut ours = decoder(&real_model(), &LoadOptions { engine, ..LoadOptions::default() });
    let slot = ours.allocate(PROMPT.len() + STEPS).unwrap();
    let (mut largest, mut gaps) = (0f32, Vec::new());
    let mut token = PROMPT[0];
    for step in 0..PROMPT.len() + STEPS {
        if let Some(&prompted) = PROMPT.get(step) {
            token = prompted;
        }
        let input = Tensor::new(&[[token]], &Device::Cpu).unwrap();
        let want = stock.forward(&input, step).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        ours.forward(&[SessionRows { slot, tokens: &[token], logits: 1 }]).unwrap();
        let got = host_row(&ours, 0);
        assert_eq!(got.len(), want.len());
        let difference = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        largest = largest.max(difference);
        let (best, next) = (argmax(got), argmax(&want));
        if best != next {
            gaps.push(want[next] - want[best]);
        }
        token = next as u32;
    }
    println!("largest logit difference {largest}, differing argmax with gaps {gaps:?}");
    (largest, gaps)
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL"]
fn the_shipped_file_agrees_within_candles_activation_noise() {
    let mut reader = BufReader::new(File::open(real_model()).unwrap());
    let content = Content::read(&mut reader).unwrap();
    let stock = ModelWeights::from_gguf(content, &mut reader, &Device::Cpu).unwrap();
    for engine in [Engine::Reference, Engine::Fused] {
        let (largest, gaps) = compare(stock.clone(), engine);
        assert!(largest < 2.0, "{largest}");
        assert!(gaps.iter().all(|&gap| gap < 0.5), "{gaps:?}");
    }
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL"]
fn the_same_weights_in_f32_agree_closely() {
    let mut reader = BufReader::new(File::open(real_model()).unwrap());
    let content = Content::read(&mut reader).unwrap();
    let widen = |name: &String| -> QTensor {
        let tensor =
            content.tensor(&mut BufReader::new(File::open(real_model()).unwrap()), name, &Device::Cpu);
        let tensor = tensor.unwrap().dequantize(&Device::Cpu).unwrap();
        QTensor::quantize(&tensor, GgmlDType::F32).unwrap()
    };
    let tensors: Vec<(&str, QTensor)> =
        content.tensor_infos.keys().map(|name| (name.as_str(), widen(name))).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
    let keep = |key: &str| key.starts_with("llama.") || key == "general.architecture";
    let metadata: Vec<_> =
        content.metadata.iter().filter(|(k, _)| keep(k)).map(|(k, v)| (k.as_str(), v)).collect();
    let mut file = Cursor::new(Vec::new());
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
    file.rewind().unwrap();
    let content = Content::read(&mut file).unwrap();
    let stock = ModelWeights::from_gguf(content, &mut file, &Device::Cpu).unwrap();
    let (largest, gaps) = compare(stock, Engine::Reference);
    assert!(largest < 2e-3, "{largest}");
    assert!(gaps.iter().all(|&gap| gap < 4e-3), "{gaps:?}");
}

/// Prose, code and figures, so that the mean is over more than one kind of text.
const TEXT: &str = "The lighthouse keeper had counted ships for thirty years before he noticed that none of \
them ever came back. He wrote the names in a ledger with a brown cover, one line for each, and in the \
evening he read them aloud to the lamp. On the first of March a steamer called Esperance passed at four \
bells, low in the water, and her captain raised his cap. \u{201c}Fair weather to the cape,\u{201d} the \
keeper shouted, though nobody could have heard him over the surf.

fn fibonacci(n: u64) -> u64 {
    let (mut a, mut b) = (0, 1);
    for _ in 0..n {
        (a, b) = (b, a + b);
    }
    a
}

In 2019 the city of Lyon had 522,969 inhabitants, about 1.1 percent more than in the year before. Its \
metropolitan area is the second largest in France. Water boils at 100 degrees Celsius at sea level, but \
at the top of a mountain of 4,000 metres it boils at 86. To bake bread you need flour, water, salt and \
yeast: mix them, let the dough rest for two hours, fold it twice, and put it into a hot oven until the \
crust is dark. Why does the crust turn brown? Because sugars and proteins react with each other when \
they are heated, which also gives the bread most of its smell.";

/// Both quantise activations; ours must cost as little of the distribution as candle's does. The
/// roundings of the first positions are in all later ones, so a text is one sample of either's.
#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL"]
fn the_fused_engine_is_as_near_to_f32_arithmetic_as_candle() {
    let mut reader = BufReader::new(File::open(real_model()).unwrap());
    let content = Content::read(&mut reader).unwrap();
    let mut stock = ModelWeights::from_gguf(content, &mut reader, &Device::Cpu).unwrap();
    let options = |engine| LoadOptions { engine, ..LoadOptions::default() };
    let loaded = load(&real_model(), &options(Engine::Reference), &mut |_| {}).unwrap();
    let tokens = loaded.tokenizer.encode(TEXT, true).unwrap();
    let (mut exact, mut fused) = (loaded.decoder, decoder(&real_model(), &options(Engine::Fused)));
    for model in [&mut exact, &mut fused] {
        let slot = model.allocate(tokens.len()).unwrap();
        model.forward(&[SessionRows { slot, tokens: &tokens, logits: tokens.len() }]).unwrap();
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (position, token) in tokens.iter().enumerate() {
        let input = Tensor::new(&[[*token]], &Device::Cpu).unwrap();
        let stock = stock.forward(&input, position).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let want = host_row(&exact, position);
        ours.push(divergence(want, host_row(&fused, position)));
        theirs.push(divergence(want, &stock));
    }
    let count = tokens.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let differences: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a - b).collect();
    let squares: Vec<f64> = differences.iter().map(|d| (d - mean(&differences)).powi(2)).collect();
    let (difference, error) = (mean(&differences), (mean(&squares) / count).sqrt());
    let (ours, theirs) = (mean(&ours), mean(&theirs));
    println!(
        "mean KL to f32 over {count} positions: fused {ours:.2e}, candle {theirs:.2e}, \
         difference {difference:.1e} ± {error:.1e}"
    );
    assert!(ours <= 1.25 * theirs, "{difference} ± {error}");
}

/// KL(p‖q) of two rows of logits.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let normed = |row: &[f32]| {
        let sum: f64 = row.iter().map(|&v| f64::from(v).exp()).sum();
        row.iter().map(|&v| f64::from(v) - sum.ln()).collect::<Vec<_>>()
    };
    normed(p).iter().zip(normed(q)).map(|(p, q)| p.exp() * (p - q)).sum()
}
