//! A compared table as text.

use pagewarden::report::colours::Colours;
use pagewarden::words::{counted, grouped, printable, shortened};
use pagewarden_db::compare::json::{sides, value};
use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::{Difference, Outcome, TableReport, Verdict};
use pagewarden_db::compare::sample::{CONFIDENCE, Sampled};
use pagewarden_db::row::Value as RowValue;
use serde_json::Value;

/// Rows that text shows of a table; JSON has all that were asked for.
const ROWS_SHOWN: usize = 20;
/// Names of sequences and the like that text shows.
const NAMES_SHOWN: usize = 5;
/// Characters of a value that text shows.
const CHARACTERS_SHOWN: usize = 60;

/// What was not compared besides columns, for people: a line a side and kind.
pub fn beside(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for (side, _, one) in sides(outcomes) {
        let names: Vec<String> =
            one.names.iter().take(NAMES_SHOWN).map(|name| printable(&name.to_string())).collect();
        let more = one.names.len().saturating_sub(names.len());
        let names = match (names.is_empty(), more) {
            (true, _) => String::new(),
            (false, 0) => format!(": {}", names.join(", ")),
            (false, more) => format!(": {} and {} more", names.join(", "), grouped(more as u64)),
        };
        let ending = if one.count == 1 { "" } else { "s" };
        text.push_str(&format!(
            "not compared: {} {}{ending} of the {side}{names}\n",
            grouped(one.count),
            one.kind
        ));
    }
    text
}

/// A table for people: a line, and what there is to say below it. `wanted` is the way that was
/// asked for: if it was not taken, the reason is said.
pub fn text(report: &TableReport, wanted: Mode, show_values: bool, colours: Colours) -> String {
    let verdict = report.verdict();
    let code = match verdict {
        Verdict::Equal => "32",
        Verdict::Different => "31",
        Verdict::Incomplete => "33",
    };
    // Padded before it is painted: colours have no width.
    let word = colours.paint(&format!("{:<10}", verdict.name()), code);
    let mut text = format!("{word}  {}", printable(&report.table));
    if report.chunks > 0 {
        text.push_str(&format!(", {}, {:.2} s", rows(report.rows_source), report.seconds));
        if report.mode != Mode::Stream {
            text.push_str(&format!(", {}", report.mode.name()));
        }
    }
    text.push('\n');
    let mut say = |line: &str| text.push_str(&format!("    {}\n", printable(line)));
    if let Some(error) = &report.error {
        error.lines().for_each(&mut say);
    }
    if report.stopped {
        say("stopped early: the rest of the table was not compared");
    }
    if !matches!(wanted, Mode::Auto | Mode::Stream) && report.mode == Mode::Stream {
        report.mode_because.lines().for_each(&mut say);
    }
    asides(report).iter().for_each(|aside| say(aside));
    for (count, what) in [
        (report.changed, "changed"),
        (report.only_source, "only in the source"),
        (report.only_target, "only in the target"),
        (report.unresolved, "unresolved: they kept changing"),
    ] {
        if count > 0 {
            let least = if report.counts_at_least { "at least " } else { "" };
            say(&format!("{least}{} {what}", rows(count)));
        }
    }
    for one in &report.diagnosis {
        let pattern = one.pattern.as_deref().unwrap_or("no common pattern");
        say(&format!(
            "column {}: {pattern}, in {} of the rows listed",
            one.column,
            grouped(one.rows)
        ));
    }
    for one in &report.not_compared {
        say(&format!("column {} not compared: {}", one.column, one.reason));
    }
    for one in report.parts_different.iter().take(ROWS_SHOWN) {
        let (source, target) = (rows(one.rows_source), rows(one.rows_target));
        let rows_of = if one.rows_of.is_empty() { "all rows" } else { one.rows_of.as_str() };
        say(&format!("part {} differs, {source} and {target}: {rows_of}", one.part));
    }
    let more = report.parts_different.len().saturating_sub(ROWS_SHOWN);
    if more > 0 {
        say(&format!("and {} more", counted(more as u64, "part")));
    }
    for one in report.differences.iter().take(ROWS_SHOWN) {
        say(&row(report, one, show_values));
    }
    let more = report.different().saturating_sub(ROWS_SHOWN as u64);
    if more > 0 {
        say(&format!("and {} more", grouped(more)));
    }
    text
}

/// How the run went, and what a sample says.
pub(super) fn asides(report: &TableReport) -> Vec<String> {
    let mut asides = report.notes.clone();
    if report.paused_seconds > 0.0 {
        asides.push(format!("paused for {:.1} s in all", report.paused_seconds));
    }
    let sample = report.sample.filter(|sample| !sample.is_whole());
    asides.extend(sample.map(|sample| sampled(&sample)));
    asides
}

/// What a sample says of all of the table.
fn sampled(sample: &Sampled) -> String {
    let Sampled { blocks, compared, not_equal, at_most, seed } = *sample;
    let found =
        if not_equal == 0 { "all equal".to_owned() } else { format!("{} not", grouped(not_equal)) };
    format!(
        "a sample: {} of {} ranges of the key, {found}; with {:.0} % confidence at most {} of all \
         ({:.3} %) are not equal (--seed {seed} chooses the same)",
        grouped(compared),
        grouped(blocks),
        CONFIDENCE * 100.0,
        grouped(at_most),
        at_most as f64 * 100.0 / (blocks as f64).max(1.0),
    )
}

fn rows(count: u64) -> String {
    format!("{} row{}", grouped(count), if count == 1 { "" } else { "s" })
}

fn row(report: &TableReport, one: &Difference, show_values: bool) -> String {
    let key: Vec<String> =
        one.key.iter().map(|(column, part)| format!("{column} = {}", short(part))).collect();
    let mut text = format!("{:<11}  {}", one.kind.name(), key.join(", "));
    if !one.columns.is_empty() {
        text.push_str(&format!(": {}", one.columns.join(", ")));
    }
    if show_values && let (Some(source), Some(target)) = (&one.source, &one.target) {
        let both = report.columns.iter().zip(source.iter().zip(target));
        for (column, (source, target)) in both.filter(|(column, _)| one.columns.contains(column)) {
            text.push_str(&format!("; {column}: {} -> {}", short(source), short(target)));
        }
    }
    text
}

pub(super) fn short(part: &RowValue) -> String {
    match value(part) {
        // Quoted, so that blanks at an end can be seen.
        Value::String(text) => format!("'{}'", shortened(&text, CHARACTERS_SHOWN)),
        other => other.to_string(),
    }
}
