//! Every price in one picture: an interval a row, the margin shaded, the
//! document's own figure as a hollow mark.

use std::fmt::Write as _;

use crate::cost::experiment::{Better, Kind};
use crate::cost::report::html::escaped;
use crate::cost::report::html::figures::at;
use crate::cost::report::words::{counted, p_value, ratio, ratios};
use crate::cost::result::{
    Analysis, ControlResult, ExperimentResult, Interval, MetricResult, PairResult,
};
use crate::stats::verdict::{Verdict, percent};

/// Rows of the picture; of more, those of main metrics come first.
const ROWS_MAX: usize = 60;
/// Parts of the width of an axis between two labels at least.
const TICK_GAP: f64 = 0.13;
/// No axis goes further than a factor of two, or the differences that matter
/// would lie in one place. What is beyond has a mark at the edge.
const REACH_MAX: f64 = std::f64::consts::LN_2;

/// A row.
struct Row<'a> {
    experiment: &'a ExperimentResult,
    result: &'a MetricResult,
    pair: &'a PairResult,
    verdict: Verdict,
}

/// Where a ratio lies on an axis: logarithms, one in the middle.
#[derive(Clone, Copy)]
struct Axis {
    reach: f64,
}

impl Axis {
    fn of<'a>(costs: impl Iterator<Item = &'a Interval>, margin: f64) -> Self {
        let far = costs
            .filter(|cost| cost.is_bounded())
            .flat_map(|cost| [cost.low.ln().abs(), cost.high.ln().abs()])
            .fold(2.0 * margin.ln_1p(), f64::max);
        Self { reach: (far * 1.08).min(REACH_MAX) }
    }

    fn holds(self, ratio: f64) -> bool {
        ratio.ln().abs() <= self.reach
    }

    fn place(self, ratio: f64) -> f64 {
        ((ratio.ln() / self.reach + 1.0) / 2.0).clamp(0.0, 1.0)
    }

    /// Round ratios to write below it.
    fn ticks(self) -> Vec<f64> {
        let steps: &[f64] = match self.reach {
            ..0.012 => &[0.005],
            ..0.04 => &[0.01, 0.02],
            ..0.08 => &[0.02, 0.05],
            ..0.2 => &[0.05, 0.1],
            ..0.5 => &[0.1, 0.25],
            _ => &[0.25, 0.5, 1.0],
        };
        let up = steps.iter().map(|step| 1.0 + step);
        let down = up.clone().map(|ratio| 1.0 / ratio);
        let mut ticks: Vec<f64> =
            down.chain([1.0]).chain(up).filter(|ratio| ratio.ln().abs() <= self.reach).collect();
        // Labels that would touch on the narrowest screen are left out: those
        // nearest to 1, which are the easiest to guess.
        ticks.sort_by(|one, other| other.ln().abs().total_cmp(&one.ln().abs()));
        let mut kept = vec![1.0];
        for tick in ticks {
            if kept.iter().all(|other| (self.place(tick) - self.place(*other)).abs() >= TICK_GAP) {
                kept.push(tick);
            }
        }
        kept
    }
}

