//! Rotary position embedding, in both layouts in use.
//!
//! The two differ only in which components form a pair: GGUF files of the Llama family hold query
//! and key weights permuted so that neighbours pair up; `safetensors` files keep the halves apart.

use crate::config::ModelConfig;
use std::f64::consts::PI;

/// Which components of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// `(2j, 2j + 1)`: GGUF.
    Neighbours,
    /// `(j, j + d/2)`: `safetensors`.
    Halves,
}

/// How a model stretches its rotary frequencies beyond the context it was first trained on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scaling {
    /// Not at all.
    None,
    /// Every frequency divided by one factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3: low frequencies divided, high ones kept, a ramp between them.
    Llama3 {
        /// The divisor of low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low` count as low frequencies.
        low: f64,
        /// Wavelengths below `original_context / high` count as high frequencies.
        high: f64,
        /// Context length of the first training.
        original_context: f64,
    },
    /// `YaRN` (Peng et al. 2023, arXiv 2309.00071, equations 19 to 22): as Llama 3, with a ramp over pairs by how often they
    /// turn within the first context, and rotated components scaled.
    Yarn {
        /// The divisor of low frequencies.
        factor: f64,
        /// Pairs that turn more often than this in the first context keep their frequency.
        fast: f64,
        /// Pairs that turn less often than this have it divided.
        slow: f64,
        /// Context length of the first training.
        original_context: f64,
        /// What rotated components are multiplied by.
        magnitude: f64,
    },
    /// One divisor per pair, as GGUF's `rope_freqs.weight` has them.
    Divisors(Vec<f32>),
}

/// The model's rotary frequencies; turns a position into an [`Angles`] row.
#[derive(Debug, Clone)]
pub(crate) struct Rope {
    pairing: Pairing,
    frequencies: Vec<f32>,
    magnitude: f32,
}

impl Rope {
    /// Frequencies for heads whose first `dimensions` components are rotated.
    pub(crate) fn new(pairing: Pairing, dimensions: usize, theta: f64, scaling: &Scaling) -> Self {
        let frequencies = (0..dimensions / 2)
            .map(|j| {
                let frequency = theta.powf(-((2 * j) as f64) / dimensions as f64);
                let scaled = match scaling {
                    Scaling::None => frequency,
                    Scaling::Linear { factor } => frequency / factor,
                    Scaling::Llama3 { factor, low, high, original_context } => {
                        llama3(frequency, *factor, *low, *high, *original_context)
                    }
                    Scaling::Yarn { factor, fast, slow, original_context, .. } => {
                        let bound = |turns: f64| {
                            let turns = original_context / (turns * 2.0 * PI);
                            dimensions as f64 * turns.ln() / (2.0 * theta.ln())
                        };
                        let (first, last) = (bound(*fast).floor(), bound(*slow).ceil());
                        yarn(frequency, *factor, j, first.max(0.0), last.min(dimensions as f64 - 1.0))
                    }
                    Scaling::Divisors(divisors) => frequency / divisors.get(j).map_or(1.0, |&d| f64::from(d)),
                };
                scaled as f32
            })
            .collect();
        let magnitude = if let Scaling::Yarn { magnitude, .. } = scaling { *magnitude as f32 } else { 1.0 };
        Self { pairing, frequencies, magnitude }
    }

    /// Pairs of components that are rotated.
    pub(crate) fn pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// What cosines and sines are multiplied by.
    pub(crate) fn magnitude(&self) -> f32 {
        self.magnitude
    }

    /// The angle of each pair at one position; in single precision, as the models were trained.
    pub(crate) fn angles_at(&self, position: usize) -> impl Iterator<Item = f32> {
        self.frequencies.iter().map(move |frequency| position as f32 * frequency)
    }

    /// Writes the cosines and sines of one position; computed once per row of a pass, for all layers.
    pub(crate) fn angles(&self, position: usize, out: &mut Angles) {
        out.cos.clear();
        out.sin.clear();
        for &frequency in &self.frequencies {
            // In single precision, as the models were trained.
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            out.cos.push(cos * self.magnitude);
            out.sin.push(sin * self.magnitude);
        }
    }

    /// Rotates every head of one row in place.
    pub(crate) fn rotate(&self, row: &mut [f32], head_dim: usize, angles: &Angles) {
        let pairs = self.frequencies.len();
        for head in row.chunks_exact_mut(head_dim) {
            match self.pairing {
                Pairing::Neighbours => {
                    let (couples, _) = head.as_chunks_mut::<2>();
                    for (([a, b], &cos), &sin) in couples.iter_mut().zip(&angles.cos).zip(&angles.sin) {
                        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                    }
                }
                Pairing::Halves => {
                    let (first, second) = head.split_at_mut(pairs);
                    let couples = first.iter_mut().zip(second);
                    for (((a, b), &cos), &sin) in couples.zip(&angles.cos).zip(&angles.sin) {
                        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                    }
                }
            }
        }
    }
}

/// The frequencies of a model's layers, which are others in layers that see the nearest positions only.
#[derive(Debug, Clone)]
pub(crate) struct Ropes(Vec<Rope>);

impl Ropes {
    /// Those of a model.
    pub(crate) fn new(config: &ModelConfig) -> Self {
        let rope = |theta, scaling| Rope::new(config.pairing, config.rope_dimensions, theta, scaling);
        let local = config.local.iter().map(|local| rope(local.rope_theta, &Scaling::None));
        Self([rope(config.rope_theta, &config.rope_scaling)].into_iter().chain(local).collect())
    }

    /// One or two, each at its index by [`rope_of`].
    pub(crate) fn each(&self) -> &[Rope] {
        &self.0
    }
}

