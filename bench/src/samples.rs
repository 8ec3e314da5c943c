//! Figures of several rounds: medians, spreads, ratios.

use pagewarden_lab::stats::verdict::{Level, estimate};

/// The middle of `values`, or of the middle two; `None` of nothing.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// A figure against another, taken in the same rounds.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    /// The ratio of the medians.
    pub of_medians: f64,
    /// The median of each round's ratio: what disturbs a round disturbs both.
    pub paired: f64,
}

impl Ratio {
    /// `values` against `base`, round by round.
    pub fn new(values: &[f64], base: &[f64]) -> Option<Self> {
        Some(Self {
            of_medians: median(values.to_vec())? / median(base.to_vec())?,
            paired: median(values.iter().zip(base).map(|(value, base)| value / base).collect())?,
        })
    }
}

/// How often one takes what the other takes, with its interval.
pub fn ratio_with_interval(one: &[f64], other: &[f64]) -> String {
    let logs: Vec<f64> = one.iter().zip(other).map(|(one, other)| (one / other).ln()).collect();
    let Some(judged) = estimate(&logs, Level::default()) else { return "not known".to_owned() };
    let of = judged.estimate;
    if of.low.is_finite() && of.high.is_finite() {
        format!("x{:.2} [{:.2}, {:.2}]", of.value.exp(), of.low.exp(), of.high.exp())
    } else {
        format!("x{:.2} (too few rounds for an interval)", of.value.exp())
    }
}

/// `0.187 (0.172..0.193)`.
pub fn spread(values: &[f64]) -> String {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(0.0, f64::max);
    format!("{:.3} ({min:.3}..{max:.3})", median(values.to_vec()).unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let ratio = Ratio::new(&[1.0, 4.0, 9.0], &[1.0, 2.0, 3.0]).unwrap();
        assert!((ratio.of_medians - 2.0).abs() < 1e-9 && (ratio.paired - 2.0).abs() < 1e-9);
        assert_eq!(spread(&[0.5, 0.25, 1.0]), "0.500 (0.250..1.000)");
    }
}