/// The prices.
pub(super) fn draw(page: &mut String, analysis: &Analysis) {
    let mut rows: Vec<Row<'_>> = analysis
        .experiments
        .iter()
        .flat_map(|experiment| {
            experiment.results.iter().flat_map(move |result| {
                result.judged().map(move |(pair, verdict)| Row {
                    experiment,
                    result,
                    pair,
                    verdict,
                })
            })
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    // Ways to do something have pictures of their own, further down.
    if rows.iter().any(|row| row.experiment.record.is_price) {
        rows.retain(|row| row.experiment.record.is_price);
    }
    let all = rows.len();
    if all > ROWS_MAX {
        // Stable: what comes first stays first.
        rows.sort_by_key(|row| !row.result.main);
        rows.truncate(ROWS_MAX);
    }
    let margin = analysis.margin;
    let axis = Axis::of(rows.iter().filter_map(|row| row.pair.cost.as_ref()), margin);
    let _ = write!(
        page,
        "<section><h2>Prices</h2>\n<p class=\"note\">How much dearer, as a ratio: right of 1 is \
         worse, whether time or throughput was measured. Thin lines are intervals of 95 %, thick \
         ones of 90 %; the shaded band is the margin of {} %.{}</p>\n<div class=\"forest\">\n",
        percent(margin),
        if rows.iter().any(|row| row.pair.seed.is_some()) {
            " A hollow diamond is the figure of the document that the experiment repeats."
        } else {
            ""
        }
    );
    let mut before: Option<(&str, &str)> = None;
    for row in &rows {
        let of = (row.experiment.record.name.as_str(), row.result.condition.as_str());
        self::row(page, row, axis, margin, before == Some(of));
        before = Some(of);
    }
    ticks(page, axis);
    page.push_str("</div>\n");
    if all > rows.len() {
        let _ = writeln!(
            page,
            "<p class=\"note\">and {} on lesser metrics, in the JSON.</p>",
            counted(all - rows.len(), "more price")
        );
    }
    page.push_str("</section>\n");
}

fn row(page: &mut String, row: &Row<'_>, axis: Axis, margin: f64, again: bool) {
    let Row { experiment, result, pair, verdict } = row;
    let _ = write!(
        page,
        "<div class=\"what\">{} against {}<small>",
        escaped(&pair.arm),
        escaped(&pair.against)
    );
    let _ = write!(page, "{}", escaped(&experiment.record.name));
    if !again && experiment.record.title != experiment.record.name {
        let _ = write!(page, ", {}", escaped(&experiment.record.title));
    }
    if !result.condition.is_empty() {
        let _ = write!(page, "; {}", escaped(&result.condition));
    }
    let _ = writeln!(page, "; {}</small></div>", escaped(&result.metric.name));
    page.push_str("<div>");
    let (class, word) = tag(*verdict);
    let seed = pair.seed.as_ref().map(|seed| match result.metric.better {
        Better::Lower => seed.ratio,
        Better::Higher => 1.0 / seed.ratio,
    });
    interval(page, pair.cost.as_ref(), pair.cost_bound, axis, margin, seed, class);
    page.push_str("</div>\n<div class=\"says\">");
    let _ = write!(page, "<span class=\"tag {class}\">{word}</span>");
    if let (Verdict::Undecided { .. }, Some(more)) = (verdict, pair.blocks_more) {
        let _ = write!(
            page,
            " <small class=\"soon\">about {}</small>",
            counted(to_usize(more), "more block")
        );
    }
    for (name, of) in ratios(pair) {
        let _ = write!(page, "<small>{name} {} </small>", ratio(&of));
    }
    if let Some(p) = pair.p_corrected {
        let _ = write!(
            page,
            "<small>{}, {}</small>",
            escaped(&p_value(p)),
            counted(pair.blocks, "block")
        );
    }
    page.push_str("</div>\n");
}

fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The colour and the word of a verdict.
pub(super) fn tag(verdict: Verdict) -> (&'static str, &'static str) {
    let class = match verdict {
        Verdict::Worse => "bad",
        Verdict::Undecided { .. } => "fair",
        Verdict::NoWorse | Verdict::Equivalent | Verdict::Better => "good",
    };
    (class, verdict.name())
}

/// One interval on its axis.
fn interval(
    page: &mut String,
    cost: Option<&Interval>,
    bound: Option<f64>,
    axis: Axis,
    margin: f64,
    seed: Option<f64>,
    class: &str,
) {
    let band = (axis.place(1.0 / (1.0 + margin)), axis.place(1.0 + margin));
    let _ = write!(
        page,
        "<svg class=\"{class}\" height=\"30\" role=\"img\"><rect class=\"band\" x=\"{}\" \
         width=\"{}\" height=\"30\"/><line class=\"one\" x1=\"50%\" x2=\"50%\" y1=\"0\" \
         y2=\"30\"/>",
        at(band.0),
        at(band.1 - band.0)
    );
    if let Some(cost) = cost.filter(|cost| cost.is_bounded()) {
        // The inner interval reaches as far below as above, in proportion.
        let inner_high = bound.unwrap_or(cost.high).min(cost.high);
        let reach = (cost.high / cost.value).ln();
        let part = if reach > 0.0 { (inner_high / cost.value).ln() / reach } else { 0.0 };
        let inner_low = cost.value * (cost.low / cost.value).powf(part);
        let _ = write!(
            page,
            "<title>{}</title><line class=\"outer\" x1=\"{}\" x2=\"{}\" y1=\"15\" y2=\"15\"/>\
             <line class=\"inner\" x1=\"{}\" x2=\"{}\" y1=\"15\" y2=\"15\"/>\
             {}",
            ratio(cost),
            at(axis.place(cost.low)),
            at(axis.place(cost.high)),
            at(axis.place(inner_low)),
            at(axis.place(inner_high)),
            if axis.holds(cost.value) {
                format!(
                    "<circle class=\"dot\" cx=\"{}\" cy=\"15\" r=\"5\"/>",
                    at(axis.place(cost.value))
                )
            } else {
                beyond(cost.value)
            }
        );
    } else {
        page.push_str("<text x=\"0\" y=\"19\">too few blocks</text>");
    }
    if let Some(seed) = seed.filter(|seed| *seed > 0.0 && axis.holds(*seed)) {
        let _ = write!(
            page,
            "<svg x=\"{}\" y=\"15\"><path class=\"seedmark\" d=\"M0-7 7 0 0 7-7 0z\"><title>the \
             document: x{seed:.3}</title></path></svg>",
            at(axis.place(seed))
        );
    }
    page.push_str("</svg>");
}

/// An estimate that the axis has no room for: an arrow at the edge.
fn beyond(ratio: f64) -> String {
    if ratio < 1.0 {
        "<path class=\"arrow\" d=\"M0 15 9 9v12z\"/>".to_owned()
    } else {
        "<svg x=\"100%\" overflow=\"visible\"><path class=\"arrow\" d=\"M0 15-9 9v12z\"/></svg>"
            .to_owned()
    }
}

/// The axis below the intervals.
fn ticks(page: &mut String, axis: Axis) {
    page.push_str("<div class=\"axis blank\"></div><div class=\"axis\"><svg height=\"18\">");
    for tick in axis.ticks() {
        let _ = write!(
            page,
            "<text x=\"{}\" y=\"13\" text-anchor=\"middle\">x{}</text>",
            at(axis.place(tick)),
            format!("{tick:.3}").trim_end_matches('0').trim_end_matches('.')
        );
    }
    page.push_str("</svg></div><div class=\"axis blank\"></div>\n");
}

/// Two identical arms, wherever they ran.
pub(super) fn controls(page: &mut String, analysis: &Analysis) {
    let controls: Vec<(&ExperimentResult, &MetricResult, &ControlResult)> = analysis
        .experiments
        .iter()
        .flat_map(|experiment| experiment.results.iter().map(move |result| (experiment, result)))
        .filter(|(_, result)| result.main && result.metric.kind == Kind::Timed)
        .filter_map(|(experiment, result)| Some((experiment, result, result.control.as_ref()?)))
        .take(ROWS_MAX / 2)
        .collect();
    if controls.is_empty() {
        return;
    }
    let axis = Axis::of(controls.iter().map(|(_, _, control)| &control.ratio), analysis.margin);
    page.push_str(
        "<section><h2>Control: the baseline against itself</h2>\n<p class=\"note\">Two identical \
         arms in every block. Their interval must hold 1; where it is wider than the band, noise \
         alone hides the margin.</p>\n<div class=\"forest\">\n",
    );
    for (experiment, result, control) in controls {
        let class = match control.verdict {
            "equivalent" => "good",
            "different" => "bad",
            _ => "fair",
        };
        let _ = write!(
            page,
            "<div class=\"what\">{}<small>{}{}{}</small></div>\n<div>",
            escaped(result.baseline()),
            escaped(&experiment.record.name),
            if result.condition.is_empty() { "" } else { "; " },
            escaped(&result.condition)
        );
        interval(page, Some(&control.ratio), None, axis, analysis.margin, None, class);
        let _ = writeln!(
            page,
            "</div>\n<div class=\"says\"><span class=\"tag {class}\">{}</span><small>{}</small></div>",
            control.verdict,
            ratio(&control.ratio)
        );
    }
    ticks(page, axis);
    page.push_str("</div></section>\n");
}
