//! Ranks: what most of the tests here work on.

/// Values closer than this part of their size are equal. A ratio and its
/// inverse have logarithms that differ in the last bit.
const EQUAL: f64 = 1e-12;

/// The ranks of some values, and how many are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranks {
    /// From 1; equal values share the mean of their ranks.
    pub ranks: Vec<f64>,
    /// The sum of t^3 - t over every group of t equal values.
    pub tie_term: f64,
}

impl Ranks {
    /// True if some values are alike.
    #[must_use]
    pub fn has_ties(&self) -> bool {
        self.tie_term > 0.0
    }
}

/// Ranks `values`.
#[must_use]
pub fn rank(values: &[f64]) -> Ranks {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let mut ranks = vec![0.0; values.len()];
    let mut tie_term = 0.0;
    let mut begin = 0;
    let alike = |one: &(usize, f64), next: &(usize, f64)| {
        next.1 - one.1 <= EQUAL * one.1.abs().max(next.1.abs())
    };
    for group in order.chunk_by(alike) {
        let size = group.len() as f64;
        // The mean of begin + 1 to begin + size.
        let shared = begin as f64 + f64::midpoint(size, 1.0);
        for (index, _) in group {
            if let Some(rank) = ranks.get_mut(*index) {
                *rank = shared;
            }
        }
        tie_term += size.powi(3) - size;
        begin += group.len();
    }
    Ranks { ranks, tie_term }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy.stats.rankdata([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
    #[test]
    fn equal_values_share_a_rank() {
        let ranked = rank(&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0, 5.0]);
        assert_eq!(ranked.ranks, [4.5, 1.5, 6.0, 1.5, 8.0, 11.0, 3.0, 10.0, 8.0, 4.5, 8.0]);
        assert_eq!(ranked.tie_term, 6.0 + 6.0 + 24.0);
        assert!(ranked.has_ties());
        assert!(!rank(&[2.0, 1.0]).has_ties());
    }

    #[test]
    fn a_ratio_and_its_inverse_are_equally_far_from_one() {
        let away = [(3.0_f64 / 7.0).ln().abs(), (7.0_f64 / 3.0).ln().abs()];
        assert_eq!(rank(&away).ranks, [1.5, 1.5]);
    }
}
