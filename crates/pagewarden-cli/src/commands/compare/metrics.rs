//! Figures of a comparison for Prometheus, in its text format. `docs/metrics.md`
//! lists them.
//!
//! Each run replaces the whole file, yet takes no alarm back: a run that could not
//! compare everything keeps the time of the last one that could, and the number of
//! rows that differ, of which it may tell more, never less.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pagewarden_db::compare::Request;
use pagewarden_db::compare::report::{Outcome, TableReport, Verdict};

const SUCCESS: &str = "pagewarden_compare_last_success_timestamp_seconds";
const DIFFERENT: &str = "pagewarden_compare_different_rows";

/// One target compared with the source.
#[derive(Debug)]
pub(super) struct Run {
    /// The URLs without their passwords.
    source: String,
    target: String,
    elapsed: Duration,
    /// `None` if a server could not be reached.
    counts: Option<Counts>,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    /// True if all of it was compared, whatever was found.
    is_whole: bool,
    rows_source: u64,
    rows_target: u64,
    different: u64,
    unresolved: u64,
    tables: [(Verdict, u64); 3],
}

impl Run {
    pub(super) fn of(request: &Request, outcome: Option<&Outcome>, elapsed: Duration) -> Self {
        let (source, target) = (request.source.to_string(), request.target.to_string());
        Self { source, target, elapsed, counts: outcome.map(Counts::of) }
    }
}

impl Counts {
    fn of(outcome: &Outcome) -> Self {
        let tables = &outcome.tables;
        let sum = |value: fn(&TableReport) -> u64| tables.iter().map(value).sum::<u64>();
        let of = |wanted| {
            let count = tables.iter().filter(|table| table.verdict() == wanted).count();
            (wanted, count as u64)
        };
        // Of a table that differs something may not have been compared, too.
        let is_seen = |table: &TableReport| {
            let is_left = table.counts_at_least || !table.not_compared.is_empty();
            table.error.is_none() && !table.stopped && table.unresolved == 0 && !is_left
        };
        Self {
            // Nothing to compare is nothing proven.
            is_whole: !tables.is_empty() && tables.iter().all(is_seen),
            rows_source: sum(|table| table.rows_source),
            rows_target: sum(|table| table.rows_target),
            different: sum(TableReport::different),
            unresolved: sum(|table| table.unresolved),
            tables: [of(Verdict::Equal), of(Verdict::Different), of(Verdict::Incomplete)],
        }
    }
}

/// The file, of which `previous` was the one before.
pub(super) fn text(runs: &[Run], previous: &str, now: SystemTime) -> String {
    // By their labels: no two samples may have the same ones.
    let runs: BTreeMap<String, &Run> = runs.iter().map(|run| (labels(run), run)).collect();
    let before: BTreeMap<&str, f64> = previous.lines().filter_map(sample).collect();
    let before = |name, labels: &str| before.get(format!("{name}{{{labels}}}").as_str()).copied();
    let now = now.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64().floor());
    let mut text = String::new();
    let mut family = |name: &str, help: &str, value: &dyn Fn(&str, &Run) -> Option<f64>| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, run) in &runs {
            if let Some(value) = value(labels, run) {
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
        }
    };
    family("pagewarden_compare_up", "1 if both databases could be reached.", &|_, run| {
        Some(f64::from(u8::from(run.counts.is_some())))
    });
    family(
        "pagewarden_compare_last_attempt_timestamp_seconds",
        "When the last comparison ended, however it ended.",
        &|_, _| Some(now),
    );
    family(
        SUCCESS,
        "When a comparison last ended that saw everything, whatever it found.",
        &|labels, run| match run.counts {
            Some(Counts { is_whole: true, .. }) => Some(now),
            _ => before(SUCCESS, labels),
        },
    );
    family(
        "pagewarden_compare_last_duration_seconds",
        "How long the last comparison took.",
        &|_, run| Some(run.elapsed.as_secs_f64()),
    );
    family(
        DIFFERENT,
        "Rows that differ, by the last comparison that saw everything, and those since.",
        &|labels, run| {
            let before = before(DIFFERENT, labels);
            match run.counts {
                Some(counts) if counts.is_whole => Some(counts.different as f64),
                Some(counts) => Some((counts.different as f64).max(before.unwrap_or(0.0))),
                None => before,
            }
        },
    );
    let of = |value: fn(&Counts) -> u64| {
        move |_: &str, run: &Run| run.counts.as_ref().map(|counts| value(counts) as f64)
    };
    family(
        "pagewarden_compare_unresolved_rows",
        "Rows that kept changing to the end.",
        &of(|counts| counts.unresolved),
    );
    family(
        "pagewarden_compare_source_rows",
        "The source's rows.",
        &of(|counts| counts.rows_source),
    );
    family(
        "pagewarden_compare_target_rows",
        "The target's rows.",
        &of(|counts| counts.rows_target),
    );
    tables(&mut text, &runs);
    text
}

fn tables(text: &mut String, runs: &BTreeMap<String, &Run>) {
    let name = "pagewarden_compare_tables";
    let _ = writeln!(text, "# HELP {name} Tables by what is said of them.\n# TYPE {name} gauge");
    for (labels, run) in runs {
        for (verdict, count) in run.counts.iter().flat_map(|counts| counts.tables) {
            let _ = writeln!(text, "{name}{{{labels},verdict=\"{}\"}} {count}", verdict.name());
        }
    }
}

fn labels(run: &Run) -> String {
    format!("source=\"{}\",target=\"{}\"", escaped(&run.source), escaped(&run.target))
}

/// A label's value as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A line that we may have written: its name with the labels, and the value.
fn sample(line: &str) -> Option<(&str, f64)> {
    let (name, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)?;
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(counts: Option<Counts>) -> Run {
        let (source, target) = ("sqlite:a".to_owned(), "sqlite:\"b\"\n".to_owned());
        Run { source, target, elapsed: Duration::from_secs(2), counts }
    }

    fn counts(different: u64, is_whole: bool) -> Option<Counts> {
        let tables = [(Verdict::Equal, 1), (Verdict::Different, 2), (Verdict::Incomplete, 3)];
        let (rows_source, rows_target, unresolved) = (10, 11, 0);
        Some(Counts { is_whole, rows_source, rows_target, different, unresolved, tables })
    }

    fn value(text: &str, name: &str) -> Option<f64> {
        let name = format!("{name}{{source=\"sqlite:a\",target=\"sqlite:\\\"b\\\"\\n\"}}");
        text.lines().filter_map(sample).find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    #[test]
    fn a_run_that_did_not_see_everything_takes_no_alarm_back() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let first = text(&[run(counts(7, true))], "", at(100));
        assert_eq!((value(&first, DIFFERENT), value(&first, SUCCESS)), (Some(7.0), Some(100.0)));
        for (later, different, up) in
            [(counts(3, false), 7.0, 1.0), (counts(9, false), 9.0, 1.0), (None, 7.0, 0.0)]
        {
            let second = text(&[run(later)], &first, at(200));
            assert_eq!(value(&second, DIFFERENT), Some(different));
            assert_eq!(value(&second, SUCCESS), Some(100.0));
            assert_eq!(value(&second, "pagewarden_compare_up"), Some(up));
        }
        let third = text(&[run(counts(0, true))], &first, at(300));
        assert_eq!((value(&third, DIFFERENT), value(&third, SUCCESS)), (Some(0.0), Some(300.0)));
        let never = text(&[run(None)], "not ours", at(100));
        assert_eq!((value(&never, DIFFERENT), value(&never, SUCCESS)), (None, None));
    }
}
