//! One arm by itself: where its figures lie and how far they spread.

/// From the median absolute deviation to the standard deviation of a normal
/// distribution: 1 / (third quartile of the standard normal).
const MAD_TO_SD: f64 = 1.482_602_218_505_602;

/// The values in ascending order.
#[must_use]
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value below which `share` of the figures lie, interpolated linearly as
/// `numpy.quantile` does it.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(values), share)
}

/// As [`quantile`], of values that are in ascending order.
#[must_use]
pub fn quantile_of_sorted(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    // Not negative, and no larger than an index.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let index = place as usize;
    let below = *sorted.get(index)?;
    let above = sorted.get(index + 1).copied().unwrap_or(below);
    Some(below + (above - below) * (place - index as f64))
}

/// The figure in the middle.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// As [`median`], of values that may be put into another order. The fastest
/// way where it is asked for twenty thousand times.
#[must_use]
pub fn median_in_place(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let even = values.len().is_multiple_of(2);
    let (below, value, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let value = *value;
    if even {
        let under = below.iter().copied().max_by(f64::total_cmp)?;
        return Some(f64::midpoint(under, value));
    }
    Some(value)
}

/// The arithmetic mean.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of a sample.
#[must_use]
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let degrees = values.len().checked_sub(1).filter(|degrees| *degrees > 0)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / degrees as f64).sqrt())
}

/// The standard deviation as the median absolute deviation tells it: a few wild
/// figures do not move it. One figure alone has none.
#[must_use]
pub fn robust_sd(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let middle = median(values)?;
    let away: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    Some(median(&away)? * MAD_TO_SD)
}

/// The standard deviation as a part of the mean.
#[must_use]
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean != 0.0)?;
    Some(standard_deviation(values)? / mean)
}

/// The mean without `share` of the figures at either end.
#[must_use]
pub fn trimmed_mean(values: &[f64], share: f64) -> Option<f64> {
    // Not negative, and no larger than the count.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let cut = (share.clamp(0.0, 0.5) * values.len() as f64) as usize;
    let sorted = sorted(values);
    mean(sorted.get(cut..sorted.len().checked_sub(cut)?)?)
}

/// The mean of ratios; of positive values only.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logarithms: Vec<f64> =
        values.iter().map(|value| (*value > 0.0).then(|| value.ln())).collect::<Option<_>>()?;
    mean(&logarithms).map(f64::exp)
}

/// The places of figures that lie more than three interquartile ranges beyond
/// the quartiles. They are named, never dropped.
#[must_use]
pub fn severe_outliers(values: &[f64]) -> Vec<usize> {
    let sorted = sorted(values);
    let (Some(first), Some(third)) =
        (quantile_of_sorted(&sorted, 0.25), quantile_of_sorted(&sorted, 0.75))
    else {
        return Vec::new();
    };
    let reach = 3.0 * (third - first);
    let healthy = first - reach..=third + reach;
    (0..).zip(values).filter(|(_, value)| !healthy.contains(value)).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In order: numpy.median(v), scipy.stats.median_abs_deviation(v,
    /// scale='normal'), trim_mean(v, 0.2), gmean(v), variation(v, ddof=1),
    /// numpy.quantile(v, 0.25).
    #[test]
    fn summaries_are_those_of_scipy() {
        let v = [899.0, 1010.0, 987.0, 1776.0, 1104.0, 950.0, 1233.0, 1051.0, 1002.0, 3231.0];
        let close = |found: Option<f64>, expected: f64| {
            assert!((found.unwrap() / expected - 1.0).abs() < 1e-12, "{found:?} {expected}");
        };
        close(median(&v), 1030.5);
        close(median_in_place(&mut v.to_vec()), 1030.5);
        close(median_in_place(&mut v[1..].to_vec()), 1051.0);
        close(robust_sd(&v), 114.160_370_824_931_35);
        close(trimmed_mean(&v, 0.2), 1064.5);
        close(geometric_mean(&v), 1_214.871_749_241_630_8);
        close(coefficient_of_variation(&v), 0.540_346_984_655_332_3);
        close(quantile(&v, 0.25), 990.75);
        // The fences are 990.75 - 630 and 1200.75 + 630.
        assert_eq!(severe_outliers(&v), [9]);
    }

    #[test]
    fn what_cannot_be_told_is_not_told() {
        assert_eq!(median(&[]), None);
        assert_eq!(median_in_place(&mut []), None);
        assert_eq!(standard_deviation(&[1.0]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(trimmed_mean(&[], 0.2), None);
        assert_eq!(coefficient_of_variation(&[1.0, -1.0]), None);
        assert_eq!(severe_outliers(&[]), [0_usize; 0]);
    }
}