/// Which of a model's [`Ropes`] a layer turns by.
pub(crate) fn rope_of(config: &ModelConfig, layer: usize) -> usize {
    usize::from(config.window(layer).is_some())
}

/// Cosines and sines of one position, a pair of components each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Angles {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Angles {
    /// Cosines, one a pair.
    pub(crate) fn cos(&self) -> &[f32] {
        &self.cos
    }

    /// Sines, one a pair.
    pub(crate) fn sin(&self) -> &[f32] {
        &self.sin
    }
}

/// The frequency that Llama 3 uses in place of `frequency`.
fn llama3(frequency: f64, factor: f64, low: f64, high: f64, original_context: f64) -> f64 {
    let wavelength = 2.0 * PI / frequency;
    if wavelength > original_context / low {
        frequency / factor
    } else if wavelength < original_context / high {
        frequency
    } else {
        let ramp = (original_context / wavelength - low) / (high - low);
        (1.0 - ramp) * frequency / factor + ramp * frequency
    }
}

/// The frequency that `YaRN` uses in place of pair `pair`'s: kept up to the pair `first`, divided from `last` on.
fn yarn(frequency: f64, factor: f64, pair: usize, first: f64, last: f64) -> f64 {
    // Published code keeps a ramp of no length from dividing by zero so.
    let length = if first == last { 0.001 } else { last - first };
    let ramp = ((pair as f64 - first) / length).clamp(0.0, 1.0);
    frequency / factor * ramp + frequency * (1.0 - ramp)
}

/// What `YaRN` multiplies rotated components by, where a file does not say (its equation 22).
pub(crate) fn yarn_magnitude(factor: f64, strength: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * strength * factor.ln() + 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotated(rope: &Rope, position: usize, mut row: Vec<f32>, head_dim: usize) -> Vec<f32> {
        let mut angles = Angles::default();
        rope.angles(position, &mut angles);
        rope.rotate(&mut row, head_dim, &angles);
        row
    }

    #[test]
    fn the_two_pairings_are_one_rotation_of_permuted_components() {
        let neighbours = Rope::new(Pairing::Neighbours, 8, 1e4, &Scaling::None);
        let halves = Rope::new(Pairing::Halves, 8, 1e4, &Scaling::None);
        let head: Vec<f32> = (1..=8).map(|i| i as f32).collect();
        let permuted: Vec<f32> = (0..8).map(|i| head[if i % 2 == 0 { i / 2 } else { 4 + i / 2 }]).collect();
        let want = rotated(&halves, 13, head, 8);
        let got = rotated(&neighbours, 13, permuted, 8);
        for j in 0..4 {
            assert_eq!(got[2 * j].to_bits(), want[j].to_bits());
            assert_eq!(got[2 * j + 1].to_bits(), want[j + 4].to_bits());
        }
    }

    #[test]
    fn components_beyond_the_rotated_ones_stay() {
        for pairing in [Pairing::Neighbours, Pairing::Halves] {
            let rope = Rope::new(pairing, 4, 1e4, &Scaling::None);
            let row = rotated(&rope, 5, vec![1.0; 6], 6);
            assert_eq!(row[4..], [1.0, 1.0]);
            assert_ne!(row[..4], [1.0; 4]);
        }
    }

    #[test]
    fn llama3_keeps_fast_and_divides_slow_frequencies() {
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_context: 8192.0 };
        let plain = Rope::new(Pairing::Halves, 128, 5e5, &Scaling::None);
        let scaled = Rope::new(Pairing::Halves, 128, 5e5, &scaling);
        assert_eq!(plain.frequencies[0], scaled.frequencies[0]);
        let (slow, divided) = (plain.frequencies[63], scaled.frequencies[63]);
        assert!((slow / divided - 8.0).abs() < 1e-5, "{slow} {divided}");
        let between = plain.frequencies.iter().zip(&scaled.frequencies).filter(|(p, s)| {
            let ratio = **p / **s;
            ratio > 1.001 && ratio < 7.999
        });
        assert!(between.count() > 2);
    }

    #[test]
    fn yarn_keeps_fast_and_divides_slow_frequencies_and_scales() {
        let magnitude = yarn_magnitude(4.0, 1.0);
        assert!((magnitude - 1.138_629_4).abs() < 1e-6);
        let scaling =
            Scaling::Yarn { factor: 4.0, fast: 32.0, slow: 1.0, original_context: 32768.0, magnitude };
        let plain = Rope::new(Pairing::Halves, 128, 1e6, &Scaling::None);
        let scaled = Rope::new(Pairing::Halves, 128, 1e6, &scaling);
        assert_eq!(plain.frequencies[..23], scaled.frequencies[..23]);
        assert_ne!(plain.frequencies[24], scaled.frequencies[24]);
        let (slow, divided) = (plain.frequencies[40], scaled.frequencies[40]);
        assert!((slow / divided - 4.0).abs() < 1e-5, "{slow} {divided}");
        let row = rotated(&scaled, 0, vec![1.0; 128], 128);
        assert!(row.iter().all(|v| (f64::from(*v) - magnitude).abs() < 1e-6));
    }

    #[test]
    fn linear_scaling_is_a_slower_position() {
        let plain = Rope::new(Pairing::Halves, 8, 1e4, &Scaling::None);
        let linear = Rope::new(Pairing::Halves, 8, 1e4, &Scaling::Linear { factor: 4.0 });
        let row: Vec<f32> = (0..8).map(|i| i as f32).collect();
        let (a, b) = (rotated(&plain, 3, row.clone(), 8), rotated(&linear, 12, row, 8));
        for (x, y) in a.iter().zip(&b) {
            assert!((x - y).abs() < 1e-5);
        }
    }
}
