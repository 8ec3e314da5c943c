//! A comparison as the JSON object of `compare --json`: `docs/compare-output.md`.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::repair;
use super::report::{Difference, Outcome, TableReport, verdict};
use super::sample::CONFIDENCE;
use crate::engine::{self, Beside};
use crate::row::{Tag, Value as RowValue, hex_text, number};
use pagewarden::words::seconds;

/// What was asked for, as far as the object tells of it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The mode.
    pub mode: &'a str,
    /// Each side was read as it was at one moment.
    pub snapshot: bool,
    /// Checksums that replicas made were compared.
    pub from_replicate: bool,
    /// Values of rows that differ are shown.
    pub show_values: bool,
    /// Statements that would make the target equal are shown.
    pub sql: bool,
}

/// The whole object, but for an `error` that ended the run.
pub fn object(asked: &Asked<'_>, outcomes: &[Outcome], elapsed: Duration) -> Value {
    let mut tables = Vec::new();
    for outcome in outcomes {
        for report in &outcome.tables {
            let mut object = table(report, asked.show_values);
            if let Some(fields) = object.as_object_mut() {
                fields.insert("target".to_owned(), json!(outcome.target));
                if asked.sql {
                    fields.insert("sql".to_owned(), json!(statements(outcome, report)));
                }
            }
            tables.push(object);
        }
    }
    let first = outcomes.first();
    let servers = outcomes
        .iter()
        .map(|outcome| json!({ "url": outcome.target, "server": outcome.target_server }));
    json!({
        "pagewarden": pagewarden::VERSION,
        "command": "compare",
        "verdict": verdict(outcomes.iter().flat_map(|outcome| &outcome.tables)).name(),
        "seconds": seconds(elapsed),
        "stopped": outcomes.iter().any(Outcome::is_stopped),
        "source": first.map(|one| json!({ "url": one.source, "server": one.source_server })),
        "targets": servers.collect::<Vec<Value>>(),
        "mode": mode(asked, outcomes),
        "consistency": match (asked.from_replicate, asked.snapshot) {
            (true, _) => "replicated",
            (_, true) => "snapshot",
            _ => "retry",
        },
        "tables": tables,
        "not_compared": beside(outcomes),
    })
}

/// How all tables were compared; of several ways, that they were chosen.
fn mode<'a>(asked: &Asked<'a>, outcomes: &[Outcome]) -> &'a str {
    let mut modes = outcomes.iter().flat_map(|one| &one.tables).map(|table| table.mode);
    match modes.next() {
        _ if asked.from_replicate => "replicate",
        Some(first) if modes.all(|mode| mode == first) => first.name(),
        _ => asked.mode,
    }
}

/// Statements that would make a table of the target equal.
pub fn statements(outcome: &Outcome, table: &TableReport) -> Vec<String> {
    let engine = engine::named(outcome.target_scheme);
    engine.map(|engine| repair::statements(engine.dialect, table)).unwrap_or_default()
}

/// A value for programs: numbers that are whole as numbers, all else as text.
pub fn value(value: &RowValue) -> Value {
    let text = || match std::str::from_utf8(&value.payload) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("\\x{}", hex_text(&value.payload)),
    };
    match value.tag {
        Tag::Null => Value::Null,
        Tag::Bytes => json!(format!("\\x{}", hex_text(&value.payload))),
        Tag::Number => {
            let Some(plain) = number::plain(&value.payload) else { return json!(text()) };
            let small = plain.parse::<i64>().map(|number| json!(number));
            small
                .or_else(|_| plain.parse::<u64>().map(|number| json!(number)))
                .unwrap_or(json!(plain))
        }
        Tag::Text | Tag::Time | Tag::Json | Tag::Opaque => json!(text()),
    }
}

