//! Pairs: Wilcoxon's signed rank test, and the Hodges-Lehmann estimate with the
//! interval that belongs to it.
//!
//! With logarithms of ratios as differences, the estimate is the typical ratio
//! within a block, and the interval holds every ratio that the test would not
//! reject. Neither moves much for a wild figure.
//!
//! The p-values are those of `scipy.stats.wilcoxon(d)`: zeros are dropped; the
//! distribution is exact up to 50 differences where none are alike and none
//! zero, and up to 13 in any case; beyond it is normal, corrected for ties.

use crate::stats::distribution::{normal_below, normal_quantile};
use crate::stats::ranks::rank;
use crate::stats::summary::sorted;

/// Up to this number of differences the distribution is counted out.
const EXACT_MAX: usize = 50;
/// Up to this number also where some are alike, as SciPy does.
const EXACT_WITH_TIES_MAX: usize = 13;

/// What the test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignedRank {
    /// The sum of the ranks of the positive differences.
    pub plus: f64,
    /// The chance of something as far from no difference, either way.
    pub p: f64,
    /// The chance of so low a sum: small if the differences are below zero.
    pub p_below: f64,
    /// Whether the distribution was counted out.
    pub exact: bool,
}

/// An estimate and its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Where the interval begins; minus infinity where there are too few
    /// differences for any interval.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
}

/// Tests whether `differences` lie around zero. `None` if there are none but
/// zeros.
#[must_use]
pub fn signed_rank(differences: &[f64]) -> Option<SignedRank> {
    let used: Vec<f64> = differences.iter().copied().filter(|value| *value != 0.0).collect();
    if used.is_empty() {
        return None;
    }
    let sizes: Vec<f64> = used.iter().map(|value| value.abs()).collect();
    let ranked = rank(&sizes);
    let plus = ranked
        .ranks
        .iter()
        .zip(&used)
        .filter(|(_, value)| **value > 0.0)
        .map(|(rank, _)| rank)
        .sum();
    let clean = !ranked.has_ties() && used.len() == differences.len();
    let exact_max = if clean { EXACT_MAX } else { EXACT_WITH_TIES_MAX };
    let exact = differences.len() <= exact_max;
    let (below, above) = if exact {
        exact_tails(&ranked.ranks, plus)
    } else {
        normal_tails(used.len(), ranked.tie_term, plus)
    };
    Some(SignedRank { plus, p: (2.0 * below.min(above)).min(1.0), p_below: below, exact })
}

/// The chances of a sum at most and at least `plus`, each rank being in it or
/// not by the toss of a coin.
fn exact_tails(ranks: &[f64], plus: f64) -> (f64, f64) {
    // Halves of ranks are shared ranks: all is counted in halves.
    let halves = |rank: f64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let halves = (2.0 * rank).round() as usize;
        halves
    };
    let ways = ways(ranks.iter().map(|rank| halves(*rank)));
    let all: f64 = ways.iter().sum();
    let place = halves(plus);
    let below: f64 = ways.iter().take(place + 1).sum();
    let above: f64 = ways.iter().skip(place).sum();
    (below / all, above / all)
}

/// In how many ways each sum comes about. At most 2^50 of them: exact.
fn ways(parts: impl Iterator<Item = usize>) -> Vec<f64> {
    let mut ways = vec![1.0];
    for part in parts {
        let mut next = ways.clone();
        next.resize(ways.len() + part, 0.0);
        for (sum, count) in next.iter_mut().skip(part).zip(&ways) {
            *sum += count;
        }
        ways = next;
    }
    ways
}

fn normal_tails(count: usize, tie_term: f64, plus: f64) -> (f64, f64) {
    let count = count as f64;
    let mean = count * (count + 1.0) / 4.0;
    let variance = (count * (count + 1.0) * (2.0 * count + 1.0) - tie_term / 2.0) / 24.0;
    let z = (plus - mean) / variance.sqrt();
    (normal_below(z), normal_below(-z))
}

/// The Hodges-Lehmann estimate: the median of the means of all pairs of
/// differences (each with itself too), with an interval that holds the truth
/// with at least `confidence`. Zeros and ties stay in, which makes it a little
/// wider than need be.
#[must_use]
pub fn hodges_lehmann(differences: &[f64], confidence: f64) -> Option<Estimate> {
    if differences.is_empty() || differences.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let sorted = sorted(differences);
    let means = sorted.len() * (sorted.len() + 1) / 2;
    let lower = mean_at(&sorted, means.div_ceil(2))?;
    let upper = mean_at(&sorted, means / 2 + 1)?;
    let outside = outside(sorted.len(), confidence);
    let (low, high) = if outside == 0 {
        (f64::NEG_INFINITY, f64::INFINITY)
    } else {
        (mean_at(&sorted, outside)?, mean_at(&sorted, means + 1 - outside)?)
    };
    Some(Estimate { value: f64::midpoint(lower, upper), low, high })
}

/// The place of the interval's bounds among the ordered means, counted from
/// either end from 1; 0 if so few differences bound nothing.
fn outside(count: usize, confidence: f64) -> usize {
    let tail = (1.0 - confidence) / 2.0;
    if count <= EXACT_MAX {
        let ways = ways(1..=count);
        let all: f64 = ways.iter().sum();
        let mut sum = 0.0;
        return ways
            .iter()
            .take_while(|count| {
                sum += **count;
                sum <= tail * all
            })
            .count();
    }
    let count = count as f64;
    let mean = count * (count + 1.0) / 4.0;
    let sd = (count * (count + 1.0) * (2.0 * count + 1.0) / 24.0).sqrt();
    let place = (mean + normal_quantile(tail) * sd).floor();
    // Not negative: the floor of a positive number, or cut off at zero.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let place = place.max(0.0) as usize;
    place
}

