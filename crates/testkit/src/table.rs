//! Models whose next-token probabilities are a known function of the text.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foretoken_runtime::decoder::{Decoder, DecoderError, ModelShape, Row, SessionRows, Slot};

/// Next-token probabilities for a text: `table(text)[id]`, summing to 1.
pub type Table = Arc<dyn Fn(&[u32]) -> Vec<f64> + Send + Sync>;

/// A [`Decoder`] whose logits are the logarithms of a [`Table`].
pub struct TableModel {
    shape: ModelShape,
    table: Table,
    slots: HashMap<Slot, (Vec<u32>, usize)>,
    next_slot: u32,
    logits: Vec<f32>,
    /// What a pass takes, and each of its rows.
    pace: (Duration, Duration),
}

impl std::fmt::Debug for TableModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableModel").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl TableModel {
    /// A model over `vocab_size` tokens.
    #[must_use]
    pub fn new(name: &str, vocab_size: usize, max_context: usize, table: Table) -> Self {
        let shape = ModelShape {
            name: name.into(),
            fingerprint: format!("table:{name}"),
            vocab_size,
            max_context,
            weight_bytes: 0,
            kv_bytes_per_token: 4,
            device: "cpu".into(),
        };
        Self {
            shape,
            table,
            slots: HashMap::new(),
            next_slot: 0,
            logits: Vec::new(),
            pace: Default::default(),
        }
    }

    /// The same with passes that take so long, and longer by `per_row` for each row.
    #[must_use]
    pub fn paced(self, pass: Duration, per_row: Duration) -> Self {
        Self { pace: (pass, per_row), ..self }
    }

    /// Whether its passes take a time of their own.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.pace != <(Duration, Duration)>::default()
    }

    /// The logits of one row, as the decoder hands them out.
    #[must_use]
    pub fn logits_of(probs: &[f64]) -> Vec<f32> {
        probs.iter().map(|&p| if p > 0.0 { p.ln() as f32 } else { f32::NEG_INFINITY }).collect()
    }

    fn slot(&self, slot: Slot) -> &(Vec<u32>, usize) {
        &self.slots[&slot]
    }
}

impl Decoder for TableModel {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, capacity: usize) -> Result<Slot, DecoderError> {
        let slot = Slot(self.next_slot);
        self.next_slot += 1;
        self.slots.insert(slot, (Vec::new(), capacity));
        Ok(slot)
    }

    fn len(&self, slot: Slot) -> usize {
        self.slot(slot).0.len()
    }

    fn truncate(&mut self, slot: Slot, len: usize) {
        if let Some((text, _)) = self.slots.get_mut(&slot) {
            text.truncate(len);
        }
    }

    fn release(&mut self, slot: Slot) {
        self.slots.remove(&slot);
    }

    fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
        for rows in batch {
            let (text, capacity) = self.slot(rows.slot);
            if text.len() + rows.tokens.len() > *capacity {
                return Err(DecoderError::Capacity {
                    slot: rows.slot.0,
                    len: text.len(),
                    capacity: *capacity,
                    rows: rows.tokens.len(),
                });
            }
            if let Some(&token) = rows.tokens.iter().find(|&&token| token as usize >= self.shape.vocab_size) {
                return Err(DecoderError::Token { token, vocab_size: self.shape.vocab_size });
            }
        }
        let rows: usize = batch.iter().map(|rows| rows.tokens.len()).sum();
        let (pass, per_row) = self.pace;
        let pause = pass + per_row * u32::try_from(rows).unwrap_or(u32::MAX);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        self.logits.clear();
        for rows in batch {
            let Some((text, _)) = self.slots.get_mut(&rows.slot) else { continue };
            for (index, &token) in rows.tokens.iter().enumerate() {
                text.push(token);
                if index >= rows.tokens.len() - rows.logits {
                    self.logits.extend(Self::logits_of(&(self.table)(text)));
                }
            }
        }
        Ok(())
    }

    fn row(&self, index: usize) -> Row<'_> {
        let width = self.shape.vocab_size;
        Row::Host(&self.logits[index * width..(index + 1) * width])
    }
}

/// A pseudo-random table: weights 1..=20 from a hash of `seed` and the visible text.
///
/// `zeros` of 8 weights are 0 on average; at least one is not.
#[must_use]
pub fn random_table(seed: u64, vocab_size: usize, zeros: u64) -> Table {
    Arc::new(move |text| random_probs(seed, text, vocab_size, zeros))
}

/// A table with a clock: what a token depends on starts anew at every multiple of `period`.
///
/// One long answer thus holds independent sequences of `period` tokens, with bonus tokens and round
/// borders inside them, whatever the draft length.
#[must_use]
pub fn clocked_table(seed: u64, vocab_size: usize, period: usize, zeros: u64) -> Table {
    Arc::new(move |text| {
        let since = text.len() - text.len() % period;
        let mut visible = vec![(text.len() % period) as u32];
        visible.extend_from_slice(&text[since..]);
        random_probs(seed, &visible, vocab_size, zeros)
    })
}

fn random_probs(seed: u64, visible: &[u32], vocab_size: usize, zeros: u64) -> Vec<f64> {
    let mut state =
        visible.iter().fold(mix(seed), |state, &token| mix(state ^ u64::from(token).wrapping_add(1)));
    let mut weights: Vec<f64> = (0..vocab_size)
        .map(|_| {
            state = mix(state);
            if state % 8 < zeros { 0.0 } else { (1 + (state >> 8) % 20) as f64 }
        })
        .collect();
    if weights.iter().all(|&weight| weight == 0.0) {
        weights[(state >> 40) as usize % vocab_size] = 1.0;
    }
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// SplitMix64's output function.
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
