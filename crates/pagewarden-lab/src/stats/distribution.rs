//! Tails of the distributions that the tests lead to.

use statrs::function::{beta, erf, gamma};

/// The chance that a standard normal is at most `z`.
#[must_use]
pub fn normal_below(z: f64) -> f64 {
    0.5 * erf::erfc(-z / std::f64::consts::SQRT_2)
}

/// The value that a standard normal is below with chance `share`.
#[must_use]
pub fn normal_quantile(share: f64) -> f64 {
    -std::f64::consts::SQRT_2 * erf::erfc_inv(2.0 * share.clamp(0.0, 1.0))
}

/// The chance that a chi-square with `degrees` of freedom is above `value`.
#[must_use]
pub fn chi_square_above(value: f64, degrees: usize) -> f64 {
    if !value.is_finite() || value <= 0.0 || degrees == 0 {
        return 1.0;
    }
    gamma::checked_gamma_ur(degrees as f64 / 2.0, value / 2.0).unwrap_or(f64::NAN)
}

/// The chance that Student's t with `degrees` of freedom is further from zero
/// than `t`.
#[must_use]
pub fn student_beyond(t: f64, degrees: f64) -> f64 {
    beta_below(degrees / (degrees + t * t), degrees / 2.0, 0.5)
}

/// The chance that a beta variable is at most `x`.
#[must_use]
pub fn beta_below(x: f64, a: f64, b: f64) -> f64 {
    beta::checked_beta_reg(a, b, x.clamp(0.0, 1.0)).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, expected: f64) {
        assert!((value - expected).abs() <= 1e-9 * expected.abs().max(1e-3), "{value} {expected}");
    }

    #[test]
    fn tails_are_those_of_scipy() {
        // norm.cdf(-1.96), norm.cdf(3), norm.ppf(0.975), norm.ppf(0.8)
        close(normal_below(-1.96), 0.024_997_895_148_220_435);
        close(normal_below(3.0), 0.998_650_101_968_369_9);
        close(normal_quantile(0.975), 1.959_963_984_540_054);
        close(normal_quantile(0.8), 0.841_621_233_572_914_3);
        // chi2.sf(0.05, 2), chi2.sf(7.815, 3)
        close(chi_square_above(0.05, 2), 0.975_309_912_028_332_6);
        close(chi_square_above(7.815, 3), 0.049_993_902_974_883_875);
        // 2 * t.sf(2.5, 28)
        close(student_beyond(2.5, 28.0), 0.018_550_923_069_545_76);
        // beta.cdf(0.3, 2, 5)
        close(beta_below(0.3, 2.0, 5.0), 0.579_825);
    }
}
