//! What a verifier measured of its own passes before it served: T(1) and a few T(m).

use std::time::Duration;

/// What a pass over `rows` rows of one session took, nothing of its text read before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassTime {
    /// Rows, all with their logits.
    pub rows: u32,
    /// The model's part: no wait, no draws.
    pub took: Duration,
}

/// Widths kept, at most: whatever a peer says, a look-up stays short.
pub(super) const MAX_WIDTHS: usize = 16;

/// Microseconds of a pass by its rows, between the widths measured on straight lines.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// Through what was measured. Times of nothing and of no rows are no measurements; more rows never cost less.
    ///
    /// Empty unless a single row was measured and a wider pass as well: without both there is no telling the one from
    /// the other.
    pub(super) fn through(measured: &[PassTime]) -> Self {
        let mut points: Vec<_> = measured
            .iter()
            .filter(|time| time.rows > 0 && !time.took.is_zero())
            .map(|time| (f64::from(time.rows), time.took.as_secs_f64() * 1e6))
            .collect();
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        points.dedup_by_key(|(rows, _)| *rows);
        let mut most: f64 = 0.0;
        for (_, micros) in &mut points {
            most = most.max(*micros);
            *micros = most;
        }
        let is_enough = points.len() > 1 && points[0].0 == 1.0;
        Self(if is_enough { points } else { Vec::new() })
    }

    /// Its height at `rows`; beyond the widest the last slope goes on. None if it is empty.
    pub(super) fn at(&self, rows: f64) -> Option<f64> {
        let upper = self.0.iter().position(|(width, _)| *width >= rows).unwrap_or(self.0.len());
        let upper = upper.clamp(1, self.0.len().checked_sub(1)?.max(1));
        let ((x0, y0), (x1, y1)) = (*self.0.get(upper - 1)?, *self.0.get(upper)?);
        Some(y0 + (y1 - y0) / (x1 - x0) * (rows.max(1.0) - x0))
    }

    /// The widest pass measured; 0 if it is empty.
    pub(super) fn widest(&self) -> f64 {
        self.0.last().map_or(0.0, |(rows, _)| *rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(measured: &[(u32, u64)]) -> Curve {
        let times =
            measured.iter().map(|&(rows, micros)| PassTime { rows, took: Duration::from_micros(micros) });
        Curve::through(&times.collect::<Vec<_>>())
    }

    #[test]
    fn between_widths_it_is_straight_and_beyond_them_it_goes_on() {
        let curve = curve(&[(8, 4_500), (1, 1_000), (2, 1_500)]);
        for (rows, micros) in
            [(1.0, 1_000.0), (2.0, 1_500.0), (5.0, 3_000.0), (8.0, 4_500.0), (10.0, 5_500.0)]
        {
            assert!((curve.at(rows).unwrap() - micros).abs() < 1e-9, "{rows}");
        }
        assert_eq!((curve.at(0.0), curve.widest()), (Some(1_000.0), 8.0));
    }

    #[test]
    fn what_a_peer_says_amiss_is_left_out() {
        for measured in [&[][..], &[(1, 1_000)], &[(0, 5), (1, 0)], &[(4, 1_000), (8, 1_000)]] {
            assert_eq!((curve(measured).at(3.0), curve(measured).widest()), (None, 0.0), "{measured:?}");
        }
        assert_eq!(
            curve(&[(1, 1_000), (1, 9), (4, 500)]).at(4.0),
            Some(1_000.0),
            "more rows never cost less"
        );
        let endless: Vec<_> = (1..1_000).map(|rows| (rows, u64::MAX)).collect();
        assert!(curve(&endless).at(f64::from(u32::MAX)).unwrap().is_finite());
    }
}
