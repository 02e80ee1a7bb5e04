//! Attention against a softmax in double precision, and every way of computing a row against every other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{Attention, HeadNorms, Span};
use crate::activations::Activations;
use crate::kv::{Cache, CacheShape, Precision};
use crate::matmul::{Source, Team};
use crate::pack::BLOCK;
use crate::rope::Angles;
use crate::tier::Tier;
use proptest::prelude::*;

/// Sizes of a made-up model, and its sessions' rows.
#[derive(Debug, Clone)]
struct Model {
    heads: usize,
    key_heads: usize,
    dim: usize,
    pairs: usize,
    norms: bool,
    precision: Precision,
    window: Option<usize>,
}

const LAYERS: usize = 2;

impl Model {
    fn width(&self) -> usize {
        (self.heads + 2 * self.key_heads) * self.dim
    }

    /// Queries, keys and values of a position of a session.
    fn row(&self, session: usize, position: usize) -> Vec<f32> {
        (0..self.width())
            .map(|i| {
                let n = (i * 7919 + position * 104_729 + session * 31_337) % 2003;
                n as f32 / 1000.0 - 1.0
            })
            .collect()
    }

    fn angle(&self, position: usize, pair: usize) -> f32 {
        position as f32 * 0.3f32.powi(pair as i32 % 7)
    }

    fn scale(&self) -> f32 {
        1.0 / (self.dim as f32).sqrt()
    }

    fn norms(&self) -> (Vec<f32>, Vec<f32>) {
        let weight = |base: f32| (0..self.dim).map(|i| base + i as f32 * 0.01).collect();
        (weight(0.9), weight(1.1))
    }
}

/// Feeds sessions in passes, each a list of (session, rows), and returns the bits of every row.
fn run(
    model: &Model,
    tier: Tier,
    threads: usize,
    lens: &[usize],
    passes: &[Vec<(usize, usize)>],
) -> Vec<Vec<Vec<u32>>> {
    let mut team = Team::new(tier, threads).unwrap();
    let mut cache = Cache::new(CacheShape {
        layers: LAYERS,
        heads: model.key_heads,
        dim: model.dim,
        precision: model.precision,
    });
    let slots: Vec<usize> = lens.iter().map(|&len| cache.allocate(len)).collect();
    let (query, key) = model.norms();
    let norms = model.norms.then_some(HeadNorms { query: &query, key: &key, eps: 1e-6 });
    let mut results = vec![Vec::new(); lens.len()];
    let mut out = Activations::new(tier);
    for pass in passes {
        let (mut spans, mut qkv, mut first) = (Vec::new(), Vec::new(), 0);
        let mut angles = Angles::new(model.pairs);
        for &(session, rows) in pass {
            let held = cache.size(slots[session]).unwrap().0;
            cache.reserve(slots[session], rows);
            for position in held..held + rows {
                qkv.extend(model.row(session, position));
                angles.push((0..model.pairs).map(|pair| model.angle(position, pair)), 1.0);
            }
            spans.push(Span { slot: slots[session], first, rows });
            first += rows;
        }
        let width = model.heads * model.dim;
        for layer in 0..LAYERS {
            out.resize(first, width);
            let (heads, scale, window) = (model.heads, model.scale(), model.window);
            let attention = Attention { layer, heads, scale, window, norms, codes: true };
            let source = team.attend(attention, &spans, &angles, &mut qkv.clone(), &mut cache, &mut out);
            let ready = matches!(source, Source::Ready);
            assert_eq!(ready, model.dim.is_multiple_of(BLOCK), "codes come where heads are whole blocks");
            assert!(
                !ready || codes(&mut out.clone(), false) == codes(&mut out, true),
                "codes are of the floats"
            );
        }
        for (&(session, rows), span) in pass.iter().zip(&spans) {
            for row in span.first..span.first + rows {
                let row = &out.floats()[row * width..(row + 1) * width];
                results[session].push(row.iter().map(|v| v.to_bits()).collect());
            }
            cache.advance(span.slot, rows);
        }
    }
    results
}

