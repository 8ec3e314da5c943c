//! Figures as people read them. No thousands separators: they are copied into
//! tables and scripts.

use crate::cost::experiment::{Better, Kind};
use crate::cost::record::MetricRecord;
use crate::cost::result::{Interval, PairResult, Sign};

const KIB: f64 = 1024.0;

/// A figure with as many digits as are worth reading.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e15).contains(&size) {
        format!("{value:.3e}")
    } else if size >= 1e5 && value.fract() == 0.0 {
        format!("{value:.0}")
    } else if size >= 100.0 {
        format!("{value:.1}")
    } else if size >= 10.0 {
        format!("{value:.2}")
    } else if size >= 1.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.4}")
    }
}

/// A figure in its unit.
#[must_use]
pub fn figure(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        "bytes" if value.abs() >= KIB * KIB => format!("{:.1} MiB", value / KIB / KIB),
        "bytes" if value.abs() >= KIB => format!("{:.1} KiB", value / KIB),
        unit => match unit.strip_prefix("1/") {
            Some(per) => format!("{} /{per}", number(value)),
            None => format!("{} {unit}", number(value)),
        },
    }
}

/// A p-value to three digits.
#[must_use]
pub fn p_value(p: f64) -> String {
    if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") }
}

/// A part of one as a percentage.
#[must_use]
pub fn percent(part: f64) -> String {
    let size = part.abs() * 100.0;
    if size >= 10.0 { format!("{:.0} %", part * 100.0) } else { format!("{:.1} %", part * 100.0) }
}

/// A share with its interval: `99.99 % [99.91, 100]`.
#[must_use]
pub fn share(share: &Interval) -> String {
    let digits = |part: f64| {
        let text = format!("{:.2}", part * 100.0);
        // What is not quite all must not look like all.
        if text == "100.00" && part < 1.0 { "99.99".to_owned() } else { text }
    };
    format!("{} % [{}, {}]", digits(share.value), digits(share.low), digits(share.high))
}

/// `x1.072 [1.050, 1.094]`.
#[must_use]
pub fn ratio(ratio: &Interval) -> String {
    format!("x{}", crate::cost::compare::ratio_text(ratio))
}

/// The ratio by all its names: of time and of throughput, where it is one.
#[must_use]
pub fn ratios(pair: &PairResult) -> Vec<(&'static str, Interval)> {
    let named = [("time", pair.time_ratio), ("throughput", pair.throughput_ratio)];
    let found: Vec<(&'static str, Interval)> =
        named.into_iter().filter_map(|(name, ratio)| Some((name, ratio?))).collect();
    match pair.ratio {
        Some(ratio) if found.is_empty() => vec![("ratio", ratio)],
        _ => found,
    }
}

/// Which way is good.
#[must_use]
pub fn better(metric: &MetricRecord) -> &'static str {
    match (metric.kind, metric.better) {
        (Kind::Found, _) if metric.name == "found" => "found or not",
        (Kind::Found, _) => "yes or no",
        (_, Better::Lower) => "lower is better",
        (_, Better::Higher) => "higher is better",
    }
}

/// Whether the document says the same.
#[must_use]
pub fn sign(sign: Sign) -> &'static str {
    match sign {
        Sign::Same => "same direction",
        Sign::Other => "other direction",
        Sign::Open => "direction open here",
    }
}

/// `1 block`, `30 blocks`.
#[must_use]
pub fn counted(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_no_separators_and_digits_enough() {
        for (value, expected) in [
            (1053.0, "1053.0"),
            (1051.5, "1051.5"),
            (302_810_923.0, "302810923"),
            (0.4561, "0.4561"),
            (12.345, "12.35"),
            (0.0, "0"),
            (0.000_012, "1.200e-5"),
        ] {
            assert_eq!(number(value), expected);
        }
        assert_eq!(figure(133_693_440.0, "bytes"), "127.5 MiB");
        assert_eq!(figure(97363.0, "1/s"), "97363.0 /s");
        assert_eq!(p_value(0.975_309), "p = 0.975");
        assert_eq!(p_value(0.000_04), "p < 0.001");
    }

    #[test]
    fn what_is_not_quite_all_does_not_look_like_all() {
        let nearly = Interval { value: 0.999_999, low: 0.9999, high: 1.0 };
        assert_eq!(share(&nearly), "99.99 % [99.99, 100.00]");
    }
}
