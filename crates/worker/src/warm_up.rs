//! The passes before the first request: nobody waits for them, and they tell what passes take.
//!
//! The very first ones meet memory that was never touched, and would make the first answer slow. Those behind them are
//! timed, in bounded time: a ledger's T(1) begins with them.

use std::time::{Duration, Instant};

use foretoken_engine::ledger::PassTime;
use foretoken_runtime::decoder::{Decoder, DecoderError, SessionRows, Slot};

/// Rows of the passes that are timed: first those without which the others say nothing.
const WIDTHS: [usize; 5] = [1, 8, 2, 4, 16];

/// Widths of [`WIDTHS`] that are timed once whatever it takes.
const NEEDED: usize = 2;

/// Times that a width is timed, at most.
const REPEATS: usize = 7;

/// How long all of it may take beyond what is needed.
const LIMIT: Duration = Duration::from_millis(300);

/// Runs some passes and tells what each width took, as the median of its passes, the narrowest first.
///
/// # Errors
/// If a pass fails.
pub(crate) fn warm_up<D: Decoder>(decoder: &mut D) -> Result<Vec<PassTime>, DecoderError> {
    let began = Instant::now();
    let room = decoder.shape().max_context.min(WIDTHS.into_iter().max().unwrap_or(1));
    let slot = decoder.allocate(room)?;
    let timed = timed(decoder, slot, room, began);
    decoder.release(slot);
    let mut times: Vec<_> = WIDTHS
        .into_iter()
        .zip(timed?)
        .filter_map(|(rows, took)| Some(PassTime { rows: rows as u32, took: median(took)? }))
        .collect();
    times.sort_by_key(|time| time.rows);
    Ok(times)
}

/// What passes of each of [`WIDTHS`] took, for as long as there is time, from `began` on.
fn timed<D: Decoder>(
    decoder: &mut D,
    slot: Slot,
    room: usize,
    began: Instant,
) -> Result<[Vec<Duration>; WIDTHS.len()], DecoderError> {
    for rows in [8, 1, 1] {
        pass(decoder, slot, rows.min(room))?;
    }
    let mut times: [Vec<Duration>; WIDTHS.len()] = Default::default();
    for repeat in 0..REPEATS {
        for (index, rows) in WIDTHS.into_iter().enumerate().filter(|&(_, rows)| rows <= room) {
            // Rows of a pass share the reading of weights: so many passes of one row would take longer.
            let single = || times[0].first().map(|&took| took * rows as u32);
            let expected = times[index].last().copied().or_else(single).unwrap_or_default();
            let is_needed = repeat == 0 && index < NEEDED;
            if is_needed || began.elapsed() + expected <= LIMIT {
                times[index].push(pass(decoder, slot, rows)?);
            }
        }
    }
    Ok(times)
}

/// A pass over the first `rows` of a text, as a block's: all of them with logits.
fn pass<D: Decoder>(decoder: &mut D, slot: Slot, rows: usize) -> Result<Duration, DecoderError> {
    decoder.truncate(slot, 0);
    let tokens = vec![0; rows];
    let began = Instant::now();
    decoder.forward(&[SessionRows { slot, tokens: &tokens, logits: rows }])?;
    Ok(began.elapsed())
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use foretoken_runtime::decoder::{ModelShape, Row};

    use super::*;

    /// Takes so long for a pass and for each of its rows, and fails at the `fails_at`-th pass.
    struct Paced {
        shape: ModelShape,
        pace: (Duration, Duration),
        widths: Vec<usize>,
        fails_at: usize,
        held: usize,
    }

    fn paced(pass_us: u64, row_us: u64, max_context: usize) -> Paced {
        let shape = ModelShape {
            name: "paced".into(),
            fingerprint: String::new(),
            vocab_size: 1,
            max_context,
            weight_bytes: 0,
            kv_bytes_per_token: 0,
            device: "cpu".into(),
        };
        let pace = (Duration::from_micros(pass_us), Duration::from_micros(row_us));
        Paced { shape, pace, widths: Vec::new(), fails_at: usize::MAX, held: 0 }
    }

    impl Decoder for Paced {
        fn shape(&self) -> &ModelShape {
            &self.shape
        }

        fn allocate(&mut self, capacity: usize) -> Result<Slot, DecoderError> {
            assert!(capacity <= self.shape.max_context);
            self.held += 1;
            Ok(Slot(0))
        }

        fn len(&self, _slot: Slot) -> usize {
            0
        }

        fn truncate(&mut self, _slot: Slot, len: usize) {
            assert_eq!(len, 0, "every pass is over the beginning of a text");
        }

        fn release(&mut self, _slot: Slot) {
            self.held -= 1;
        }

        fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
            if self.widths.len() == self.fails_at {
                return Err(DecoderError::Backend("no".into()));
            }
            let rows = batch[0].tokens.len();
            self.widths.push(rows);
            std::thread::sleep(self.pace.0 + self.pace.1 * rows as u32);
            Ok(())
        }

        fn row(&self, _index: usize) -> Row<'_> {
            Row::Host(&[0.0])
        }
    }

    #[test]
    fn a_quick_model_is_timed_at_every_width_in_bounded_time() {
        let mut model = paced(2_000, 100, 64);
        let began = Instant::now();
        let times = warm_up(&mut model).unwrap();
        assert!(began.elapsed() < LIMIT * 2, "{:?}", began.elapsed());
        assert_eq!(times.iter().map(|time| time.rows).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        for time in &times {
            let truth = model.pace.0 + model.pace.1 * time.rows;
            assert!(time.took >= truth && time.took < truth * 2, "{time:?} is not {truth:?}");
        }
        assert_eq!(model.held, 0);
    }

    #[test]
    fn a_slow_model_is_timed_no_more_than_needed() {
        let mut model = paced(120_000, 0, 64);
        let times = warm_up(&mut model).unwrap();
        assert_eq!(times.iter().map(|time| time.rows).collect::<Vec<_>>(), [1, 8]);
        assert_eq!(model.widths, [8, 1, 1, 1, 8]);
    }

    #[test]
    fn a_short_context_and_a_pass_that_fails_harm_nobody() {
        let times = warm_up(&mut paced(0, 0, 3)).unwrap();
        assert_eq!(times.iter().map(|time| time.rows).collect::<Vec<_>>(), [1, 2]);
        let mut broken = Paced { fails_at: 4, ..paced(0, 0, 64) };
        assert!(warm_up(&mut broken).is_err());
        assert_eq!(broken.held, 0);
    }
}