/// The blocks of all rows, as they are or quantised anew.
fn codes(rows: &mut Activations, as_they_are: bool) -> Vec<([i8; BLOCK], u32, [i32; 2])> {
    let shared = rows.share();
    let chunks: Vec<_> = shared.chunks().collect();
    // SAFETY: nobody else has them.
    unsafe {
        if !as_they_are {
            (0..shared.rows()).for_each(|row| shared.quantise(row, 0..shared.cols() / BLOCK));
        }
        chunks
            .iter()
            .flat_map(|&chunk| shared.blocks_of(chunk))
            .map(|b| (b.codes, b.scale.to_bits(), b.negated_sums))
            .collect()
    }
}

/// Normed and rotated, in double precision.
fn turned(model: &Model, position: usize, head: &[f32], weight: &[f32]) -> Vec<f64> {
    let mut head: Vec<f64> = head.iter().map(|&v| f64::from(v)).collect();
    if model.norms {
        let square = head.iter().map(|v| v * v).sum::<f64>() / head.len() as f64;
        let scale = 1.0 / (square + 1e-6).sqrt();
        for (v, &w) in head.iter_mut().zip(weight) {
            *v *= scale * f64::from(w);
        }
    }
    for pair in 0..model.pairs {
        let (sin, cos) = f64::from(model.angle(position, pair)).sin_cos();
        let (a, b) = (head[pair], head[pair + model.pairs]);
        head[pair] = a * cos - b * sin;
        head[pair + model.pairs] = a * sin + b * cos;
    }
    head
}

/// How far a row may be from the one in double precision: halves have 11 bits.
fn tolerance(model: &Model) -> f64 {
    match model.precision {
        Precision::F32 => 2e-5,
        Precision::F16 => 4e-3,
    }
}

/// The row of a position, in double precision.
fn reference(model: &Model, session: usize, position: usize) -> Vec<f64> {
    let dim = model.dim;
    let (query_norm, key_norm) = model.norms();
    let row = model.row(session, position);
    let mut out = Vec::new();
    for head in 0..model.heads {
        let query = turned(model, position, &row[head * dim..(head + 1) * dim], &query_norm);
        let key_head = head / (model.heads / model.key_heads);
        let key_at = (model.heads + key_head) * dim;
        let value_at = (model.heads + model.key_heads + key_head) * dim;
        let (mut sum, mut values) = (0.0, vec![0.0; dim]);
        for seen in super::first_visible(model.window, position + 1)..=position {
            let other = model.row(session, seen);
            let key = turned(model, seen, &other[key_at..key_at + dim], &key_norm);
            let score: f64 = query.iter().zip(&key).map(|(a, b)| a * b).sum();
            let weight = (score / (dim as f64).sqrt()).exp();
            sum += weight;
            for (value, &v) in values.iter_mut().zip(&other[value_at..value_at + dim]) {
                *value += weight * f64::from(v);
            }
        }
        out.extend(values.iter().map(|v| v / sum));
    }
    out
}

fn model() -> impl Strategy<Value = Model> {
    let dims = prop::sample::select(vec![12usize, 16, 24, 64, 80, 96, 128, 256]);
    let precisions = prop::sample::select(vec![Precision::F32, Precision::F16]);
    let windows = prop::option::of(1usize..80);
    (1usize..3, 1usize..6, dims, any::<bool>(), any::<bool>(), precisions, windows).prop_map(
        |(key_heads, group, dim, norms, partial, precision, window)| Model {
            heads: key_heads * group,
            key_heads,
            dim,
            pairs: if partial { dim / 4 } else { dim / 2 },
            norms,
            precision,
            window,
        },
    )
}

