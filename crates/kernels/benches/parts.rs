//! The parts of a pass in the shapes of a 135M Llama: linear layers by format and rows, attention by context.
//!
//! `cargo bench -p foretoken-kernels -- --quick`. The machine's stream of plain reads stands beside
//! them: no linear layer can be faster than its bytes.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use foretoken_kernels::{
    Activations, Angles, Attention, Cache, CacheShape, Format, Linear, Next, Packed, Pool, Precision, Source,
    Span, Stream, Team, Tier,
};
use std::num::NonZero;

const ROWS: [usize; 4] = [1, 4, 8, 16];

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// A matrix whose values matter to nobody; its scales are small enough to stay finite.
fn matrix(format: Format, rows: usize, cols: usize) -> Packed {
    let blocks = rows * cols / format.block_values();
    Packed::new(format, rows, cols, &vec![0x21; blocks * format.block_bytes()]).unwrap()
}

fn stream(c: &mut Criterion) {
    let stream = Stream::new(64 << 20);
    let mut team = Team::new(Tier::detect(), threads()).unwrap();
    let mut group = c.benchmark_group("stream");
    group.throughput(Throughput::Bytes(stream.bytes() as u64));
    group.bench_function("read", |b| b.iter(|| stream.read(&mut team, stream.bytes())));
    group.finish();
}

fn linear(c: &mut Criterion) {
    let (outputs, inputs) = (49_152, 768);
    for format in Format::ALL {
        let layer = Linear::new(vec![(matrix(format, outputs, inputs), None)]);
        let mut group = c.benchmark_group(format!("linear/{format:?}"));
        group.throughput(Throughput::Bytes(layer.bytes() as u64));
        for rows in ROWS {
            let mut team = Team::new(Tier::detect(), threads()).unwrap();
            let mut input = Activations::new(team.tier());
            input.resize(rows, inputs);
            input.floats_mut().iter_mut().enumerate().for_each(|(i, x)| *x = (i % 97) as f32 * 0.01);
            let mut out = vec![0.0; rows * outputs];
            group.bench_with_input(BenchmarkId::from_parameter(rows), &rows, |b, _| {
                b.iter(|| {
                    team.linear(&mut input, Source::Floats, &layer, &mut out, outputs, false, Next::Unknown)
                });
            });
        }
        group.finish();
    }
}

fn attention(c: &mut Criterion) {
    let (heads, shape) = (9, CacheShape { layers: 1, heads: 3, dim: 64, precision: Precision::F32 });
    for context in [128, 2048] {
        let mut group = c.benchmark_group(format!("attention/{context}"));
        for rows in ROWS {
            let mut team = Team::new(Tier::detect(), threads()).unwrap();
            let mut cache = Cache::new(shape);
            let slot = cache.allocate(context + rows);
            cache.reserve(slot, context + rows);
            cache.advance(slot, context);
            let mut angles = Angles::new(shape.dim / 2);
            (0..rows).for_each(|row| angles.push((0..shape.dim / 2).map(|pair| (row * pair) as f32), 1.0));
            let mut qkv = vec![0.5; rows * (heads + 2 * shape.heads) * shape.dim];
            let mut out = Activations::new(team.tier());
            out.resize(rows, heads * shape.dim);
            let spans = [Span { slot, first: 0, rows }];
            let attention =
                Attention { layer: 0, heads, scale: 0.125, window: None, norms: None, codes: true };
            group.bench_with_input(BenchmarkId::from_parameter(rows), &rows, |b, _| {
                b.iter(|| team.attend(attention, &spans, &angles, &mut qkv, &mut cache, &mut out));
            });
        }
        group.finish();
    }
}

fn waiting(c: &mut Criterion) {
    let mut pool = Pool::new(threads()).unwrap();
    c.bench_function("pool/empty job", |b| b.iter(|| pool.run(|_| {})));
}

criterion_group!(benches, stream, linear, attention, waiting);
criterion_main!(benches);
