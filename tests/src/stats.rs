//! One-sample G-test of counts against known probabilities, and Holm's correction for several tests. Nothing random
//! here: seeds belong to the suites.

/// Cells expecting fewer than this are pooled, so that the statistic follows its chi-square distribution.
const LEAST_EXPECTED: f64 = 10.0;

/// What a G-test found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GTest {
    /// 2·Σ O·ln(O/E).
    pub statistic: f64,
    /// Cells after pooling, less one.
    pub degrees: usize,
    /// The probability of a statistic at least as large if the counts come from the stated probabilities.
    pub p_value: f64,
}

/// Tests `cells`, each a count and its probability. The probabilities sum to 1; a count where the probability is 0
/// gives a p-value of 0.
#[must_use]
pub fn g_test(cells: &[(u64, f64)]) -> GTest {
    let n: u64 = cells.iter().map(|c| c.0).sum();
    let cells = pooled(cells, n as f64);
    let term =
        |&(count, expected): &(f64, f64)| if count > 0.0 { count * (count / expected).ln() } else { 0.0 };
    let statistic = (2.0 * cells.iter().map(term).sum::<f64>()).max(0.0);
    let degrees = cells.len().saturating_sub(1);
    GTest { statistic, degrees, p_value: chi_square_tail(statistic, degrees) }
}

/// Holm's step-down procedure: the indices of the tests that are significant when all together may raise a false
/// alarm with probability `alpha`.
#[must_use]
pub fn holm(p_values: &[f64], alpha: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let significant =
        |&(rank, &index): &(usize, &usize)| p_values[index] <= alpha / (p_values.len() - rank) as f64;
    order.iter().enumerate().take_while(significant).map(|(_, &index)| index).collect()
}

/// Counts and expected counts, the small cells joined into one; that one joins the smallest other if it is small too.
fn pooled(cells: &[(u64, f64)], n: f64) -> Vec<(f64, f64)> {
    let (mut large, small): (Vec<_>, Vec<_>) = cells
        .iter()
        .map(|&(count, probability)| (count as f64, probability * n))
        .partition(|cell| cell.1 >= LEAST_EXPECTED);
    let pool = small.iter().fold((0.0, 0.0), |pool, cell| (pool.0 + cell.0, pool.1 + cell.1));
    let smallest = large.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1));
    match smallest {
        // Counts without any expectation stay visible: they make the statistic infinite.
        Some(cell) if pool.1 > 0.0 && pool.1 < LEAST_EXPECTED => *cell = (cell.0 + pool.0, cell.1 + pool.1),
        _ if pool == (0.0, 0.0) => {}
        _ => large.push(pool),
    }
    large
}

/// The probability that a chi-square variable of `degrees` exceeds `x`.
#[must_use]
pub fn chi_square_tail(x: f64, degrees: usize) -> f64 {
    if degrees == 0 || x <= 0.0 {
        return 1.0;
    }
    if x.is_infinite() {
        return 0.0;
    }
    upper_gamma(degrees as f64 / 2.0, x / 2.0)
}

/// The regularised upper incomplete gamma function Q(a, x): by its series below the mean, by its continued fraction
/// (modified Lentz) above.
fn upper_gamma(a: f64, x: f64) -> f64 {
    let front = (a * x.ln() - x - libm::lgamma(a)).exp();
    if x < a + 1.0 {
        let mut term = 1.0 / a;
        let mut sum = term;
        let mut k = a;
        while term > sum * f64::EPSILON {
            k += 1.0;
            term *= x / k;
            sum += term;
        }
        1.0 - front * sum
    } else {
        let mut b = x + 1.0 - a;
        let mut c = f64::INFINITY;
        let mut d = 1.0 / b;
        let mut fraction = d;
        for i in 1..100_000 {
            let i = f64::from(i);
            let numerator = -i * (i - a);
            b += 2.0;
            d = 1.0 / (numerator * d + b);
            c = b + numerator / c;
            fraction *= d * c;
            if (d * c - 1.0).abs() < f64::EPSILON {
                break;
            }
        }
        front * fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b, "{a} instead of {b}");
    }

    #[test]
    fn chi_square_tails_are_the_known_ones() {
        // Two degrees: e^(-x/2). Four: e^(-x/2)·(1 + x/2). One: erfc(√(x/2)).
        for x in [0.1, 1.0, 5.0, 30.0, 200.0] {
            close(chi_square_tail(x, 2), (-x / 2.0f64).exp());
            close(chi_square_tail(x, 4), (-x / 2.0f64).exp() * (1.0 + x / 2.0));
            close(chi_square_tail(x, 1), libm::erfc((x / 2.0f64).sqrt()));
        }
        // An even number of degrees 2m has the closed form e^(-h)·Σ_{i<m} h^i / i!, h = x/2.
        for (x, m) in [(900.0, 500), (1000.0, 500), (1100.0, 500), (1400.0, 500)] {
            let h: f64 = x / 2.0;
            let terms = (0..m).map(|i| (f64::from(i) * h.ln() - h - libm::lgamma(f64::from(i) + 1.0)).exp());
            let right: f64 = terms.sum();
            assert!((chi_square_tail(x, 1000) - right).abs() < 1e-9 * right.max(1e-6), "{x}");
        }
        assert_eq!((chi_square_tail(0.0, 5), chi_square_tail(f64::INFINITY, 5)), (1.0, 0.0));
    }

    #[test]
    fn a_g_test_knows_equal_from_different() {
        let same = g_test(&[(100, 0.1), (200, 0.2), (700, 0.7)]);
        assert_eq!((same.degrees, same.p_value), (2, 1.0));
        assert!(g_test(&[(200, 0.1), (200, 0.2), (600, 0.7)]).p_value < 1e-9);
        assert_eq!(g_test(&[(1, 0.0), (499, 0.5), (500, 0.5)]).p_value, 0.0);
    }

    #[test]
    fn small_cells_are_pooled() {
        // 4 and 8 join; 4 alone would join the smallest of the others.
        assert_eq!(g_test(&[(4, 0.004), (8, 0.008), (988, 0.988)]).degrees, 1);
        assert_eq!(g_test(&[(4, 0.004), (296, 0.296), (700, 0.7)]).degrees, 1);
        assert_eq!(g_test(&[(3, 1.0)]).p_value, 1.0);
    }

    #[test]
    fn holm_steps_down_until_the_first_that_holds() {
        assert_eq!(holm(&[0.04, 0.001, 0.02], 0.05), [1, 2, 0]);
        assert_eq!(holm(&[0.04, 0.001, 0.03], 0.05), [1]);
        assert!(holm(&[0.5, 0.02, 0.9], 0.05).is_empty());
        assert!(holm(&[], 0.05).is_empty());
    }
}