const CASES: u32 = if cfg!(miri) { 1 } else { 16 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_the_softmax_and_do_not_depend_on_split_neighbours_threads_or_tier(
        model in model(),
        first in prop::collection::vec(1usize..60, 1..8),
        second in prop::collection::vec(1usize..9, 1..8),
    ) {
        let (first, second) = if cfg!(miri) { (vec![2, 3], vec![1]) } else { (first, second) };
        let lens = [first.iter().sum::<usize>(), second.iter().sum::<usize>()];
        let alone = [vec![vec![(0, lens[0])]], vec![vec![(1, lens[1])]]].concat();
        let want = run(&model, Tier::portable(), 1, &lens, &alone);
        for (session, rows) in want.iter().enumerate() {
            for (position, row) in rows.iter().enumerate().step_by(11) {
                let exact = reference(&model, session, position);
                for (&got, want) in row.iter().zip(&exact) {
                    let got = f64::from(f32::from_bits(got));
                    prop_assert!((got - want).abs() < tolerance(&model), "{session} {position}: {got} {want}");
                }
            }
        }
        let mut shared: Vec<Vec<(usize, usize)>> = Vec::new();
        for i in 0..first.len().max(second.len()) {
            let one = first.get(i).map(|&rows| (0, rows));
            let other = second.get(i).map(|&rows| (1, rows));
            shared.push(other.into_iter().chain(one).collect());
        }
        for tier in Tier::available() {
            for threads in [1, 3] {
                prop_assert!(run(&model, tier, threads, &lens, &shared) == want, "{tier} {threads}");
            }
        }
    }
}

/// Contexts of several chunks, spread over threads or not; windows within a chunk, over several, and of one position.
#[test]
#[cfg_attr(miri, ignore = "too long for it")]
fn long_contexts_are_equal_in_every_split() {
    for precision in [Precision::F32, Precision::F16] {
        for window in [None, Some(1), Some(100), Some(300), Some(512)] {
            long_context(precision, window);
        }
    }
}

fn long_context(precision: Precision, window: Option<usize>) {
    let model = Model { heads: 3, key_heads: 1, dim: 16, pairs: 8, norms: false, precision, window };
    let len = 1100;
    let singles: Vec<Vec<(usize, usize)>> = (0..len).map(|_| vec![(0, 1)]).collect();
    let want = run(&model, Tier::detect(), 1, &[len], &singles);
    for position in [255, 256, 700, len - 1] {
        let exact = reference(&model, 0, position);
        for (&got, want) in want[0][position].iter().zip(&exact) {
            let got = f64::from(f32::from_bits(got));
            assert!((got - want).abs() < tolerance(&model), "{window:?} at {position}");
        }
    }
    for tier in Tier::available() {
        for threads in [1, 4] {
            let split = [vec![(0, 700)], vec![(0, 9)], vec![(0, 1)], vec![(0, 390)]];
            assert!(run(&model, tier, threads, &[len], &split) == want, "{tier} {threads} {window:?}");
        }
    }
}

/// As long as the longest context that models of this kind are used with.
#[test]
#[cfg_attr(miri, ignore = "too long for it")]
fn a_context_of_32k_is_the_softmax_however_it_is_split() {
    let len = 32 << 10;
    for precision in [Precision::F32, Precision::F16] {
        let model =
            Model { heads: 1, key_heads: 1, dim: 16, pairs: 8, norms: false, precision, window: None };
        let whole = run(&model, Tier::detect(), 2, &[len], &[vec![(0, len)]]);
        let split = [vec![(0, len / 2 + 5)], vec![(0, len / 2 - 14)], vec![(0, 8)], vec![(0, 1)]];
        let split = run(&model, Tier::detect(), 1, &[len], &split);
        assert!(whole[0][len - 9..] == split[0][len - 9..], "{precision}");
        let exact = reference(&model, 0, len - 1);
        for (&got, want) in whole[0][len - 1].iter().zip(&exact) {
            assert!((f64::from(f32::from_bits(got)) - want).abs() < tolerance(&model), "{precision}");
        }
    }
}
