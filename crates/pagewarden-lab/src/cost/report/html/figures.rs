//! The pictures: inline SVG whose places are percentages, so that they fit any
//! width without their text changing size.

use std::fmt::Write as _;

use crate::cost::report::html::escaped;
use crate::cost::report::words::{figure, number};
use crate::cost::result::{ArmResult, MetricResult, NoiseResult};

/// Arms with a colour of their own; the next ones begin again.
const COLOURS: usize = 6;
/// Arms that a picture shows; the eye does not keep more apart.
const ARMS_MAX: usize = 8;
/// Points of a line that stands for a long row of figures.
const LINE_POINTS_MAX: usize = 240;
/// The height of a picture of runs, and the room for its points in it.
const STRIP_HEIGHT: f64 = 150.0;
const STRIP_MARGIN: f64 = 10.0;

/// The class of an arm's colour.
pub(super) fn colour(index: usize) -> String {
    format!("a{}", index % COLOURS)
}

/// A place as a percentage of the width.
pub(super) fn at(part: f64) -> String {
    format!("{:.2}%", part.clamp(-0.01, 1.01) * 100.0)
}

/// Every figure of every arm by its block: drift, steps and outliers show.
pub(super) fn strip(page: &mut String, result: &MetricResult, points: bool) {
    let arms = result.arms.get(..result.arms.len().min(ARMS_MAX)).unwrap_or_default();
    let last = arms.iter().flat_map(|arm| &arm.values).map(|(block, _)| *block).max();
    let Some(last) = last.filter(|last| *last > 0) else { return };
    let first = arms.iter().flat_map(|arm| &arm.values).map(|(block, _)| *block).min().unwrap_or(0);
    let (low, high) = arms
        .iter()
        .flat_map(near)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    let span = if high > low { high - low } else { 1.0 };
    let x = |block: u32| 0.08 + 0.9 * f64::from(block - first) / f64::from((last - first).max(1));
    let y = |value: f64| STRIP_MARGIN + (high - value) / span * (STRIP_HEIGHT - 2.0 * STRIP_MARGIN);
    let unit = &result.metric.unit;
    let label = format!("{} by run, {} to {}", result.metric.name, number(low), number(high));
    let _ = write!(
        page,
        "<div class=\"strip\"><svg height=\"{STRIP_HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escaped(&label)
    );
    for value in [low, f64::midpoint(low, high), high] {
        let _ = write!(
            page,
            "<line class=\"tick\" x1=\"7%\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"6.5%\" y=\"{text:.1}\" text-anchor=\"end\">{}</text>",
            short(value),
            y = y(value),
            text = y(value) + 4.0
        );
    }
    for (index, arm) in arms.iter().enumerate() {
        let again = if is_control(&arm.arm) { " again" } else { "" };
        let class = if again.is_empty() { colour(index) } else { colour(0) };
        if points {
            for (block, value) in &arm.values {
                let title = format!("run {}: {}", block + 1, figure(*value, unit));
                let (x, y) = (at(x(*block)), y(*value));
                let wedge = match *value {
                    value if value > high => Some("M-5 4 0-4 5 4z"),
                    value if value < low => Some("M-5-4 0 4 5-4z"),
                    _ => None,
                };
                let _ = match wedge {
                    Some(wedge) => write!(
                        page,
                        "<svg x=\"{x}\" y=\"{y:.1}\" class=\"{class}\"><path class=\"far\" \
                         d=\"{wedge}\"><title>{title}</title></path></svg>",
                    ),
                    None => write!(
                        page,
                        "<circle class=\"{class}{again}\" cx=\"{x}\" cy=\"{y:.1}\" r=\"3.5\">\
                         <title>{title}</title></circle>",
                    ),
                };
            }
        } else {
            let places = arm.values.iter().map(|(block, value)| (x(*block) * 1000.0, y(*value)));
            let _ = write!(
                page,
                "<svg class=\"rows {class}\" viewBox=\"0 0 1000 {STRIP_HEIGHT}\" width=\"100%\" \
                 height=\"{STRIP_HEIGHT}\" preserveAspectRatio=\"none\">{}</svg>",
                polyline(places, arm.values.len())
            );
        }
    }
    page.push_str("</svg>\n");
    let has_far = points && arms.iter().any(|arm| !arm.outliers.is_empty());
    legend(page, result, arms, (first, last), has_far);
}