/// The mean of two of the values at `place` (from 1) among all such means in
/// ascending order. Found by halving between the smallest and the largest, so
/// that millions of means need no memory.
fn mean_at(sorted: &[f64], place: usize) -> Option<f64> {
    let (mut low, mut high) = (*sorted.first()?, *sorted.last()?);
    if means_up_to(sorted, low) >= place {
        return Some(low);
    }
    // Below `low` there are too few, up to `high` there are enough.
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            return Some(high);
        }
        if means_up_to(sorted, middle) >= place {
            high = middle;
        } else {
            low = middle;
        }
    }
}

/// How many means of two values (each with itself too) are at most `bound`.
fn means_up_to(sorted: &[f64], bound: f64) -> usize {
    let mut partners = sorted.len();
    let mut count = 0;
    for (index, value) in sorted.iter().enumerate() {
        // The larger the one, the fewer partners fit.
        while partners > index
            && sorted.get(partners - 1).is_some_and(|other| f64::midpoint(*value, *other) > bound)
        {
            partners -= 1;
        }
        if partners <= index {
            break;
        }
        count += partners - index;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: [f64; 10] = [0.31, -0.12, 0.47, 1.2, -0.05, 0.66, 0.21, -0.9, 0.74, 0.02];

    fn made(count: u32, make: impl Fn(u32) -> f64) -> Vec<f64> {
        (0..count).map(make).collect()
    }

    /// scipy.stats.wilcoxon(d).pvalue and, for the last figure, with
    /// alternative='less'.
    #[test]
    fn tests_are_those_of_scipy() {
        let tied_and_zero = vec![1.0, 1.0, -1.0, 2.0, 0.0, 3.0, -2.0, 2.0];
        let tied = made(20, |i| f64::from(i * 37 % 53) - 20.0);
        let zeros = made(20, |i| f64::from(i * 7 % 9) - 3.0);
        let many = made(60, |i| (f64::from(i * 37 % 113) - 50.0) / 10.0 + 0.01 * f64::from(i));
        for (d, p, p_below, exact) in [
            (CLEAN.to_vec(), 0.193_359_375, 0.919_921_875, true),
            (tied_and_zero, 0.328_125, 0.914_062_5, true),
            (tied, 0.131_082_697_702_015_72, 0.934_458_651_148_992_2, false),
            (zeros, 0.130_898_892_706_909_1, 0.934_550_553_646_545_5, false),
            (many, 0.060_489_486_634_613_454, 0.969_755_256_682_693_2, false),
        ] {
            let test = signed_rank(&d).unwrap();
            assert!((test.p - p).abs() < 1e-9, "{test:?} {p}");
            assert!((test.p_below - p_below).abs() < 1e-9, "{test:?} {p_below}");
            assert_eq!(test.exact, exact);
        }
        assert_eq!(signed_rank(&[0.0, 0.0]), None);
    }

    /// The medians and bounds of numpy.sort((d[i] + d[j]) / 2) for i <= j, with
    /// the places from the exact distribution of SciPy's wilcoxon.
    #[test]
    fn estimates_and_intervals_are_counted_out() {
        let tied = made(20, |i| f64::from(i * 37 % 53) - 20.0);
        for (d, confidence, value, low, high) in [
            (&CLEAN[..], 0.95, 0.27, -0.12, 0.66),
            (&CLEAN[..], 0.90, 0.27, -0.08, 0.605),
            (&tied[..], 0.95, 5.5, -2.5, 13.5),
            (&tied[..], 0.90, 5.5, -0.5, 11.5),
        ] {
            let found = hodges_lehmann(d, confidence).unwrap();
            assert!((found.value - value).abs() < 1e-12, "{found:?} {value}");
            assert!((found.low - low).abs() < 1e-12, "{found:?} {low}");
            assert!((found.high - high).abs() < 1e-12, "{found:?} {high}");
        }
    }

    #[test]
    fn five_pairs_bound_nothing_at_95_percent_and_six_do() {
        let five = hodges_lehmann(&CLEAN[..5], 0.95).unwrap();
        assert_eq!((five.low, five.high), (f64::NEG_INFINITY, f64::INFINITY));
        let six = hodges_lehmann(&CLEAN[..6], 0.95).unwrap();
        assert_eq!((six.low, six.high), (-0.12, 1.2));
        assert_eq!(hodges_lehmann(&[], 0.95), None);
        assert_eq!(hodges_lehmann(&[f64::NAN], 0.95), None);
    }

    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        let mut random = crate::stats::random::Random::new(3);
        for count in [8, 30, 70] {
            let held = (0..1000)
                .filter(|_| {
                    let d: Vec<f64> = (0..count).map(|_| random.normal()).collect();
                    let found = hodges_lehmann(&d, 0.95).unwrap();
                    found.low <= 0.0 && 0.0 <= found.high
                })
                .count();
            // 950 expected, 7 the standard deviation.
            assert!((929..=980).contains(&held), "{held} of 1000 at {count}");
        }
    }
}
