//! What a verifier's passes take, learnt from its own replies: T(1) and T(n).
//!
//! Replies to blocks alone say little of a single row: most have as many rows, and passes are no straight line from there
//! down. So a verifier's own [`PassTime`]s, where it tells any, give the shape, and its replies how high that lies now.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::pass_times::{Curve, MAX_WIDTHS, PassTime};
use crate::conversation::WorkerTimes;

/// Passes with more rows than this are prompts being read; their time does not lie on the line of small ones.
const MOST_ROWS: u32 = 64;
/// Loads told apart: 1 session a pass, 2, up to 4, 8, 16, and more.
const LOADS: usize = 6;
/// Steps that a mean of plain steps remembers, about.
const STEPS_REMEMBERED: f64 = 64.0;
/// What an observation is worth after each later one.
const FADE: f64 = 0.995;
/// Observations that what was measured beforehand is worth; by as many plain steps it is forgotten.
const MEASURED_WORTH: f64 = 4.0;

/// Times of one verifier's passes, shared by all requests that it serves.
#[derive(Debug, Default)]
pub struct Steps(Mutex<Learnt>);

#[derive(Debug, Default)]
struct Learnt {
    /// What the verifier measured before it served.
    measured: Vec<PassTime>,
    curve: Curve,
    /// How many times as long as on the curve passes take.
    stretch: Mean,
    /// What draws add to a pass for each row.
    draws: Mean,
    /// Plain steps by load.
    plain: [Mean; LOADS],
    line: Line,
}

impl Learnt {
    fn of(measured: &[PassTime]) -> Self {
        Self {
            measured: measured.to_vec(),
            curve: Curve::through(measured),
            stretch: Mean { value: 1.0, count: MEASURED_WORTH },
            ..Self::default()
        }
    }

    /// A pass over `rows`, without draws: microseconds.
    fn pass(&self, rows: f64) -> Option<f64> {
        let measured = self.curve.at(rows).map(|micros| micros * self.stretch.value);
        measured.or_else(|| self.line.at(rows))
    }
}

impl Steps {
    /// Begins with what the verifier measured of itself before it served, which observations soon outweigh. Told the same
    /// again it changes nothing; told anything else it begins anew, for the passes are another process's.
    pub fn begin(&self, measured: &[PassTime]) {
        let measured = &measured[..measured.len().min(MAX_WIDTHS)];
        let mut learnt = self.learnt();
        if learnt.measured != measured {
            *learnt = Learnt::of(measured);
        }
    }

    /// Learns from a reply's account. Replies about several passes, or prompts, teach nothing; of the first token's only
    /// the pass counts (`is_first`), for it waited until its own prompt was read.
    pub fn learn(&self, times: &WorkerTimes, is_first: bool) {
        if times.passes != 1 || times.batch_rows == 0 || times.batch_rows > MOST_ROWS {
            return;
        }
        let mut learnt = self.learnt();
        let (rows, micros) = (f64::from(times.batch_rows), times.model_us as f64);
        learnt.line.add(rows, micros);
        // A prompt's rows have no logits but the last one's.
        if !is_first {
            if let Some(expected) = learnt.curve.at(rows).filter(|_| rows <= 2.0 * learnt.curve.widest()) {
                learnt.stretch.add(micros / expected);
            }
            learnt.draws.add(times.sampling_us as f64 / f64::from(times.rows.max(1)));
        }
        if times.rows == 1 && !is_first {
            let step: f64 = [times.queue_us, times.batch_wait_us, times.model_us, times.sampling_us]
                .map(|micros| micros as f64)
                .iter()
                .sum();
            learnt.plain[bucket(f64::from(times.batch_sessions))].add(step);
        }
    }