/// One table.
pub fn table(report: &TableReport, show_values: bool) -> Value {
    let differences: Vec<Value> =
        report.differences.iter().map(|one| difference(report, one, show_values)).collect();
    let reasons: Map<String, Value> =
        report.not_compared.iter().map(|one| (one.column.clone(), json!(one.reason))).collect();
    let columns: Vec<&str> = report.not_compared.iter().map(|one| one.column.as_str()).collect();
    let diagnosis: Vec<Value> = report
        .diagnosis
        .iter()
        .map(|one| json!({ "column": one.column, "rows": one.rows, "pattern": one.pattern }))
        .collect();
    let mut object = json!({
        "table": report.table,
        "verdict": report.verdict().name(),
        "rows_source": report.rows_source,
        "rows_target": report.rows_target,
        "only_source": report.only_source,
        "only_target": report.only_target,
        "changed": report.changed,
        "unresolved": report.unresolved,
        "not_compared": columns,
        "not_compared_because": reasons,
        "counts_at_least": report.counts_at_least,
        "chunks": report.chunks,
        "chunks_resumed": report.chunks_resumed,
        "mode": report.mode.name(),
        "mode_because": report.mode_because,
        "bytes": report.bytes,
        "paused_seconds": millis(report.paused_seconds),
        "notes": report.notes,
        "seconds": millis(report.seconds),
        "differences": differences,
        "diagnosis": diagnosis,
    });
    if let (false, Some(fields)) = (report.parts_different.is_empty(), object.as_object_mut()) {
        let parts = report.parts_different.iter().map(|one| {
            json!({ "part": one.part, "rows_of": one.rows_of,
                    "rows_source": one.rows_source, "rows_target": one.rows_target })
        });
        fields.insert("parts_different".to_owned(), parts.collect());
    }
    if let (Some(sample), Some(fields)) = (&report.sample, object.as_object_mut()) {
        let sample = json!({
            "blocks": sample.blocks, "compared": sample.compared, "not_equal": sample.not_equal,
            "confidence": CONFIDENCE, "not_equal_at_most": sample.at_most, "seed": sample.seed,
        });
        fields.insert("sample".to_owned(), sample);
    }
    if let (Some(error), Some(fields)) = (&report.error, object.as_object_mut()) {
        fields.insert("error".to_owned(), json!(error));
    }
    object
}

/// Seconds, to the thousandth.
fn millis(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

fn difference(report: &TableReport, one: &Difference, show_values: bool) -> Value {
    let key: Map<String, Value> =
        one.key.iter().map(|(column, part)| (column.clone(), value(part))).collect();
    let mut object = json!({ "key": key, "kind": one.kind.name(), "columns": one.columns });
    if show_values && let Some(fields) = object.as_object_mut() {
        for (side, row) in [("source", &one.source), ("target", &one.target)] {
            let values: Option<Map<String, Value>> = row.as_ref().map(|row| {
                let columns = report.columns.iter().zip(row);
                let wanted = columns
                    .filter(|(column, _)| one.columns.is_empty() || one.columns.contains(column));
                wanted.map(|(column, part)| (column.clone(), value(part))).collect()
            });
            fields.insert(side.to_owned(), json!(values));
        }
    }
    object
}

/// The sides of a comparison, with what they hold beside tables: the source once.
pub fn sides(outcomes: &[Outcome]) -> impl Iterator<Item = (&'static str, &str, &Beside)> {
    outcomes.iter().enumerate().flat_map(|(place, outcome)| {
        let [source, target] = &outcome.beside;
        let source = source.iter().filter(move |_| place == 0);
        let source = source.map(|one| ("source", outcome.source.as_str(), one));
        source.chain(target.iter().map(|one| ("target", outcome.target.as_str(), one)))
    })
}

/// What was not compared besides columns.
fn beside(outcomes: &[Outcome]) -> Vec<Value> {
    let object = |(side, url, one): (&str, &str, &Beside)| {
        let names: Vec<String> = one.names.iter().map(ToString::to_string).collect();
        json!({ "side": side, "url": url, "kind": one.kind, "count": one.count, "names": names })
    };
    sides(outcomes).map(object).collect()
}
