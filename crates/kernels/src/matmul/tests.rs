//! Linear layers against sums in double precision, and every way of computing a row against every other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{Gate, Linear, Next, Source, Team};
use crate::activations::Activations;
use crate::pack::{Format, Packed};
use crate::tier::Tier;
use half::f16;
use proptest::prelude::*;

/// Block bytes with any codes and tame scales.
fn file_bytes(format: Format, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let values = rows * cols;
    let mut unit = {
        let mut next = next;
        move || next() as f32 / (1u32 << 24) as f32 - 0.5
    };
    match format {
        Format::F32 => (0..values).flat_map(|_| unit().to_le_bytes()).collect(),
        Format::F16 => (0..values).flat_map(|_| f16::from_f32(unit()).to_le_bytes()).collect(),
        Format::Bf16 => (0..values).flat_map(|_| half::bf16::from_f32(unit()).to_le_bytes()).collect(),
        _ => {
            let size = format.block_bytes();
            let mut bytes: Vec<u8> =
                (0..values / format.block_values() * size).map(|_| next() as u8).collect();
            // Where each format has its halves.
            let halves: &[usize] = match format {
                Format::Q6K => &[208],
                Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
                _ => &[0, 2],
            };
            for block in bytes.chunks_exact_mut(size) {
                for &at in halves {
                    block[at..at + 2].copy_from_slice(&f16::from_f32(unit() * 0.1).to_le_bytes());
                }
            }
            bytes
        }
    }
}

fn packed(format: Format, rows: usize, cols: usize, seed: u64) -> Packed {
    Packed::new(format, rows, cols, &file_bytes(format, rows, cols, seed)).unwrap()
}

fn inputs(rows: usize, cols: usize, seed: u64) -> Vec<f32> {
    (0..rows * cols).map(|i| ((i as u64 * 2_654_435_761 + seed * 97) % 1013) as f32 / 400.0 - 1.2).collect()
}

/// The bits of all outputs, rows in passes of the given sizes.
fn outputs(team: &mut Team, layer: &Linear, input: &[f32], passes: &[usize], width: usize) -> Vec<u32> {
    let cols = layer.inputs();
    let (mut first, mut all) = (0, Vec::new());
    for &rows in passes {
        let mut activations = Activations::new(team.tier());
        activations.resize(rows, cols);
        activations.floats_mut().copy_from_slice(&input[first * cols..(first + rows) * cols]);
        let mut out = vec![0.25; rows * width];
        team.linear(&mut activations, Source::Floats, layer, &mut out, width, true, Next::Unknown);
        all.extend(out.iter().map(|v| v.to_bits()));
        first += rows;
    }
    all
}

/// What the activations stand for after they are quantised.
fn rounded(format: Format, row: &[f32]) -> Vec<f64> {
    if !format.is_quantised() {
        return row.iter().map(|&x| f64::from(x)).collect();
    }
    row.chunks(32)
        .flat_map(|block| {
            let largest = block.iter().fold(0f32, |m, x| m.max(x.abs()));
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            block.iter().map(move |x| f64::from((x * inverse).round_ties_even()) * f64::from(largest / 127.0))
        })
        .collect()
}

