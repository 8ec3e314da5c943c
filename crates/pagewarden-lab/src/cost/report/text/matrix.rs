//! What needs no statistics beside each other: conditions as rows, arms as
//! columns. Arms for which a line has no room go into a table below.

use std::fmt::Write as _;

use crate::cost::experiment::Kind;
use crate::cost::report::text::{Look, wrapped};
use crate::cost::report::words::{better, percent, share};
use crate::cost::result::{ArmResult, Interval, MetricResult};

/// One table for each metric.
pub(super) fn matrices(out: &mut String, results: &[&MetricResult], look: Look) {
    let mut names: Vec<&str> = Vec::new();
    for result in results {
        if !names.contains(&result.metric.name.as_str()) {
            names.push(&result.metric.name);
        }
    }
    for name in names {
        let of_metric: Vec<&MetricResult> =
            results.iter().copied().filter(|result| result.metric.name == name).collect();
        matrix(out, &of_metric, look);
    }
}

fn matrix(out: &mut String, results: &[&MetricResult], look: Look) {
    let Some(widest) = results.iter().max_by_key(|result| result.arms.len()) else { return };
    let name = widest.metric.name.replace('_', " ");
    let _ = writeln!(out, "  {name}: {}", better(&widest.metric));
    let arms: Vec<&str> = widest.arms.iter().map(|arm| arm.arm.as_str()).collect();
    let head = |arms: &[&str]| -> Vec<String> {
        std::iter::once("").chain(arms.iter().copied()).map(str::to_owned).collect()
    };
    let rows = |cell: &dyn Fn(&ArmResult) -> String| -> Vec<Vec<String>> {
        let row = |result: &&MetricResult| {
            let cells = arms.iter().map(|name| {
                let arm = result.arms.iter().find(|arm| arm.arm == *name);
                arm.map_or_else(|| "-".to_owned(), cell)
            });
            std::iter::once(result.condition.clone()).chain(cells).collect()
        };
        std::iter::once(head(&arms)).chain(results.iter().map(row)).collect()
    };
    if widest.metric.kind == Kind::Found {
        // Only what is there to be found stands out by it.
        let (yes, no) = if widest.metric.name == "found" { ("found", "-") } else { ("yes", "no") };
        draw(out, &rows(&|arm| if arm.median >= 0.5 { yes } else { no }.to_owned()), look);
        return;
    }
    let whole = rows(&|arm| arm.share.as_ref().map_or_else(|| "no tries".to_owned(), share));
    if line_width(&widths(&whole)) <= look.width {
        draw(out, &whole, look);
        return;
    }
    draw(out, &rows(&|arm| arm.share.as_ref().map_or_else(|| "-".to_owned(), bare)), look);
    let shares = results.iter().flat_map(|result| &result.arms).filter_map(|arm| arm.share);
    let reach = shares.map(|of| (of.value - of.low).max(of.high - of.value)).fold(0.0, f64::max);
    let text = format!(
        "percent; no interval (95 %) reaches further than {} from its figure",
        percent(reach)
    );
    wrapped(out, &text, "    ", look.width);
}

/// A share without its interval: `99.99`.
fn bare(of: &Interval) -> String {
    let text = share(of);
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    (0..columns).map(of).collect()
}

fn line_width(widths: &[usize]) -> usize {
    2 + widths.iter().map(|width| width + 2).sum::<usize>()
}

/// The rows, in as many tables as the width asks for.
fn draw(out: &mut String, rows: &[Vec<String>], look: Look) {
    let widths = widths(rows);
    let Some((first, others)) = widths.split_first() else { return };
    let mut begin = 0;
    while begin < others.len() {
        let mut line = 4 + first;
        let fitting = others.iter().skip(begin).take_while(|width| {
            line += **width + 2;
            line <= look.width
        });
        // A name that is wider than the terminal has a table of its own.
        let end = begin + fitting.count().max(1);
        for row in rows {
            let mut text = format!("    {:<first$}", row.first().map_or("", String::as_str));
            let cells = row.iter().skip(1).zip(others).take(end).skip(begin);
            for (cell, width) in cells {
                let _ = write!(text, "  {cell:>width$}");
            }
            let _ = writeln!(out, "{}", text.trim_end());
        }
        begin = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::experiment::Better;
    use crate::cost::record::MetricRecord;
    use pagewarden::report::colours::Colours;

    fn arm(name: &str, value: f64) -> ArmResult {
        ArmResult {
            arm: name.to_owned(),
            count: 1,
            median: value,
            robust_sd: None,
            cv: None,
            min: value,
            max: value,
            trimmed_mean: None,
            geometric_mean: None,
            outliers: Vec::new(),
            share: Some(Interval { value, low: value * 0.8, high: value }),
            word: None,
            values: vec![(0, value)],
        }
    }

    fn result(kind: Kind, condition: &str, arms: Vec<ArmResult>) -> MetricResult {
        MetricResult {
            condition: condition.to_owned(),
            metric: MetricRecord {
                name: "found".to_owned(),
                unit: String::new(),
                kind,
                better: Better::Higher,
            },
            main: true,
            alpha: 0.05,
            arms,
            pairs: Vec::new(),
            several: None,
            control: None,
            warnings: Vec::new(),
        }
    }

    fn drawn(kind: Kind, width: usize) -> String {
        let one = result(kind, "bit flip", vec![arm("select", 1.0), arm("pg_checksums", 0.0)]);
        // An arm that was not measured leaves its place empty.
        let other = result(kind, "page zeroed", vec![arm("pg_checksums", 0.5)]);
        let mut out = String::new();
        matrices(&mut out, &[&one, &other], Look { width, colours: Colours(false) });
        out
    }

    #[test]
    fn conditions_are_rows_and_arms_are_columns() {
        let text = "  found: found or not\n                 select  pg_checksums\n    \
                    bit flip      found             -\n    page zeroed       -         found\n";
        assert_eq!(drawn(Kind::Found, 80), text);
    }

    #[test]
    fn arms_without_room_go_below() {
        let text = drawn(Kind::Found, 30);
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert_eq!(text.matches("page zeroed").count(), 2, "{text}");
    }

    #[test]
    fn shares_without_room_for_intervals_say_how_far_they_reach() {
        let text = drawn(Kind::Share, 50);
        assert!(text.contains("100.00          0.00"), "{text}");
        assert!(text.contains("than 20 % from its figure"), "{text}");
        assert!(drawn(Kind::Share, 80).contains("50.00 % [40.00, 50.00]"));
    }
}
