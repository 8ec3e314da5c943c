//! The ratio of medians with an interval from resampled blocks. Simpler to
//! explain than the Hodges-Lehmann estimate, and wider.

use crate::stats::random::Random;
use crate::stats::signed_rank::Estimate;
use crate::stats::summary::{median, median_in_place, quantile_of_sorted, sorted};

/// How often blocks are drawn again.
pub const RESAMPLES: usize = 20_000;
/// Draws of single blocks in all; very long tables are resampled less often.
const DRAWS_MAX: usize = 40_000_000;
/// Resamples at least: fewer say nothing about a tail.
const RESAMPLES_MIN: usize = 400;
/// The same draws each time: a table has one interval, not one a day.
const SEED: u64 = 20_130_131;

/// The median of `second` over the median of `first`, block by block the same
/// length, with its interval; one block alone has none.
#[must_use]
pub fn ratio_of_medians(first: &[f64], second: &[f64], confidence: f64) -> Option<Estimate> {
    if first.len() != second.len() || first.is_empty() {
        return None;
    }
    let value = median(second)? / median(first)?;
    if first.len() == 1 {
        return Some(Estimate { value, low: f64::NAN, high: f64::NAN });
    }
    let mut random = Random::new(SEED);
    let resamples = (DRAWS_MAX / first.len()).clamp(RESAMPLES_MIN, RESAMPLES);
    let mut ratios = Vec::with_capacity(resamples);
    let (mut one, mut other) = (vec![0.0; first.len()], vec![0.0; first.len()]);
    for _ in 0..resamples {
        for (a, b) in one.iter_mut().zip(&mut other) {
            let drawn = random.below(first.len());
            *a = *first.get(drawn)?;
            *b = *second.get(drawn)?;
        }
        ratios.push(median_in_place(&mut other)? / median_in_place(&mut one)?);
    }
    let ratios = sorted(&ratios);
    let tail = (1.0 - confidence) / 2.0;
    Some(Estimate {
        value,
        low: quantile_of_sorted(&ratios, tail)?,
        high: quantile_of_sorted(&ratios, 1.0 - tail)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_the_same_each_time_and_holds_the_ratio() {
        let mut random = Random::new(5);
        let first: Vec<f64> = (0..40).map(|_| (0.1 * random.normal()).exp()).collect();
        let second: Vec<f64> =
            first.iter().map(|v| v * 1.2 * (0.01 * random.normal()).exp()).collect();
        let found = ratio_of_medians(&first, &second, 0.95).unwrap();
        assert_eq!(Some(found), ratio_of_medians(&first, &second, 0.95));
        assert!(found.low < 1.2 && 1.2 < found.high, "{found:?}");
        assert!(1.1 < found.low && found.high < 1.3, "{found:?}");
        // Drawn in pairs: arms that always differ alike have no spread at all.
        let double: Vec<f64> = first.iter().map(|v| v * 2.0).collect();
        let exact = ratio_of_medians(&first, &double, 0.95).unwrap();
        assert_eq!((exact.low, exact.value, exact.high), (2.0, 2.0, 2.0));
        assert_eq!(ratio_of_medians(&[], &[], 0.95), None);
        assert_eq!(ratio_of_medians(&[1.0], &[1.0, 2.0], 0.95), None);
    }
}
