//! A price in the units that people pay in.
//!
//! ```text
//! 1/s     2263 [1900, 2700] fewer of 97363.0 transactions a second (-2.3 %)
//! s       0.4100 s [0.3000, 0.5200] more on 12.00 s (+3.4 %)
//! s       between 0.0740 s less and 0.1496 s more on 0.1702 s (-0.0 %)
//! MiB/s   a TB takes 14.20 min, 1.2 min [0.9, 1.5] more than read (+9.2 %)
//! bytes   0.31 GB for each GB of plain
//! ```

use crate::cost::experiment::Better;
use crate::cost::report::words::number;
use crate::cost::result::{Interval, MetricResult, PairResult};

/// A TB in MiB.
const TB_MIB: f64 = 1e12 / 1_048_576.0;
/// Seconds from which minutes read better.
const MINUTES_FROM: f64 = 180.0;

/// The price of a pair, as text.
pub(super) fn paid(result: &MetricResult, pair: &PairResult) -> String {
    let baseline = result.arms.iter().find(|arm| arm.arm == pair.against).map(|arm| arm.median);
    let (Some(ratio), Some(baseline)) = (pair.ratio, baseline) else {
        return "no figure".to_owned();
    };
    let against = &pair.against;
    match result.metric.unit.as_str() {
        "1/s" => {
            let what =
                if result.metric.name == "tps" { "transactions a second" } else { "a second" };
            let fewer = difference(ratio, baseline, (" more", " fewer"));
            format!("{fewer} of {} {what}{}", number(baseline), part(ratio))
        }
        "s" if baseline >= MINUTES_FROM => {
            let minutes = baseline / 60.0;
            format!(
                "{} on {} min{}",
                difference(ratio, minutes, (" min more", " min less")),
                number(minutes),
                part(ratio)
            )
        }
        "s" => format!(
            "{} on {} s{}",
            difference(ratio, baseline, (" s more", " s less")),
            number(baseline),
            part(ratio)
        ),
        "MiB/s" => {
            let time = ratio.inverse();
            let minutes = TB_MIB / baseline / 60.0;
            format!(
                "a TB takes {} min, {} than {against}{}",
                number(minutes * time.value),
                difference(time, minutes, (" min more", " min less")),
                part(time)
            )
        }
        "bytes" => format!("{} GB for each GB of {against}", number(ratio.value)),
        _ => {
            let cost = if result.metric.better == Better::Higher { ratio.inverse() } else { ratio };
            format!("x{} {}", crate::cost::compare::ratio_text(&cost), result.metric.name)
        }
    }
}

/// `2263 [1900, 2700] fewer`: how far a ratio is from one, of `baseline`. Where it may be on either
/// side of it, only the interval is said.
fn difference(ratio: Interval, baseline: f64, (more, less): (&str, &str)) -> String {
    let sign = if ratio.value < 1.0 { -1.0 } else { 1.0 };
    let of = |bound: f64| sign * (bound - 1.0) * baseline;
    let (mut low, mut high) = (of(ratio.low), of(ratio.high));
    if low > high {
        (low, high) = (high, low);
    }
    let (least, most) = ((ratio.low - 1.0) * baseline, (ratio.high - 1.0) * baseline);
    if ratio.is_bounded() && least < 0.0 && most > 0.0 {
        return format!("between {}{less} and {}{more}", number(-least), number(most));
    }
    let unit = if sign < 0.0 { less } else { more };
    let (unit, word) = unit.rsplit_once(' ').unwrap_or(("", unit));
    let value = number(of(ratio.value));
    if ratio.is_bounded() && low < high {
        format!("{value}{unit} [{}, {}] {word}", number(low), number(high))
    } else {
        format!("{value}{unit} {word}")
    }
}

/// ` (+3.4 %)`.
fn part(ratio: Interval) -> String {
    // Added zero: what rounds to nothing has no sign.
    let percent = ((ratio.value - 1.0) * 1000.0).round() / 10.0 + 0.0;
    format!(" ({percent:+.1} %)")
}
