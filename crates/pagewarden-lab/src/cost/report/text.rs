//! An analysis on a terminal.
//!
//! ```text
//! on / off  time x1.072 [1.050, 1.094]  throughput x0.933 [0.914, 0.952]
//!           0.91           :  :  |--[==|==]--|     1.10   p < 0.001
//!           worse
//! ```
//!
//! `|` to `|` is the 95 % interval, `[` to `]` the 90 % one, the bar in the middle
//! the estimate; a `:` on either side of 1 marks the margin.

use std::fmt::Write as _;

use pagewarden::report::colours::Colours;

use crate::cost::experiment::Kind;
use crate::cost::report::words::{
    better, counted, figure, number, p_value, percent, ratio, ratios, sign,
};
use crate::cost::result::{
    Analysis, ArmResult, ExperimentResult, Interval, MetricResult, PairResult,
};
use crate::stats::verdict::Verdict;

mod matrix;
mod summary;

/// Columns that a line of an interval has for itself.
const LINE_WIDTH: usize = 46;
/// On anything narrower an interval is given in numbers only.
const LINE_WIDTH_MIN: usize = 24;

/// How it is to look.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether in colour.
    pub colours: Colours,
}

/// The whole report.
#[must_use]
pub fn text(analysis: &Analysis, look: Look) -> String {
    let mut out = String::new();
    for experiment in &analysis.experiments {
        self::experiment(&mut out, experiment, analysis.margin, look);
    }
    for note in &analysis.notes {
        let of = if note.experiment.is_empty() { "" } else { ": " };
        wrapped(&mut out, &format!("{}{of}{}", note.experiment, note.text), "", look.width);
    }
    summary::summary(&mut out, analysis, look);
    if !analysis.noise.is_empty() {
        let seen: Vec<String> = analysis
            .noise
            .iter()
            .map(|noise| {
                let name = noise.sensor.replace('_', " ");
                format!("{name} {} (up to {})", number(noise.median), number(noise.max))
            })
            .collect();
        wrapped(&mut out, &format!("noise meanwhile: {}", seen.join(", ")), "  ", look.width);
    }
    let code = match analysis.verdict {
        "worse" | "undecided" | "incomplete" => "33",
        "no worse" | "equivalent" | "better" => "32",
        _ => "",
    };
    let word = look.colours.paint(analysis.verdict, code);
    decisions(&mut out, analysis, look);
    wrapped(&mut out, &analysis.sentence, "", look.width);
    let _ = writeln!(out, "verdict: {word}");
    out
}

/// What the run says to each question that the reader has to decide.
fn decisions(out: &mut String, analysis: &Analysis, look: Look) {
    for decision in &analysis.decisions {
        let _ = writeln!(out, "{}", look.colours.paint(decision.question, "1"));
        wrapped(out, &decision.sentence, "  ", look.width);
        if let Some(needs) = &decision.needs {
            wrapped(out, &format!("What is undecided: {needs}."), "  ", look.width);
        }
    }
    if !analysis.decisions.is_empty() {
        out.push('\n');
    }
}

fn experiment(out: &mut String, experiment: &ExperimentResult, margin: f64, look: Look) {
    let record = &experiment.record;
    let name = look.colours.paint(&record.name, "1");
    let title = if record.title == record.name { "" } else { &record.title };
    let _ = writeln!(out, "{}", format!("{name}  {title}").trim_end());
    if !record.question.is_empty() {
        wrapped(out, &record.question, "  ", look.width);
    }
    let is_table = |result: &&MetricResult| matches!(result.metric.kind, Kind::Share | Kind::Found);
    for result in experiment.results.iter().filter(|result| !is_table(result)) {
        self::result(out, result, margin, look);
    }
    let tables: Vec<&MetricResult> = experiment.results.iter().filter(is_table).collect();
    matrix::matrices(out, &tables, look);
    if experiment.results.is_empty() {
        let _ = writeln!(out, "  nothing was measured");
    }
    out.push('\n');
}

