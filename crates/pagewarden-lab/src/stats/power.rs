//! How many blocks a question needs.
//!
//! The signed rank test needs about `(z sd / effect)^2 * pi/3` pairs: what a
//! t-test needs, over its efficiency for normal noise. `sd` is the robust
//! standard deviation of the logarithms of the ratios within blocks.

use crate::stats::distribution::normal_quantile;

/// The chance that what is there is found.
pub const POWER: f64 = 0.8;
/// The efficiency of ranks against means where noise is normal: 3/pi.
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;
/// Fewer pairs never bound an interval of 95 %: 2/2^5 is above 0.05.
pub const BLOCKS_MIN: u64 = 6;
/// More is no plan.
const BLOCKS_MAX: f64 = 1e6;

/// The blocks after which a difference of `effect` (a logarithm) can be shown
/// or excluded with 80 % power, by a test that errs on one side with chance
/// `alpha`.
#[must_use]
pub fn blocks_needed(sd: f64, effect: f64, alpha: f64) -> Option<u64> {
    let z = normal_quantile(1.0 - alpha) + normal_quantile(POWER);
    // A hair off, so that rounding does not ask for one block more.
    let blocks = ((z * sd / effect).powi(2) / EFFICIENCY - 1e-9).ceil();
    let plausible = sd.is_finite() && effect > 0.0 && blocks <= BLOCKS_MAX;
    // Not negative, and bounded above.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let blocks = blocks as u64;
    plausible.then(|| blocks.max(BLOCKS_MIN))
}

/// The smallest difference (a logarithm) that this number of blocks can show.
#[must_use]
pub fn visible_effect(sd: f64, blocks: usize, alpha: f64) -> Option<f64> {
    let z = normal_quantile(1.0 - alpha) + normal_quantile(POWER);
    (blocks > 0 && sd.is_finite()).then(|| z * sd / (blocks as f64 * EFFICIENCY).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 pairs that show 6 % with 80 % power need about 270 for 2 %, and about
    /// 45 for 5 %.
    #[test]
    fn nine_times_the_blocks_show_a_third_of_the_effect() {
        let sd = 0.06_f64.ln_1p() / visible_effect(1.0, 30, 0.05).unwrap();
        assert_eq!(blocks_needed(sd, 0.06_f64.ln_1p(), 0.05), Some(30));
        let two = blocks_needed(sd, 0.02_f64.ln_1p(), 0.05).unwrap();
        let five = blocks_needed(sd, 0.05_f64.ln_1p(), 0.05).unwrap();
        assert!((255..=265).contains(&two), "{two}");
        assert!((41..=45).contains(&five), "{five}");
        assert_eq!(blocks_needed(0.0, 0.02, 0.05), Some(BLOCKS_MIN));
        assert_eq!(blocks_needed(f64::NAN, 0.02, 0.05), None);
        assert_eq!(blocks_needed(0.1, 0.0, 0.05), None);
    }
}
