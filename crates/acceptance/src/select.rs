//! The m best of many scored tokens, in one pass and without sorting the rest: the vocabulary has up to several
//! hundred thousand entries, and what is kept is usually a few dozen.

use std::cmp::Ordering;

/// A token with the score that ranks it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scored {
    pub(crate) score: f64,
    pub(crate) id: u32,
}

/// Best first: higher score, then lower id. Total, because ids differ and scores are never NaN.
fn best_first(a: &Scored, b: &Scored) -> Ordering {
    b.score.total_cmp(&a.score).then(a.id.cmp(&b.id))
}

/// Leaves in `out` the `m` best of `scores` (all, if there are fewer), best first; ties go to the lowest id.
///
/// Entries of −∞ are never taken. `out` keeps its capacity: at most `2·m + 1` entries are held at a time.
pub(crate) fn best(scores: impl Iterator<Item = (u32, f64)>, m: usize, out: &mut Vec<Scored>) {
    out.clear();
    if m == 0 {
        return;
    }
    let limit = m.saturating_mul(2);
    // The m-th best score so far. An equal score that comes later has a higher id, so it is worse.
    let mut bar = f64::NEG_INFINITY;
    for (id, score) in scores {
        if score > bar {
            // Adding +0 turns −0 into +0, which `total_cmp` would rank apart.
            out.push(Scored { score: score + 0.0, id });
            if out.len() > limit {
                bar = keep(out, m);
            }
        }
    }
    if out.len() > m {
        keep(out, m);
    }
    out.sort_unstable_by(best_first);
}

/// Cuts `out`, longer than `m`, to its `m` best in any order and returns the worst score among them.
fn keep(out: &mut Vec<Scored>, m: usize) -> f64 {
    let (_, last, _) = out.select_nth_unstable_by(m - 1, best_first);
    let bar = last.score;
    out.truncate(m);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(scores: &[f64], m: usize) -> Vec<u32> {
        let mut out = Vec::new();
        best((0..).zip(scores.iter().copied()), m, &mut out);
        out.iter().map(|s| s.id).collect()
    }

    #[test]
    fn ties_go_to_the_lowest_id() {
        assert_eq!(ids(&[1.0; 50], 3), [0, 1, 2]);
        assert_eq!(ids(&[-0.0, 0.0, -0.0, 0.0], 3), [0, 1, 2]);
        assert_eq!(ids(&[0.0, 2.0, 1.0, 2.0], 2), [1, 3]);
    }

    #[test]
    fn minus_infinity_is_never_taken() {
        assert_eq!(ids(&[f64::NEG_INFINITY, 1.0, f64::NEG_INFINITY], 3), [1]);
        assert!(ids(&[1.0], 0).is_empty());
    }

    proptest! {
        #[test]
        fn equals_a_full_sort(scores in prop::collection::vec(-5i32..5, 1..200), m in 1usize..250) {
            let scores: Vec<f64> = scores.into_iter().map(f64::from).collect();
            let mut right: Vec<u32> = (0u32..).take(scores.len()).collect();
            right.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
            right.truncate(m);
            prop_assert_eq!(ids(&scores, m), right);
        }
    }
}