fn result(out: &mut String, result: &MetricResult, margin: f64, look: Look) {
    let blocks = result.arms.iter().map(|arm| arm.count).max().unwrap_or(0);
    let mut head = format!("  {}", result.metric.name);
    if !result.condition.is_empty() {
        let _ = write!(head, ", {}", result.condition);
    }
    let kind = match result.metric.kind {
        Kind::Exact => "; counted, not timed",
        _ => "",
    };
    let _ = writeln!(out, "{head}: {}, {}{kind}", counted(blocks, "block"), better(&result.metric));
    match result.metric.kind {
        Kind::Timed => timed_arms(out, &result.arms, &result.metric.unit, look),
        Kind::Exact => exact_arms(out, result, look),
        // These are tables of their own.
        Kind::Share | Kind::Found => {}
    }
    if result.metric.kind == Kind::Timed {
        for pair in result.told() {
            self::pair(out, pair, result, margin, look);
        }
        if let Some(several) = &result.several {
            let _ = writeln!(
                out,
                "    all arms: Friedman chi2 = {:.3}, {}, Kendall W = {:.4}",
                several.friedman,
                p_value(several.p),
                several.kendall_w
            );
        }
        if let Some(control) = &result.control {
            let _ = writeln!(
                out,
                "    control ({} against itself): {}, {}",
                result.baseline(),
                ratio(&control.ratio),
                control.verdict
            );
        }
    }
    for warning in &result.warnings {
        let text = format!("warning: {warning}");
        wrapped(out, &text, "    ", look.width);
    }
}

