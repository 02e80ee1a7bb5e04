//! The verifier's half of the rule on the device: rows stay there, a few kilobytes of each come back.
//!
//! * **Greedy**: the lowest token at the row's peak, four bytes a row.
//! * **Sampled**: softmax, q and the residual max(0, p − q) are dense tensors on the device, in `f64`
//!   as in `foretoken_acceptance`. The host is sent p at the tokens of q, and of the residual the
//!   sums of its blocks; it finds the block that the coin falls into, is sent that block alone, and
//!   finds the token. Running sums are the host's, in order of ids, so a token of weight 0 is never
//!   drawn, as there.
//!
//! A coin within rounding of the border of two tokens' shares may fall to the other side of it than
//! on the host, which adds in another order; nothing else differs.
//!
//! Not answered here, so that the rows are read instead: top-k, top-p and min-p; devices without `f64`
//! (Metal); rows that are no distribution.

use candle_core::{D, DType, Result, Tensor};
use foretoken_acceptance::Sampling;
use foretoken_runtime::decoder::{RowAnswer, RowAsk};

use super::copied::Copied;

/// Tokens of a block: near the square root of a large vocabulary, which makes what is sent the least.
const BLOCK: usize = 512;

/// Answers from `logits`, rows over the tokenizer's vocabulary; none if they had better be read.
pub(super) fn judge(
    logits: &Tensor,
    sampling: &Sampling,
    asks: &[RowAsk<'_>],
    host: &Copied,
) -> Result<Option<Vec<RowAnswer>>> {
    let truncated = sampling.top_k() > 0 || sampling.top_p() < 1.0 || sampling.min_p() > 0.0;
    if asks.is_empty() || logits.device().is_metal() || (truncated && !sampling.is_greedy()) {
        return Ok(None);
    }
    let rows: Vec<u32> = asks.iter().map(|ask| ask.row as u32).collect();
    let rows = logits.index_select(&Tensor::from_vec(rows, asks.len(), logits.device())?, 0)?;
    if sampling.is_greedy() {
        greedy(&rows, asks, host)
    } else {
        sampled(&rows, sampling.temperature(), asks, host)
    }
}

/// p is all on the likeliest token, so it is also the residual of every q: there is no other.
fn greedy(logits: &Tensor, asks: &[RowAsk<'_>], host: &Copied) -> Result<Option<Vec<RowAnswer>>> {
    let (_, vocabulary) = logits.dims2()?;
    let peaks = logits.max_keepdim(1)?;
    let ids = Tensor::arange(0, vocabulary as u32, logits.device())?.broadcast_as(logits.shape())?;
    let beyond = Tensor::new(u32::MAX, logits.device())?.broadcast_as(logits.shape())?;
    let best = host.vector::<u32>(&logits.broadcast_eq(&peaks)?.where_cond(&ids, &beyond)?.min(1)?)?;
    // A maximum may pass a NaN by; a sum does not.
    let sums = host.vector::<f32>(&logits.broadcast_sub(&peaks)?.exp()?.sum(1)?)?;
    if sums.iter().any(|sum| !sum.is_finite()) {
        return Ok(None);
    }
    let judged = asks.iter().zip(best).map(|(ask, token)| match ask.drafted {
        Some((drafted, q)) => RowAnswer {
            threshold: if drafted == token { threshold(1.0, q.prob(token)) } else { 0.0 },
            overlap: q.prob(token).min(1.0),
            token,
        },
        None => RowAnswer { threshold: 0.0, overlap: 0.0, token },
    });
    Ok(Some(judged.collect()))
}

fn sampled(
    logits: &Tensor,
    temperature: f64,
    asks: &[RowAsk<'_>],
    host: &Copied,
) -> Result<Option<Vec<RowAnswer>>> {
    let (count, vocabulary) = logits.dims2()?;
    let logits = logits.to_dtype(DType::F64)?;
    let scale = (1.0 / temperature).min(f64::MAX);
    let weights = (logits.broadcast_sub(&logits.max_keepdim(1)?)? * scale)?.exp()?;
    let totals = weights.sum_keepdim(1)?;
    let p = weights.broadcast_div(&totals)?;

    let proposals = Proposals::new(asks);
    let shape = (count, proposals.width);
    let ids = Tensor::from_slice(&proposals.ids, shape, p.device())?;
    let shares = Tensor::from_slice(&proposals.shares, shape, p.device())?;
    let q = p.zeros_like()?.scatter_add(&ids, &shares, 1)?;
    let residual = (&p - q)?.relu()?;
    // Where nothing is left, p and q being equal up to rounding, the token is drawn from p.
    let spent = residual.sum_keepdim(1)?.eq(0.0)?.broadcast_as(p.shape())?;
    let residual = spent.where_cond(&p, &residual)?;
    let blocks = vocabulary.div_ceil(BLOCK);
    let residual =
        residual.pad_with_zeros(1, 0, blocks * BLOCK - vocabulary)?.reshape((count, blocks, BLOCK))?;
    // One copy to the host for all that is small.
    let small = Tensor::cat(&[totals, p.gather(&ids, 1)?, residual.sum(D::Minus1)?], 1)?;
    let small = host.rows::<f64>(&small)?;

    let mut picks = Vec::with_capacity(count);
    for (row, ask) in small.iter().zip(asks) {
        let (total, sums) = (row[0], &row[1 + proposals.width..]);
        let mass: f64 = sums.iter().sum();
        if !(total.is_finite() && mass.is_finite() && mass > 0.0) {
            return Ok(None);
        }
        picks.push(pick(sums, ask.coin * mass));
    }
    let chosen: Vec<u32> =
        picks.iter().enumerate().map(|(i, pick)| (i * blocks + pick.index) as u32).collect();
    let chosen = Tensor::from_vec(chosen, count, p.device())?;
    let chosen = host.rows::<f64>(&residual.reshape((count * blocks, BLOCK))?.index_select(&chosen, 0)?)?;

    let judged = asks.iter().enumerate().map(|(i, ask)| {
        let within = pick(&chosen[i], picks[i].left);
        let token = (picks[i].index * BLOCK + within.index) as u32;
        let p = &small[i][1..=proposals.width];
        match ask.drafted {
            Some((drafted, q)) => {
                let known = || q.iter().zip(p);
                let drafted_p = known().find(|((id, _), _)| *id == drafted).map_or(0.0, |(_, &p)| p);
                RowAnswer {
                    threshold: threshold(drafted_p, q.prob(drafted)),
                    overlap: known().map(|((_, q), &p)| q.min(p)).sum(),
                    token,
                }
            }
            None => RowAnswer { threshold: 0.0, overlap: 0.0, token },
        }
    });
    Ok(Some(judged.collect()))
}

/// min(1, p/q).
fn threshold(p: f64, q: f64) -> f64 {
    if q <= 0.0 { 0.0 } else { (p / q).min(1.0) }
}

/// The supports of all q as rows of one width; filled up with shares of 0, which add nothing.
struct Proposals {
    width: usize,
    ids: Vec<u32>,
    shares: Vec<f64>,
}

impl Proposals {
    fn new(asks: &[RowAsk<'_>]) -> Self {
        // A tensor must not be empty.
        let width = asks.iter().map(|ask| support(ask).count()).max().unwrap_or(0).max(1);
        let (mut ids, mut shares) = (Vec::new(), Vec::new());
        for (row, ask) in asks.iter().enumerate() {
            for (id, share) in support(ask) {
                ids.push(id);
                shares.push(share);
            }
            ids.resize((row + 1) * width, 0);
            shares.resize((row + 1) * width, 0.0);
        }
        Self { width, ids, shares }
    }
}

/// The tokens that q may draw, with their shares; nothing without a q.
fn support<'a>(ask: &RowAsk<'a>) -> impl Iterator<Item = (u32, f64)> + use<'a> {
    ask.drafted.map(|(_, q)| q.iter()).into_iter().flatten()
}

/// Where a level falls among weights laid end to end.
struct Pick {
    index: usize,
    /// What is left of the level at the start of that weight.
    left: f64,
}

/// The first weight at which the running sum exceeds `level`, else the last above 0.
fn pick(weights: &[f64], level: f64) -> Pick {
    let mut sum = 0.0;
    let mut last = Pick { index: 0, left: 0.0 };
    for (index, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        last = Pick { index, left: level - sum };
        sum += weight;
        if level < sum {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use foretoken_acceptance::{Distribution, Lattice, LatticeShape, Proposal, overlap, repair, threshold};

    /// Rows of pseudo-random logits; the last is flat, the one before has ties at its peak.
    fn rows(count: usize, vocabulary: usize) -> Vec<Vec<f32>> {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let mut rows: Vec<Vec<f32>> =
            (0..count).map(|_| (0..vocabulary).map(|_| next() * 12.0).collect()).collect();
        rows[count - 1].fill(1.5);
        let tied = &mut rows[count - 2];
        (tied[vocabulary / 3], tied[vocabulary - 1]) = (13.0, 13.0);
        rows[0][vocabulary / 2] = f32::NEG_INFINITY;
        rows
    }

    fn judge(logits: &Tensor, sampling: &Sampling, asks: &[RowAsk<'_>]) -> Result<Option<Vec<RowAnswer>>> {
        super::judge(logits, sampling, asks, &Copied::default())
    }

    fn tensor(rows: &[Vec<f32>]) -> Tensor {
        Tensor::from_vec(rows.concat(), (rows.len(), rows[0].len()), &Device::Cpu).unwrap()
    }

    /// Compares the device's answers with those of `acceptance` on the same rows.
    fn check(vocabulary: usize, sampling: &Sampling) {
        let rows = rows(6, vocabulary);
        let p: Vec<_> = rows.iter().map(|row| Distribution::from_logits(row, sampling).unwrap()).collect();
        let mut lattice = Lattice::default();
        // Drafted from another row than judged, so that p and q differ; and once from the same.
        let other = Sampling::new(1.3, 0, 1.0, 0.0).unwrap();
        lattice.fill(&Distribution::from_logits(&rows[1], &other).unwrap(), LatticeShape::default());
        let drafted: Vec<u32> = lattice.iter().map(|(id, _)| id).collect();
        let best = p[2].argmax();
        for step in 0..12 {
            // Off every border of the flat row, where rounding alone would decide.
            let coin = (f64::from(step) + 0.371) / 12.0;
            let mut asks = Vec::new();
            for row in 0..rows.len() {
                let x = drafted[(row * 7 + step as usize) % drafted.len()];
                for drafted in [
                    Some((x, Proposal::Lattice(&lattice))),
                    Some((x, Proposal::OneHot(x))),
                    Some((best, Proposal::OneHot(best))),
                    None,
                ] {
                    asks.push(RowAsk { row, drafted, coin });
                }
            }
            let answers = judge(&tensor(&rows), sampling, &asks).unwrap().unwrap();
            assert_eq!(answers.len(), asks.len());
            for (ask, got) in asks.iter().zip(answers) {
                let p = &p[ask.row];
                let want = match ask.drafted {
                    Some((x, q)) => RowAnswer {
                        threshold: threshold(p, q, x),
                        overlap: overlap(p, q),
                        token: repair(p, q, ask.coin),
                    },
                    None => RowAnswer { threshold: 0.0, overlap: 0.0, token: p.draw(ask.coin) },
                };
                assert!((got.threshold - want.threshold).abs() < 1e-12, "{ask:?}: {got:?}, not {want:?}");
                assert!((got.overlap - want.overlap).abs() < 1e-12, "{ask:?}: {got:?}, not {want:?}");
                assert_eq!(got.token, want.token, "{ask:?}");
            }
        }
    }

    #[test]
    fn sampled_rows_are_judged_as_by_acceptance() {
        for (vocabulary, temperature) in [(64, 1.0), (512, 0.7), (1300, 2.5), (2000, 1e-3)] {
            check(vocabulary, &Sampling::new(temperature, 0, 1.0, 0.0).unwrap());
        }
    }

    #[test]
    fn greedy_rows_are_judged_as_by_acceptance() {
        check(700, &Sampling::GREEDY);
        check(700, &Sampling::new(0.0, 5, 0.5, 0.1).unwrap());
    }

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_likely() {
        let row = rows(6, 600)[3].clone();
        let sampling = Sampling::new(4.0, 0, 1.0, 0.0).unwrap();
        let p = Distribution::from_logits(&row, &sampling).unwrap();
        let draws = 60_000u32;
        let mut counts = vec![0u32; row.len()];
        let coins: Vec<f64> = (0..draws).map(|i| (f64::from(i) + 0.5) / f64::from(draws)).collect();
        for coins in coins.chunks(500) {
            let asks: Vec<_> = coins.iter().map(|&coin| RowAsk { row: 0, drafted: None, coin }).collect();
            for judged in judge(&tensor(std::slice::from_ref(&row)), &sampling, &asks).unwrap().unwrap() {
                counts[judged.token as usize] += 1;
            }
        }
        // Coins on an even grid: each token is met as often as grid points fit its share, give or take one.
        for (id, p) in &p {
            let expected = p * f64::from(draws);
            assert!((f64::from(counts[id as usize]) - expected).abs() <= 1.0 + 1e-6, "token {id}");
        }
    }

    #[test]
    fn what_had_better_be_read_is_not_answered() {
        let all = rows(3, 64);
        let ask = |row| [RowAsk { row, drafted: None, coin: 0.5 }];
        for (top_k, top_p, min_p) in [(5, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.1)] {
            let sampling = Sampling::new(1.0, top_k, top_p, min_p).unwrap();
            assert!(judge(&tensor(&all), &sampling, &ask(0)).unwrap().is_none());
        }
        for unusable in [f32::NAN, f32::INFINITY] {
            for sampling in [Sampling::GREEDY, Sampling::new(1.0, 0, 1.0, 0.0).unwrap()] {
                let mut faulty = all.clone();
                faulty[1][40] = unusable;
                assert!(judge(&tensor(&faulty), &sampling, &ask(1)).unwrap().is_none());
                assert!(judge(&tensor(&faulty), &sampling, &ask(0)).unwrap().is_some());
                let masked = vec![vec![f32::NEG_INFINITY; 64]];
                assert!(judge(&tensor(&masked), &sampling, &ask(0)).unwrap().is_none());
            }
        }
    }

    #[test]
    fn what_comes_to_the_host_is_counted_and_is_far_less_than_the_rows() {
        let (count, vocabulary) = (6, 1300);
        let logits = tensor(&rows(count, vocabulary));
        let asks: Vec<_> = (0..count)
            .map(|row| RowAsk { row, drafted: Some((3, Proposal::OneHot(3))), coin: 0.5 })
            .collect();
        let copied = |sampling| {
            let host = Copied::default();
            super::judge(&logits, &sampling, &asks, &host).unwrap().unwrap();
            host.bytes()
        };
        // A token and a sum a row.
        assert_eq!(copied(Sampling::GREEDY), 8 * count as u64);
        // A total, p at one token, the sums of three blocks, and the weights of one.
        let sampled = Sampling::new(1.0, 0, 1.0, 0.0).unwrap();
        assert_eq!(copied(sampled), 8 * (1 + 1 + 3 + BLOCK as u64) * count as u64);
    }
}
