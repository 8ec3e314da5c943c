//! Successes out of tries, with the interval of Clopper and Pearson: it holds
//! the truth at least as often as it says, also for none or all.

use crate::stats::distribution::beta_below;
use crate::stats::signed_rank::Estimate;

/// The share of `successes` in `tries`. `None` for no tries, or more successes
/// than tries.
#[must_use]
pub fn share(successes: f64, tries: f64, confidence: f64) -> Option<Estimate> {
    let possible = tries >= 1.0 && tries.is_finite() && (0.0..=tries).contains(&successes);
    if !possible {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    let failures = tries - successes;
    let low = if successes > 0.0 { beta_quantile(tail, successes, failures + 1.0) } else { 0.0 };
    let high =
        if failures > 0.0 { beta_quantile(1.0 - tail, successes + 1.0, failures) } else { 1.0 };
    Some(Estimate { value: successes / tries, low, high })
}

/// Where a beta variable is below with chance `chance`, by halving.
fn beta_quantile(chance: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    // A double between 0 and 1 is pinned down by 60 halvings near 1, and near 0
    // to 18 digits behind the point.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if beta_below(middle, a, b) < chance {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy.stats.binomtest(k, n).proportion_ci(method='exact')
    #[test]
    fn intervals_are_those_of_scipy() {
        for (successes, tries, low, high) in [
            (0.0, 20.0, 0.0, 0.168_433_470_983_085_48),
            (20.0, 20.0, 0.831_566_529_016_914_5, 1.0),
            (7.0, 20.0, 0.153_909_204_784_541_2, 0.592_188_534_532_828_3),
            (65535.0, 65536.0, 0.999_914_986_433_999_9, 0.999_999_613_681_330_4),
        ] {
            let found = share(successes, tries, 0.95).unwrap();
            assert!((found.low - low).abs() < 1e-9, "{found:?} {low}");
            assert!((found.high - high).abs() < 1e-9, "{found:?} {high}");
        }
        assert_eq!(share(1.0, 0.0, 0.95), None);
        assert_eq!(share(3.0, 2.0, 0.95), None);
        assert_eq!(share(f64::NAN, 2.0, 0.95), None);
    }
}
