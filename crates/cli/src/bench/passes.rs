//! Times of single passes behind a filled cache.

use std::time::Instant;

use foretoken_runtime::decoder::{Decoder, DecoderError, SessionRows, Slot};

use super::args::Logits;

/// Rows per pass while the cache is filled, which is not timed.
const FILL_ROWS: usize = 256;

/// A decoder with one session, whose passes are timed and taken back.
#[derive(Debug)]
pub(super) struct Passes<D> {
    decoder: D,
    slot: Slot,
    logits: Logits,
    /// Tokens of the pass at hand.
    tokens: Vec<u32>,
    /// State of the generator that chooses them.
    random: u64,
}

impl<D: Decoder> Passes<D> {
    /// A session with room for `capacity` positions.
    pub(super) fn new(mut decoder: D, capacity: usize, logits: Logits) -> Result<Self, DecoderError> {
        let slot = decoder.allocate(capacity)?;
        Ok(Self { decoder, slot, logits, tokens: Vec::new(), random: 1 })
    }

    /// The model's name.
    pub(super) fn model(&self) -> &str {
        &self.decoder.shape().name
    }

    /// Where it runs.
    pub(super) fn device(&self) -> &str {
        &self.decoder.shape().device
    }

    /// Bytes that a pass behind `context` positions reads: all weights once, and the cache once.
    ///
    /// A little more than the truth where the embeddings are not the output head too: a pass reads only some rows of them.
    pub(super) fn bytes(&self, context: usize) -> u64 {
        let shape = self.decoder.shape();
        shape.weight_bytes + context as u64 * shape.kv_bytes_per_token
    }

    /// Brings the cache to `context` positions.
    pub(super) fn fill(&mut self, context: usize) -> Result<(), DecoderError> {
        self.decoder.truncate(self.slot, context);
        while self.decoder.len(self.slot) < context {
            let rows = FILL_ROWS.min(context - self.decoder.len(self.slot));
            self.feed(rows, 1)?;
        }
        Ok(())
    }

    /// Milliseconds of one pass over `rows` rows; the cache is left as it was.
    pub(super) fn time(&mut self, rows: usize) -> Result<f64, DecoderError> {
        let held = self.decoder.len(self.slot);
        let logits = match self.logits {
            Logits::All => rows,
            Logits::Last => 1,
        };
        let ms = self.feed(rows, logits)?;
        self.decoder.truncate(self.slot, held);
        Ok(ms)
    }

    fn feed(&mut self, rows: usize, logits: usize) -> Result<f64, DecoderError> {
        let vocabulary = self.decoder.shape().vocab_size as u64;
        self.tokens.clear();
        for _ in 0..rows {
            // The multiplier and increment of Knuth's MMIX; any tokens do, so long as they differ.
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.tokens.push((self.random >> 33).checked_rem(vocabulary).unwrap_or(0) as u32);
        }
        let batch = [SessionRows { slot: self.slot, tokens: &self.tokens, logits }];
        let start = Instant::now();
        self.decoder.forward(&batch)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_runtime::decoder::{ModelShape, Row};

    /// Remembers what it was fed.
    #[derive(Debug)]
    struct Recorder {
        shape: ModelShape,
        len: usize,
        fed: Vec<(usize, usize, usize)>,
    }

    impl Decoder for Recorder {
        fn shape(&self) -> &ModelShape {
            &self.shape
        }
        fn allocate(&mut self, _: usize) -> Result<Slot, DecoderError> {
            Ok(Slot(0))
        }
        fn len(&self, _: Slot) -> usize {
            self.len
        }
        fn truncate(&mut self, _: Slot, len: usize) {
            self.len = self.len.min(len);
        }
        fn release(&mut self, _: Slot) {}
        fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
            let rows = batch[0].tokens.len();
            assert!(batch[0].tokens.iter().all(|&token| (token as usize) < self.shape.vocab_size));
            self.fed.push((self.len, rows, batch[0].logits));
            self.len += rows;
            Ok(())
        }
        fn row(&self, _: usize) -> Row<'_> {
            Row::Host(&[])
        }
    }

    fn passes(logits: Logits) -> Passes<Recorder> {
        let shape = ModelShape {
            name: "m".to_owned(),
            fingerprint: String::new(),
            vocab_size: 7,
            max_context: 1000,
            weight_bytes: 100,
            kv_bytes_per_token: 3,
            device: "cpu".to_owned(),
        };
        Passes::new(Recorder { shape, len: 0, fed: Vec::new() }, 1000, logits).unwrap()
    }

    #[test]
    fn a_context_is_filled_on_top_of_the_one_before() {
        let mut passes = passes(Logits::All);
        passes.fill(300).unwrap();
        passes.fill(310).unwrap();
        passes.fill(310).unwrap();
        assert_eq!(passes.decoder.fed, [(0, 256, 1), (256, 44, 1), (300, 10, 1)]);
    }

    #[test]
    fn a_timed_pass_is_taken_back() {
        for (logits, asked) in [(Logits::All, 5), (Logits::Last, 1)] {
            let mut passes = passes(logits);
            passes.fill(8).unwrap();
            assert!(passes.time(5).unwrap() >= 0.0);
            assert_eq!(passes.decoder.fed.last(), Some(&(8, 5, asked)));
            assert_eq!(passes.decoder.len, 8);
        }
    }

    #[test]
    fn the_cache_is_counted_with_the_weights() {
        assert_eq!(passes(Logits::All).bytes(10), 130);
    }
}
