//! More than two arms: is there any difference at all (Friedman in blocks,
//! Kruskal-Wallis without), and how p-values of several questions are corrected
//! (Holm).

use crate::stats::distribution::chi_square_above;
use crate::stats::ranks::rank;

/// What the Friedman test says.
#[derive(Debug, Clone, PartialEq)]
pub struct Friedman {
    /// The statistic, corrected for ties.
    pub chi_square: f64,
    /// The chance of as much.
    pub p: f64,
    /// Kendall's W: 0 no agreement of the blocks about the order, 1 complete.
    pub kendall_w: f64,
    /// The mean rank of each arm within its block.
    pub mean_ranks: Vec<f64>,
}

/// Compares arms in blocks; each block holds one figure of every arm.
#[must_use]
pub fn friedman(blocks: &[Vec<f64>]) -> Option<Friedman> {
    let arms = blocks.first()?.len();
    if arms < 2 || blocks.iter().any(|block| block.len() != arms) {
        return None;
    }
    let mut sums = vec![0.0; arms];
    let mut tie_term = 0.0;
    for block in blocks {
        let ranked = rank(block);
        tie_term += ranked.tie_term;
        for (sum, rank) in sums.iter_mut().zip(&ranked.ranks) {
            *sum += rank;
        }
    }
    let (n, k) = (blocks.len() as f64, arms as f64);
    let squares: f64 = sums.iter().map(|sum| sum * sum).sum();
    let uncorrected = 12.0 / (n * k * (k + 1.0)) * squares - 3.0 * n * (k + 1.0);
    let correction = 1.0 - tie_term / (n * k * (k * k - 1.0));
    // All alike in every block: no order, so no difference.
    let chi_square = if correction > 0.0 { (uncorrected / correction).max(0.0) } else { 0.0 };
    Some(Friedman {
        chi_square,
        p: chi_square_above(chi_square, arms - 1),
        kendall_w: chi_square / (n * (k - 1.0)),
        mean_ranks: sums.iter().map(|sum| sum / n).collect(),
    })
}

/// The p-value of the Kruskal-Wallis test.
#[must_use]
pub fn kruskal_wallis(arms: &[Vec<f64>]) -> Option<f64> {
    if arms.len() < 2 || arms.iter().any(Vec::is_empty) {
        return None;
    }
    let ranked = rank(&arms.concat());
    let n = ranked.ranks.len() as f64;
    let mut rest = ranked.ranks.as_slice();
    let mut sum = 0.0;
    for arm in arms {
        let (mine, others) = rest.split_at_checked(arm.len())?;
        sum += mine.iter().sum::<f64>().powi(2) / arm.len() as f64;
        rest = others;
    }
    let correction = 1.0 - ranked.tie_term / (n.powi(3) - n);
    let h = (12.0 / (n * (n + 1.0)) * sum - 3.0 * (n + 1.0)) / correction;
    Some(if correction > 0.0 { chi_square_above(h, arms.len() - 1) } else { 1.0 })
}

/// P-values such that all questions together are wrongly answered no more
/// often than one alone would be.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = p_values.iter().copied().enumerate().collect();
    order.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let mut corrected = vec![1.0; p_values.len()];
    let mut highest: f64 = 0.0;
    for (place, (index, p)) in order.into_iter().enumerate() {
        let left = (p_values.len() - place) as f64;
        highest = highest.max((p * left).min(1.0));
        if let Some(target) = corrected.get_mut(index) {
            *target = highest;
        }
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: [[f64; 3]; 7] = [
        [9.0, 7.0, 8.0],
        [6.0, 5.0, 5.0],
        [4.0, 4.0, 4.0],
        [8.0, 9.0, 7.0],
        [3.0, 5.0, 6.0],
        [7.0, 6.0, 9.0],
        [2.0, 3.0, 4.0],
    ];

    /// scipy.stats.friedmanchisquare and kruskal of the columns.
    #[test]
    fn tests_are_those_of_scipy() {
        let blocks: Vec<Vec<f64>> = BLOCKS.iter().map(|block| block.to_vec()).collect();
        let test = friedman(&blocks).unwrap();
        assert!((test.chi_square - 0.782_608_695_652_169).abs() < 1e-9, "{test:?}");
        assert!((test.p - 0.676_174_332_531_749_3).abs() < 1e-9, "{test:?}");
        assert!((test.kendall_w - test.chi_square / 14.0).abs() < 1e-15);
        let columns: Vec<Vec<f64>> =
            (0..3).map(|arm| BLOCKS.iter().map(|block| block[arm]).collect()).collect();
        let p = kruskal_wallis(&columns).unwrap();
        assert!((p - 0.852_420_796_814_070_3).abs() < 1e-9, "{p}");
        assert_eq!(friedman(&[]), None);
        assert_eq!(friedman(&[vec![1.0, 2.0], vec![1.0]]), None);
        assert_eq!(friedman(&[vec![1.0, 1.0]]).unwrap().p, 1.0);
        assert_eq!(kruskal_wallis(&[vec![1.0], vec![]]), None);
    }

    /// The example of R's p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
    #[test]
    fn corrected_p_values_never_fall_below_a_smaller_one() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-15, "{corrected:?}");
        }
        assert_eq!(holm(&[0.7, 0.8]), [1.0, 1.0]);
    }
}