    /// T(1): a plain step where a pass serves `sessions` on average. Steps seen at such a load say it, as long as they are
    /// few together with what the verifier measured beforehand; without any, that alone, else the line through all passes.
    /// None where nothing is known.
    #[must_use]
    pub fn plain(&self, sessions: f64) -> Option<Duration> {
        let learnt = self.learnt();
        let seen = learnt.plain[bucket(sessions)];
        let rows = sessions.max(1.0);
        let foretold = learnt.curve.at(rows).map(|micros| micros * learnt.stretch.value + learnt.draws.value);
        let step = match (seen.value(), foretold) {
            (Some(step), Some(foretold)) => {
                Some(foretold + (step - foretold) * (seen.count / MEASURED_WORTH).min(1.0))
            }
            (step, foretold) => step.or(foretold).or_else(|| learnt.line.at(rows)),
        };
        step.map(micros)
    }

    /// T(n): a pass over `rows`, as measured beforehand and seen since, else by the line through all passes. None where
    /// nothing is known.
    #[must_use]
    pub fn pass(&self, rows: f64) -> Option<Duration> {
        self.learnt().pass(rows).map(micros)
    }

    fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bucket(sessions: f64) -> usize {
    (sessions.max(1.0).log2().ceil() as usize).min(LOADS - 1)
}

fn micros(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0) / 1e6).unwrap_or(Duration::MAX)
}

/// A mean that follows.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    value: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.count = (self.count + 1.0).min(STEPS_REMEMBERED);
        self.value += (value - self.value) / self.count;
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0.0).then_some(self.value)
    }
}

/// The line of least squares through points of fading weight.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    weight: f64,
    x: f64,
    y: f64,
    /// Sums of squares and products about the means.
    xx: f64,
    xy: f64,
}

impl Line {
    /// Takes in a point (Welford's update, with weights; West 1979).
    fn add(&mut self, x: f64, y: f64) {
        self.weight = self.weight * FADE + 1.0;
        let share = 1.0 / self.weight;
        let (dx, dy) = (x - self.x, y - self.y);
        self.x += dx * share;
        self.y += dy * share;
        self.xx = self.xx * FADE + dx * (x - self.x);
        self.xy = self.xy * FADE + dx * (y - self.y);
    }

