//! What a verifier's passes take, learnt from its own replies: T(1) and T(n).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::conversation::WorkerTimes;

/// Passes with more rows than this are prompts being read; their time does not lie on the line of small ones.
const MOST_ROWS: u32 = 64;
/// Loads told apart: 1 session a pass, 2, up to 4, 8, 16, and more.
const LOADS: usize = 6;
/// Steps that a mean of plain steps remembers, about.
const STEPS_REMEMBERED: f64 = 64.0;
/// What an observation is worth after each later one.
const FADE: f64 = 0.995;

/// Times of one verifier's passes, shared by all requests that it serves.
#[derive(Debug, Default)]
pub struct Steps(Mutex<Learnt>);

#[derive(Debug, Default)]
struct Learnt {
    /// Plain steps by load.
    plain: [Mean; LOADS],
    line: Line,
}

impl Steps {
    /// Learns from a reply's account. Replies about several passes, or prompts, teach nothing; of the first token's only
    /// the pass counts (`is_first`), for it waited until its own prompt was read.
    pub fn learn(&self, times: &WorkerTimes, is_first: bool) {
        if times.passes != 1 || times.batch_rows == 0 || times.batch_rows > MOST_ROWS {
            return;
        }
        let mut learnt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        learnt.line.add(f64::from(times.batch_rows), times.model_us as f64);
        if times.rows == 1 && !is_first {
            let step: f64 = [times.queue_us, times.batch_wait_us, times.model_us, times.sampling_us]
                .map(|micros| micros as f64)
                .iter()
                .sum();
            learnt.plain[bucket(f64::from(times.batch_sessions))].add(step);
        }
    }

    /// T(1): a plain step where a pass serves `sessions` on average, measured if there was one at such a load, else by the
    /// line through all passes. None before the first pass.
    #[must_use]
    pub fn plain(&self, sessions: f64) -> Option<Duration> {
        let learnt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = learnt.plain[bucket(sessions)].value();
        measured.or_else(|| learnt.line.at(sessions.max(1.0))).map(micros)
    }

    /// T(n): a pass over `rows`, by the line through all passes. None before the first.
    #[must_use]
    pub fn pass(&self, rows: f64) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).line.at(rows).map(micros)
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