fn timed_arms(out: &mut String, arms: &[ArmResult], unit: &str, look: Look) {
    let of = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let part = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
    let unit = unit.strip_prefix("1/").map_or_else(|| unit.to_owned(), |per| format!("/{per}"));
    let median = if unit.is_empty() { "median".to_owned() } else { format!("median {unit}") };
    let head = ["arm", &median, "robust sd", "CV", "min", "max", "trimmed", "geometric"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(arms.iter().map(|arm| {
        vec![
            arm.arm.clone(),
            number(arm.median),
            part(arm.robust_sd.map(|sd| sd / arm.median)),
            part(arm.cv),
            number(arm.min),
            number(arm.max),
            of(arm.trimmed_mean),
            of(arm.geometric_mean),
        ]
    }));
    table(out, &rows, look.width);
    for arm in arms.iter().filter(|arm| !arm.outliers.is_empty()) {
        let far: Vec<String> = arm
            .outliers
            .iter()
            .take(5)
            .map(|outlier| format!("{} (run {})", number(outlier.value), outlier.block + 1))
            .collect();
        let more = if arm.outliers.len() > far.len() { " ..." } else { "" };
        let text = format!("{}: far from the rest: {}{more}", arm.arm, far.join(", "));
        wrapped(out, &text, "    ", look.width);
    }
}

fn exact_arms(out: &mut String, result: &MetricResult, look: Look) {
    let mut rows = Vec::new();
    for arm in &result.arms {
        let pair = result.pairs.iter().find(|pair| pair.arm == arm.arm);
        let of = pair.and_then(|pair| pair.ratio).map(|ratio| format!("x{:.3}", ratio.value));
        let seed = pair.and_then(|pair| pair.seed.as_ref());
        rows.push(vec![
            arm.arm.clone(),
            figure(arm.median, &result.metric.unit),
            of.unwrap_or_default(),
            seed.map(|seed| format!("document x{:.3}, {}", seed.ratio, sign(seed.sign)))
                .unwrap_or_default(),
        ]);
    }
    table(out, &rows, look.width);
}

/// Rows in columns, as many columns as there is room for. The first is a name,
/// the others are figures.
fn table(out: &mut String, rows: &[Vec<String>], width: usize) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::from("    ");
        for (index, (cell, wide)) in row.iter().zip(&widths).enumerate() {
            let taken = line.chars().count();
            if index > 1 && taken + 2 + wide > width {
                break;
            }
            let _ = if index == 0 {
                write!(line, "{cell:<wide$}")
            } else {
                write!(line, "  {cell:>wide$}")
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn pair(out: &mut String, pair: &PairResult, result: &MetricResult, margin: f64, look: Look) {
    let name = format!("{}/{}", pair.arm, pair.against);
    let mut text = name;
    for (word, of) in ratios(pair) {
        let _ = write!(text, "  {word} {}", ratio(&of));
    }
    wrapped(out, &text, "    ", look.width);
    let Some(verdict) = pair.verdict else {
        tests(out, pair, look);
        return;
    };
    let room = look.width.saturating_sub(24).min(LINE_WIDTH);
    if let Some(cost) = pair.cost.filter(|_| room >= LINE_WIDTH_MIN) {
        let _ = writeln!(out, "      cost {}", interval(&cost, pair.cost_bound, margin, room));
    }
    let phrase = pair.phrase.as_deref().unwrap_or_default();
    let _ = writeln!(out, "      {}", look.colours.paint(phrase, code(verdict)));
    tests(out, pair, look);
    let mut more = Vec::new();
    if let Some(bound) = pair.cost_bound.filter(|bound| bound.is_finite()) {
        let sure = percent(1.0 - result.alpha);
        more.push(format!("costs at most x{bound:.3} (one-sided {sure})"));
    }
    if let Some(visible) = pair.visible {
        more.push(format!("{} show {}", counted(pair.blocks, "block"), percent(visible)));
    }
    if !more.is_empty() {
        wrapped(out, &more.join("; "), "      ", look.width);
    }
    if let Some(seed) = &pair.seed {
        let text = format!("document: x{:.3} ({}): {}", seed.ratio, seed.said, sign(seed.sign));
        wrapped(out, &text, "      ", look.width);
    }
}

/// The colour of a verdict.
fn code(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Worse => "1;31",
        Verdict::Undecided { .. } => "33",
        Verdict::NoWorse | Verdict::Equivalent | Verdict::Better => "32",
    }
}

/// The tests behind a verdict, and what simpler ones say.
fn tests(out: &mut String, pair: &PairResult, look: Look) {
    let mut parts = Vec::new();
    if let Some(p) = pair.p {
        let holm = pair.p_corrected.filter(|corrected| (corrected - p).abs() > 1e-12);
        let holm = holm.map(|p| format!(" (Holm: {})", p_value(p))).unwrap_or_default();
        parts.push(format!("Wilcoxon {}{holm}", p_value(p)));
    }
    if let Some(p) = pair.p_unpaired {
        parts.push(format!("Mann-Whitney {}", p_value(p)));
    }
    if let Some(medians) = &pair.medians {
        parts.push(format!("medians {}", ratio(medians)));
    }
    if !parts.is_empty() {
        wrapped(out, &parts.join(", "), "      ", look.width);
    }
}

/// An interval as a line; see the module.
#[must_use]
pub fn interval(cost: &Interval, bound: Option<f64>, margin: f64, width: usize) -> String {
    if !cost.is_bounded() {
        return "too few blocks for an interval".to_owned();
    }
    let reach = reach(cost, margin);
    let columns = width.saturating_sub(14).max(9);
    let line = line(cost, bound, margin, reach, columns);
    format!("{:.2} {line} {:.2}", (-reach).exp(), reach.exp())
}

/// How far a line must reach to either side of 1, as a logarithm.
fn reach(cost: &Interval, margin: f64) -> f64 {
    let furthest = [cost.low.ln().abs(), cost.high.ln().abs(), 1.5 * margin.ln_1p(), 1e-6];
    furthest.into_iter().fold(0.0, f64::max) * 1.05
}

/// An interval drawn over `columns` columns. What lies beyond `reach` is at the edge.
fn line(cost: &Interval, bound: Option<f64>, margin: f64, reach: f64, columns: usize) -> String {
    let margin = margin.ln_1p();
    let (low, high, value) = (cost.low.ln(), cost.high.ln(), cost.value.ln());
    let at = |logarithm: f64| {
        let place = (logarithm / reach + 1.0) / 2.0 * (columns - 1) as f64;
        // Within the line, whatever comes.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let place = place.round().clamp(0.0, (columns - 1) as f64) as usize;
        place
    };
    let inner_high = bound.map_or(high, f64::ln).min(high);
    // The inner interval is as symmetric around the estimate as the outer one.
    let part = if high > value { (inner_high - value) / (high - value) } else { 1.0 };
    let inner_low = value - (value - low) * part;
    let mut line = vec![' '; columns];
    let mut put = |place: usize, mark: char| {
        if let Some(cell) = line.get_mut(place) {
            *cell = mark;
        }
    };
    put(at(0.0), '.');
    put(at(-margin), ':');
    put(at(margin), ':');
    (at(low)..=at(high)).for_each(|place| put(place, '-'));
    (at(inner_low)..=at(inner_high)).for_each(|place| put(place, '='));
    put(at(low), '|');
    put(at(high), '|');
    put(at(inner_low), '[');
    put(at(inner_high), ']');
    put(at(value), '|');
    // The margin shows through the interval.
    for place in [at(-margin), at(margin)] {
        if let Some(cell) = line.get_mut(place).filter(|mark| matches!(**mark, '-' | '=')) {
            *cell = ':';
        }
    }
    line.into_iter().collect()
}

/// Text over as many lines as it takes, all with the same beginning.
fn wrapped(out: &mut String, text: &str, indent: &str, width: usize) {
    let mut line = indent.to_owned();
    for word in text.split(' ') {
        let longer = line.chars().count() + 1 + word.chars().count();
        if longer > width && line.trim() != "" {
            let _ = writeln!(out, "{}", line.trim_end());
            // What goes on is set in.
            line = format!("{indent}  ");
        } else if line.trim() != "" {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{}", line.trim_end());
}