const CASES: u32 = if cfg!(miri) { 1 } else { 12 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn outputs_are_the_sums_and_equal_in_every_tier_split_and_thread_count(
        rows in 1usize..if cfg!(miri) { 3 } else { 20 },
        (first, second) in (1usize..if cfg!(miri) { 3 } else { 40 }, 1usize..if cfg!(miri) { 3 } else { 40 }),
        blocks in 1usize..if cfg!(miri) { 2 } else { 4 },
        odd in 0usize..31,
        cut in 0usize..8,
        seed in any::<u64>(),
    ) {
        for format in Format::ALL {
            let block = format.block_values();
            let cols = if block == 1 { 16 * blocks + odd } else { block * blocks };
            let bias: Vec<f32> = (0..first).map(|i| i as f32 * 0.01).collect();
            let layer = || Linear::new(vec![
                (packed(format, first, cols, seed), Some(bias.clone())),
                (packed(format, second, cols, seed ^ 77), None),
            ]);
            let layer = layer();
            let width = (first + second - cut.min(second - 1)).max(1);
            let input = inputs(rows, cols, seed % 1000);
            let mut portable = Team::new(Tier::portable(), 1).unwrap();
            let want = outputs(&mut portable, &layer, &input, &[rows], width);

            // The sums themselves.
            let matrices: Vec<&Packed> = layer.matrices().collect();
            let mut weights = vec![0.0; cols];
            for row in 0..rows {
                let x = rounded(format, &input[row * cols..(row + 1) * cols]);
                for output in 0..width {
                    let (matrix, r) = if output < first { (0, output) } else { (1, output - first) };
                    matrices[matrix].widen_row(r, &mut weights);
                    let products = weights.iter().zip(&x).map(|(&w, x)| f64::from(w) * x);
                    let size: f64 = products.clone().map(f64::abs).sum();
                    let added = 0.25 + if matrix == 0 { f64::from(bias[r]) } else { 0.0 };
                    let sum = products.sum::<f64>() + added;
                    let got = f64::from(f32::from_bits(want[row * width + output]));
                    prop_assert!((got - sum).abs() <= 1e-5 * (size + 1.0), "{format:?} {row} {output}: {got} {sum}");
                }
            }

            for tier in Tier::available() {
                for threads in [1, 3] {
                    let mut team = Team::new(tier, threads).unwrap();
                    let whole = outputs(&mut team, &layer, &input, &[rows], width);
                    prop_assert!(whole == want, "{format:?} {tier} {threads}");
                    let single = outputs(&mut team, &layer, &input, &vec![1; rows], width);
                    prop_assert!(single == want, "{format:?} {tier} {threads}, row by row");
                    let halves = outputs(&mut team, &layer, &input, &[rows / 2, rows - rows / 2], width);
                    prop_assert!(halves == want, "{format:?} {tier} {threads}, in halves");
                }
            }
        }
    }

    #[test]
    fn gated_layers_equal_their_parts_and_quantise_what_they_write(
        rows in 1usize..if cfg!(miri) { 3 } else { 12 },
        wide in 1usize..4,
        seed in any::<u64>(),
        act in prop::sample::select(vec![Gate::Silu, Gate::GeluTanh]),
    ) {
        for (format, next) in [(Format::Q4_1, true), (Format::F32, false), (Format::Q8_0, true)] {
            let (cols, width) = (64, if next { 32 * wide } else { 16 * wide + 5 });
            let layer = Linear::new(vec![
                (packed(format, width, cols, seed), None),
                (packed(format, width, cols, seed ^ 5), None),
            ]);
            let input = inputs(rows, cols, seed % 1000);
            let norm = vec![1.5f32; cols];
            let mut results = Vec::new();
            for tier in Tier::available() {
                for threads in [1, 2] {
                    let mut team = Team::new(tier, threads).unwrap();
                    let (mut normed, mut out) = (Activations::new(tier), Activations::new(tier));
                    normed.resize(rows, cols);
                    out.resize(rows, width);
                    let mut both = vec![0.0; rows * 2 * width];
                    let source = Source::Norm { rows: &input, weight: &norm, eps: 1e-5 };
                    team.gated(act, &mut normed, source, &layer, &mut both, &mut out, next, Next::Unknown);
                    for (both, out) in both.chunks_exact(2 * width).zip(out.floats().chunks_exact(width)) {
                        for ((&gate, &up), &got) in both.iter().zip(&both[width..]).zip(out) {
                            let want = through(act, f64::from(gate)) * f64::from(up);
                            prop_assert!((f64::from(got) - want).abs() <= 1e-5 * (1.0 + want.abs()), "{got} {want}");
                        }
                    }
                    if next {
                        // What a layer computes from the codes written is what it computes from the floats.
                        let down = Linear::new(vec![(packed(format, 16, width, seed ^ 9), None)]);
                        let mut ready = vec![0.0; rows * 16];
                        team.linear(&mut out, Source::Ready, &down, &mut ready, 16, false, Next::Gated(&layer));
                        let mut again = vec![0.0; rows * 16];
                        team.linear(&mut out, Source::Floats, &down, &mut again, 16, false, Next::Unknown);
                        prop_assert!(ready == again);
                    }
                    results.push(out.floats().iter().map(|v| v.to_bits()).collect::<Vec<_>>());
                }
            }
            prop_assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{format:?}: tiers or threads differ");
        }
    }
}

/// The gate's function as it is defined.
fn through(act: Gate, x: f64) -> f64 {
    match act {
        Gate::Silu => x / (1.0 + (-x).exp()),
        Gate::GeluTanh => {
            let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            x / 2.0 * (1.0 + z.tanh())
        }
    }
}

#[test]
fn normed_rows_are_added_alike_on_every_tier_and_thread() {
    let width = 37;
    let weight: Vec<f32> = (0..width).map(|i| 0.5 + i as f32 * 0.1).collect();
    let (rows, before) = (inputs(9, width, 3), inputs(9, width, 8));
    let mut results = Vec::new();
    for tier in Tier::available() {
        for (threads, step) in [(1, 9), (3, 9), (2, 1)] {
            let mut team = Team::new(tier, threads).unwrap();
            let mut out = before.clone();
            for (rows, out) in rows.chunks(step * width).zip(out.chunks_mut(step * width)) {
                team.add_normed(rows, &weight, 1e-5, out);
            }
            results.push(out);
        }
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    for (row, (got, before)) in rows.chunks(width).zip(results[0].chunks(width).zip(before.chunks(width))) {
        let square = row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / width as f64;
        let scale = 1.0 / (square + 1e-5).sqrt();
        for (i, &v) in row.iter().enumerate() {
            let want = f64::from(before[i]) + f64::from(v) * scale * f64::from(weight[i]);
            assert!((f64::from(got[i]) - want).abs() < 1e-5, "{} {want}", got[i]);
        }
    }
}

#[test]
fn rows_can_be_reordered_and_widened() {
    for format in Format::ALL {
        let rows = if cfg!(miri) { 18 } else { 35 };
        let cols = if format.is_quantised() { format.block_values() } else { 33 };
        let bytes = file_bytes(format, rows, cols, 3);
        let plain = Packed::new(format, rows, cols, &bytes).unwrap();
        let turned = Packed::reordered(format, rows, cols, &bytes, |row| rows - 1 - row).unwrap();
        let (mut a, mut b) = (vec![0.0; cols], vec![0.0; cols]);
        for row in 0..rows {
            plain.widen_row(row, &mut a);
            turned.widen_row(rows - 1 - row, &mut b);
            assert_eq!(a, b, "{format:?} {row}");
        }
        assert!(Packed::new(format, rows, cols, &bytes[1..]).is_err());
        if format.is_quantised() {
            let refused = Packed::new(format, rows, cols + 1, &bytes).unwrap_err().to_string();
            assert!(refused.contains("whole blocks"), "{refused}");
        }
    }
}