    /// Its height at `x`. More rows never cost less, and where all passes had as many rows nothing is known of a slope.
    fn at(&self, x: f64) -> Option<f64> {
        let slope = if self.xx > 1e-6 * self.weight { (self.xy / self.xx).max(0.0) } else { 0.0 };
        (self.weight > 0.0).then_some((self.y + slope * (x - self.x)).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(rows: u32, batch_rows: u32, batch_sessions: u32, model_us: u64) -> WorkerTimes {
        WorkerTimes { model_us, passes: 1, rows, batch_rows, batch_sessions, ..WorkerTimes::default() }
    }

    #[test]
    fn a_measured_plain_step_comes_before_the_line() {
        let steps = Steps::default();
        assert_eq!((steps.plain(1.0), steps.pass(5.0)), (None, None));
        steps.learn(&pass(5, 5, 1, 3_000), false);
        // One kind of pass says nothing about a slope.
        assert_eq!(steps.plain(1.0), Some(Duration::from_micros(3_000)));
        steps.learn(&pass(9, 9, 1, 4_000), false);
        assert_eq!(steps.plain(1.0).unwrap().as_micros(), 2_000);
        assert_eq!(steps.pass(7.0).unwrap().as_micros(), 3_500, "the line is as right");
        steps.learn(&WorkerTimes { queue_us: 100, sampling_us: 50, ..pass(1, 1, 1, 2_350) }, false);
        assert_eq!(steps.plain(1.0).unwrap().as_micros(), 2_500);
    }

    #[test]
    fn loads_are_told_apart() {
        let steps = Steps::default();
        steps.learn(&pass(1, 1, 1, 2_000), false);
        steps.learn(&pass(1, 8, 8, 4_000), false);
        assert_eq!(steps.plain(1.0).unwrap().as_micros(), 2_000);
        assert_eq!(steps.plain(6.0).unwrap().as_micros(), 4_000);
        // Nobody was seen alone with one other: the line through both.
        let between = steps.plain(2.0).unwrap().as_secs_f64();
        assert!((2e-3..4e-3).contains(&between), "{between}");
    }

    #[test]
    fn what_the_first_token_waited_for_is_no_plain_step() {
        let steps = Steps::default();
        // It waited for its prompt; its own pass is one of a single row all the same.
        steps.learn(&WorkerTimes { queue_us: 50_000, ..pass(1, 1, 1, 2_000) }, true);
        steps.learn(&pass(5, 5, 1, 3_000), false);
        assert_eq!(steps.plain(1.0).unwrap().as_micros(), 2_000);
    }

    /// T(1) 2 ms, T(4) 2.6 ms, T(8) 5 ms: no straight line.
    fn measured() -> Steps {
        let steps = Steps::default();
        let times = [(1, 2_000), (4, 2_600), (8, 5_000)];
        steps.begin(&times.map(|(rows, took)| PassTime { rows, took: Duration::from_micros(took) }));
        steps
    }

    fn plain_us(steps: &Steps) -> f64 {
        steps.plain(1.0).unwrap().as_secs_f64() * 1e6
    }

    #[test]
    fn blocks_alone_do_not_hide_a_measured_step() {
        let steps = measured();
        assert_eq!((plain_us(&steps), steps.pass(6.0)), (2_000.0, Some(Duration::from_micros(3_800))));
        for _ in 0..2_000 {
            // All as wide, and with draws of 100 µs a row.
            steps.learn(&WorkerTimes { sampling_us: 500, ..pass(5, 5, 1, 3_200) }, false);
        }
        assert!((plain_us(&steps) - 2_100.0).abs() < 1.0, "{}", plain_us(&steps));
        // Nothing was measured: a line through one point is level.
        let unmeasured = Steps::default();
        unmeasured.learn(&pass(5, 5, 1, 3_200), false);
        assert_eq!(plain_us(&unmeasured), 3_200.0);
    }

    #[test]
    fn what_was_measured_is_stretched_by_what_is_seen_and_outweighed_by_plain_steps() {
        let steps = measured();
        (0..64).for_each(|_| steps.learn(&pass(5, 5, 1, 6_400), false));
        assert!((plain_us(&steps) - 4_000.0).abs() < 200.0, "twice as slow at blocks: {}", plain_us(&steps));
        (0..64).for_each(|_| steps.learn(&pass(1, 1, 1, 7_000), false));
        assert!((plain_us(&steps) - 7_000.0).abs() < 200.0, "{}", plain_us(&steps));
        // A prompt of as many rows wants one row's logits, and says nothing of a block's.
        let before = steps.pass(5.0);
        (0..64).for_each(|_| steps.learn(&pass(5, 5, 1, 100), true));
        assert_eq!(steps.pass(5.0), before);
    }

    #[test]
    fn another_process_at_the_same_address_is_learnt_anew() {
        let steps = measured();
        (0..64).for_each(|_| steps.learn(&pass(1, 1, 1, 9_000), false));
        let learnt = plain_us(&steps);
        let same = [(1, 2_000), (4, 2_600), (8, 5_000)];
        let told = |times: &[(u32, u64)]| {
            let time = |&(rows, took)| PassTime { rows, took: Duration::from_micros(took) };
            steps.begin(&times.iter().map(time).collect::<Vec<_>>());
            steps.plain(1.0)
        };
        assert_eq!(told(&same), Some(micros(learnt)));
        assert_eq!(told(&[(1, 500), (8, 900)]), Some(Duration::from_micros(500)));
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn it_follows_and_forgets() {
        let steps = Steps::default();
        for _ in 0..500 {
            steps.learn(&pass(1, 1, 1, 2_000), false);
        }
        for _ in 0..500 {
            steps.learn(&pass(1, 1, 1, 6_000), false);
        }
        let step = steps.plain(1.0).unwrap().as_secs_f64();
        assert!((step - 6e-3).abs() < 1e-5, "{step}");
    }

    #[test]
    fn prompts_and_several_passes_teach_nothing() {
        let steps = Steps::default();
        steps.learn(&pass(100, 100, 1, 50_000), false);
        steps.learn(&WorkerTimes { passes: 2, ..pass(1, 1, 1, 9_000) }, false);
        steps.learn(&WorkerTimes::default(), false);
        assert_eq!(steps.plain(1.0), None);
    }
}
