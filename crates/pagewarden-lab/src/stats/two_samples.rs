//! Two arms without regard to blocks: the Mann-Whitney test. Weaker than pairs
//! wherever blocks have a common fate; shown beside them for comparison.

use crate::stats::distribution::normal_below;
use crate::stats::ranks::rank;

/// Up to this number of figures in the smaller arm the distribution is counted out,
/// if none are alike (as `scipy.stats.mannwhitneyu` does).
const EXACT_MAX: usize = 8;
/// Counting costs memory by the product of both counts.
const EXACT_PRODUCT_MAX: usize = 4000;

/// What the test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// In how many of all cross pairs the second is the larger, ties counting
    /// half.
    pub u: f64,
    /// The chance of something as far from a balance, either way.
    pub p: f64,
    /// The chance that a figure of the second arm is the larger one.
    pub larger: f64,
}

/// Compares `second` with `first`.
#[must_use]
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Option<MannWhitney> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let both: Vec<f64> = second.iter().chain(first).copied().collect();
    let ranked = rank(&both);
    let (n, m) = (second.len(), first.len());
    let sum: f64 = ranked.ranks.iter().take(n).sum();
    let u = sum - (n * (n + 1)) as f64 / 2.0;
    let product = n * m;
    let exact = n.min(m) <= EXACT_MAX && product <= EXACT_PRODUCT_MAX && !ranked.has_ties();
    let p = if exact {
        2.0 * exact_tail(n, m, u.max(product as f64 - u))
    } else {
        let all = (n + m) as f64;
        let ties = ranked.tie_term / (all * (all - 1.0));
        let sd = (product as f64 / 12.0 * (all + 1.0 - ties)).sqrt();
        let away = (u - product as f64 / 2.0).abs() - 0.5;
        if sd > 0.0 { 2.0 * normal_below(-away / sd) } else { 1.0 }
    };
    Some(MannWhitney { u, p: p.min(1.0), larger: u / product as f64 })
}

/// The chance of a U of at least `u`.
fn exact_tail(n: usize, m: usize, u: f64) -> f64 {
    // ways[taken][sum]: choices of `taken` of the figures seen so far, each
    // adding the number of unchosen figures below it.
    let mut ways = vec![vec![0.0; n * m + 1]; n + 1];
    if let Some(none) = ways.first_mut().and_then(|row| row.first_mut()) {
        *none = 1.0;
    }
    for seen in 0..n + m {
        for taken in (0..n.min(seen + 1)).rev() {
            let below = seen - taken;
            let (head, tail) = ways.split_at_mut(taken + 1);
            if let (Some(from), Some(to)) = (head.last(), tail.first_mut()) {
                for (target, count) in to.iter_mut().skip(below).zip(from) {
                    *target += count;
                }
            }
        }
    }
    let Some(row) = ways.last() else { return f64::NAN };
    let all: f64 = row.iter().sum();
    let at_least: f64 =
        row.iter().enumerate().filter(|(sum, _)| *sum as f64 >= u).map(|(_, count)| count).sum();
    at_least / all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy.stats.mannwhitneyu(second, first)
    #[test]
    fn tests_are_those_of_scipy() {
        let first = [12.1, 13.4, 11.8, 15.0, 14.2, 12.9];
        let second = [14.8, 13.9, 16.1, 15.5, 14.4];
        let test = mann_whitney(&first, &second).unwrap();
        assert_eq!(test.u, 26.0);
        assert!((test.p - 0.051_948_051_948_051_95).abs() < 1e-12, "{test:?}");
        let first: Vec<f64> = (0..15).map(|i| f64::from(i * 7 % 23)).collect();
        let second: Vec<f64> = (0..12).map(|i| f64::from(i * 5 % 19 + 3)).collect();
        let test = mann_whitney(&first, &second).unwrap();
        assert_eq!(test.u, 96.5);
        assert!((test.p - 0.769_458_471_671_508_9).abs() < 1e-9, "{test:?}");
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[1.0; 30], &[1.0; 30]).unwrap().p, 1.0);
    }
}
