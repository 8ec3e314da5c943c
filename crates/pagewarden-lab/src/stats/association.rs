//! Whether figures hang together that should not: with the time of their run
//! (drift), or with the run before (memory).

use crate::stats::distribution::student_beyond;
use crate::stats::ranks::rank;

/// How two rows of figures go together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Association {
    /// From -1 to 1.
    pub rho: f64,
    /// The chance of as much by chance.
    pub p: f64,
}

/// Spearman's rank correlation.
#[must_use]
pub fn spearman(one: &[f64], other: &[f64]) -> Option<Association> {
    if one.len() != other.len() || one.len() < 3 {
        return None;
    }
    let (one, other) = (rank(one).ranks, rank(other).ranks);
    let count = one.len() as f64;
    let middle = f64::midpoint(count, 1.0);
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum()
    };
    let spread = (product(&one, &one) * product(&other, &other)).sqrt();
    if spread <= 0.0 {
        return None;
    }
    let rho = (product(&one, &other) / spread).clamp(-1.0, 1.0);
    let degrees = count - 2.0;
    let p = if rho.abs() < 1.0 {
        student_beyond(rho * (degrees / (1.0 - rho * rho)).sqrt(), degrees)
    } else {
        0.0
    };
    Some(Association { rho, p })
}

/// How figures go with their own order.
#[must_use]
pub fn drift(values: &[f64]) -> Option<Association> {
    let order: Vec<f64> = (0..values.len()).map(|index| index as f64).collect();
    spearman(&order, values)
}

/// How each figure goes with the one before it, by ranks.
#[must_use]
pub fn memory(values: &[f64]) -> Option<Association> {
    let (_, later) = values.split_first()?;
    let (_, earlier) = values.split_last()?;
    spearman(earlier, later)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy.stats.spearmanr
    #[test]
    fn correlations_are_those_of_scipy() {
        let close = |found: Option<Association>, rho: f64, p: f64| {
            let found = found.unwrap();
            assert!((found.rho - rho).abs() < 1e-12 && (found.p - p).abs() < 1e-9, "{found:?}");
        };
        let order = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let other = [2.0, 1.0, 4.0, 3.0, 7.0, 8.0, 6.0, 5.0];
        close(spearman(&order, &other), 0.738_095_238_095_238_1, 0.036_552_761_052_860_81);
        let v = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0, 5.0, 8.0];
        close(drift(&v), 0.526_531_352_091_463_5, 0.078_630_468_136_324_59);
        close(memory(&v), -0.006_993_025_991_587_448, 0.983_719_699_635_587);
        close(spearman(&order, &order), 1.0, 0.0);
        assert_eq!(spearman(&order, &[1.0; 8]), None);
        assert_eq!(drift(&[1.0, 2.0]), None);
        assert_eq!(memory(&[]), None);
    }
}