/// The figures of an arm but those far out, which would press all the rest into a line: they stand
/// at the edge, marked.
fn near(arm: &ArmResult) -> Vec<f64> {
    let far: Vec<u32> = arm.outliers.iter().map(|outlier| outlier.block).collect();
    let near = arm.values.iter().filter(|(block, _)| !far.contains(block));
    near.map(|(_, value)| *value).collect()
}

/// Which colour is which arm, and what the axes are.
fn legend(
    page: &mut String,
    result: &MetricResult,
    arms: &[ArmResult],
    (first, last): (u32, u32),
    has_far: bool,
) {
    page.push_str("<p class=\"legend\">");
    for (index, arm) in arms.iter().enumerate() {
        let again = is_control(&arm.arm);
        let class = if again { colour(0) } else { colour(index) };
        let mark = if again { " class=\"again\"" } else { "" };
        let _ = write!(
            page,
            "<span class=\"{class}\"><i{mark}></i><span>{}</span></span>",
            escaped(&arm.arm)
        );
    }
    let unit = &result.metric.unit;
    let unit = if unit.is_empty() { String::new() } else { format!(" in {}", escaped(unit)) };
    let _ = writeln!(
        page,
        "<span><span>{}{unit} against the number of the run, {} to {}{}</span></span></p></div>",
        escaped(&result.metric.name),
        first + 1,
        last + 1,
        if has_far { "; a wedge at the edge is a figure far out" } else { "" }
    );
}

fn is_control(arm: &str) -> bool {
    arm.ends_with(crate::cost::samples::CONTROL)
}

/// A figure for an axis.
fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        format!("{:.1}M", value / 1e6)
    } else if size >= 1e4 {
        format!("{:.1}k", value / 1e3)
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// A line through places; of very many, every n-th.
fn polyline(places: impl Iterator<Item = (f64, f64)>, count: usize) -> String {
    let step = count.div_ceil(LINE_POINTS_MAX).max(1);
    let mut line = String::from("<polyline points=\"");
    for (x, y) in places.step_by(step) {
        let _ = write!(line, "{x:.0},{y:.1} ");
    }
    format!("{}\"/>", line.trim_end())
}

/// What the noise sensors saw, run by run.
pub(super) fn noise(page: &mut String, noise: &[NoiseResult]) {
    let shown: Vec<&NoiseResult> = noise.iter().filter(|one| one.max > 0.0).take(12).collect();
    if shown.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>Noise meanwhile</h2>\n<p class=\"note\">What the rest of the machine did, \
         run by run. Verdicts allow for it; quiet machines need fewer blocks.</p>\n\
         <div class=\"noise\">\n",
    );
    for one in shown {
        let count = one.values.len();
        let places = one.values.iter().enumerate().map(|(index, value)| {
            let x = 1000.0 * index as f64 / count.saturating_sub(1).max(1) as f64;
            (x, 38.0 - 36.0 * value / one.max)
        });
        let _ = writeln!(
            page,
            "<div><b>{}</b> <small>middle {}, up to {}</small>\
             <svg viewBox=\"0 0 1000 40\" preserveAspectRatio=\"none\" aria-hidden=\"true\">{}</svg></div>",
            escaped(&one.sensor.replace('_', " ")),
            number(one.median),
            number(one.max),
            polyline(places, count)
        );
    }
    page.push_str("</div></section>\n");
}

/// A bar cut into stages, with what it comes to behind it.
pub(super) fn bar(page: &mut String, name: &str, stages: &[f64], whole: f64, total: &str) {
    let _ = write!(page, "<b>{}</b><svg role=\"img\" aria-label=\"{total}\">", escaped(name));
    let mut x = 0.0;
    for (index, stage) in stages.iter().enumerate() {
        let part = if whole > 0.0 { (stage / whole).clamp(0.0, 1.0) } else { 0.0 };
        let _ = write!(
            page,
            "<rect class=\"{}\" x=\"{}\" width=\"{}\" height=\"16\"/>",
            colour(index),
            at(x),
            at(part)
        );
        x += part;
    }
    let _ = writeln!(page, "</svg><span>{total}</span>");
}
