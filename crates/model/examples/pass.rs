//! Times passes of m rows behind a cache of 128 positions.
//!
//! `cargo run --release -p foretoken-model --example pass -- model.gguf [threads]`

use foretoken_model::{LoadOptions, load};
use foretoken_runtime::decoder::{Decoder, SessionRows};
use std::path::PathBuf;
use std::time::Instant;

/// Positions held before each timed pass.
const CONTEXT: usize = 128;
/// Passes timed for each row count; their median is shown.
const PASSES: usize = 21;

#[allow(clippy::print_stdout, reason = "an example's output")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("the first argument is the model's path")?);
    let threads = arguments.next().map(|count| count.parse()).transpose()?;
    let options = LoadOptions { threads, ..LoadOptions::default() };
    let start = Instant::now();
    let mut decoder = load(&path, &options, &mut |_| {})?.decoder;
    println!("loaded in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let slot = decoder.allocate(CONTEXT + 16)?;
    let tokens: Vec<u32> = (0..CONTEXT as u32 + 16).map(|i| 1000 + i * 37 % 900).collect();
    let start = Instant::now();
    decoder.forward(&[SessionRows { slot, tokens: &tokens[..CONTEXT], logits: 1 }])?;
    println!("prefill of {CONTEXT} rows: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    for m in [1, 2, 4, 5, 8, 16] {
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..PASSES {
            decoder.truncate(slot, CONTEXT);
            let start = Instant::now();
            decoder.forward(&[SessionRows { slot, tokens: &tokens[CONTEXT..CONTEXT + m], logits: m }])?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        println!("{m:>2} rows: {:.2} ms, at best {:.2} ms", times[PASSES / 2], times[0]);
    }
    Ok(())
}
