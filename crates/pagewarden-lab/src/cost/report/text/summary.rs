//! Several experiments in one table: a line for every question that has a
//! verdict, all of them on one scale.
//!
//! ```text
//! e2b  sequential scan with tiny buffers
//!   PostgreSQL 15              x1.225 [1.213, 1.231]        .    [|]  worse
//! e2d  kernels of the checksum
//!   in cache, 1 MiB
//!     sse4.1/portable          x0.421 [0.421, 0.422]  |     .         better
//! ```

use std::fmt::Write as _;

use crate::cost::report::text::{LINE_WIDTH_MIN, Look, line, reach, wrapped};
use crate::cost::report::words::{percent, ratio};
use crate::cost::result::{Analysis, ExperimentResult, Interval, MetricResult, PairResult};
use crate::stats::verdict::Verdict;

/// Beyond a factor of this an interval runs into the edge: one that says
/// nothing must not press all others together.
const FACTOR_MAX: f64 = 1.5;
/// `x1.056 [1.019, 1.174]`.
const RATIO_WIDTH: usize = 21;
/// `equivalent`.
const VERDICT_WIDTH: usize = 10;
/// A longer label has a line of its own.
const LABEL_WIDTH_MAX: usize = 26;
const GAP: usize = 2;

/// One question with its answer.
struct Row<'a> {
    /// What the row and those after it are about, where that is a line.
    heading: Option<&'a str>,
    label: String,
    pair: &'a PairResult,
    verdict: Verdict,
}

/// The table, where there is more than one question to put into it.
pub(super) fn summary(out: &mut String, analysis: &Analysis, look: Look) {
    let sections: Vec<(&ExperimentResult, Vec<Row<'_>>)> = analysis
        .experiments
        .iter()
        .map(|experiment| (experiment, rows(experiment)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let all = || sections.iter().flat_map(|(_, rows)| rows);
    if sections.len() < 2 {
        return;
    }
    let longest = all().map(|row| row.label.chars().count()).max().unwrap_or(0);
    let label_width = longest.min(LABEL_WIDTH_MAX);
    let fixed = 2 + label_width + RATIO_WIDTH + VERDICT_WIDTH + 2 * GAP;
    let columns = look.width.saturating_sub(fixed + GAP).min(2 * LINE_WIDTH_MIN);
    let has_lines = columns >= LINE_WIDTH_MIN / 2;
    let costs = all().filter_map(|row| row.pair.cost).filter(Interval::is_bounded);
    let widest =
        costs.map(|cost| reach(&cost, analysis.margin)).fold(0.0, f64::max).min(FACTOR_MAX.ln());

    let margin = percent(analysis.margin);
    let scale = format!(
        "Cost by the main metric of each; lines reach from x{:.2} to x{:.2}, the dot is the \
         baseline, the colons are {margin} off it",
        (-widest).exp(),
        widest.exp()
    );
    wrapped(
        out,
        if has_lines { &scale } else { "Cost by the main metric of each" },
        "",
        look.width,
    );
    for (experiment, rows) in &sections {
        let name = look.colours.paint(&experiment.record.name, "1");
        let _ = writeln!(out, "{name}  {}", experiment.record.title);
        for row in rows {
            if let Some(heading) = row.heading {
                let _ = writeln!(out, "  {heading}");
            }
            let mut label = row.label.as_str();
            if label.chars().count() > label_width {
                let _ = writeln!(out, "  {label}");
                label = "";
            }
            let of = row.pair.cost.map_or_else(|| "-".to_owned(), |cost| ratio(&cost));
            let _ = write!(out, "  {label:<label_width$}  {of:<RATIO_WIDTH$}");
            if has_lines {
                let cost = row.pair.cost.filter(Interval::is_bounded);
                let drawn = cost.map_or_else(
                    || " ".repeat(columns),
                    |cost| line(&cost, row.pair.cost_bound, analysis.margin, widest, columns),
                );
                let _ = write!(out, "  {drawn}");
            }
            let word = look.colours.paint(row.verdict.name(), super::code(row.verdict));
            let _ = writeln!(out, "  {word}");
        }
    }
    out.push('\n');
}

fn rows(experiment: &ExperimentResult) -> Vec<Row<'_>> {
    let mains: Vec<&MetricResult> =
        experiment.results.iter().filter(|result| result.main).collect();
    let has_one_pair = mains.iter().all(|result| result.judged().count() == 1);
    let mut rows = Vec::new();
    for result in mains {
        let condition = result.condition.as_str();
        for (index, (pair, verdict)) in result.judged().enumerate() {
            let arms = format!("{}/{}", pair.arm, pair.against);
            let (heading, label) = match (condition.is_empty(), has_one_pair) {
                (true, _) => (None, arms),
                (false, true) => (None, condition.to_owned()),
                (false, false) => ((index == 0).then_some(condition), format!("  {arms}")),
            };
            rows.push(Row { heading, label, pair, verdict });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::analyse::analyse;
    use crate::cost::csv;
    use crate::cost::experiment::Better;
    use pagewarden::report::colours::Colours;

    fn table(width: usize, tables: &[&str]) -> String {
        let mut experiments = tables.iter().map(|text| {
            let run = csv::parse(text.as_bytes(), "t", Better::Lower).unwrap();
            analyse(&run, 0.02)
        });
        let mut all = experiments.next().unwrap();
        all.experiments.extend(experiments.flat_map(|one| one.experiments));
        let mut out = String::new();
        summary(&mut out, &all, Look { width, colours: Colours(false) });
        out
    }

    const DEARER: &str = "run,NONE,SUM\n1,100,120\n2,101,121\n3,99,119\n4,100,121\n5,102,122\n\
                          6,100,120\n7,98,118\n";
    const SAME: &str = "run,NONE,a name that has no room beside a figure\n1,100,100\n2,101,101\n\
                        3,99,99\n4,100,100.1\n5,102,102\n6,100,100\n7,98,98\n";

    #[test]
    fn one_experiment_needs_no_summary() {
        assert_eq!(table(80, &[DEARER]), "");
    }

    #[test]
    fn every_question_is_a_line_within_the_width() {
        for width in [64, 80, 200] {
            let text = table(width, &[DEARER, SAME]);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert_eq!(text.matches("  worse").count(), 1, "{text}");
            assert_eq!(text.matches("  equivalent").count(), 1, "{text}");
            assert_eq!(text.contains("lines reach"), width >= 80, "{text}");
        }
    }
}
