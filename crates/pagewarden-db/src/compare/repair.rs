//! Statements that would make the target equal. This library does not run them.
//!
//! Each is guarded by the values that it expects, so that a row which has changed since
//! is left alone.

use crate::engine::statement::{Dialect, is_writable, literal};
use crate::row::Value;
use crate::table::{Column, Filled};

use super::report::{Difference, Kind, TableReport};

/// The statements for the listed differences of a table, each on a line of its own.
/// What cannot be said in a statement is a comment.
pub fn statements(dialect: &dyn Dialect, report: &TableReport) -> Vec<String> {
    // What is too many goes first: it may have the values of unique keys that the others are to have.
    let mut differences: Vec<&Difference> = report.differences.iter().collect();
    differences.sort_by_key(|one| (one.source.is_some(), one.target.is_none()));
    let mut statements: Vec<String> =
        differences.into_iter().map(|one| statement(dialect, report, one)).collect();
    if let Some(before) = dialect.before(&report.target_columns).filter(|_| !statements.is_empty())
    {
        statements.insert(0, before.to_owned());
    }
    let listed = report.differences.len() as u64;
    if report.different() > listed {
        let more = report.different() - listed;
        statements.push(format!("-- {more} more differences are not listed"));
    }
    statements
}

fn statement(dialect: &dyn Dialect, report: &TableReport, difference: &Difference) -> String {
    let table = report.target_table.strip_prefix("ONLY ").unwrap_or(&report.target_table);
    let values = [&difference.source, &difference.target];
    let writable =
        values.iter().all(|side| side.iter().flat_map(|row| row.iter()).all(is_writable));
    if !writable || !report.not_compared.is_empty() && difference.kind != Kind::Changed {
        return format!(
            "-- {}: a row that Pagewarden has no statement for ({})",
            difference.kind.name(),
            one_line(&key_text(dialect, difference))
        );
    }
    match (&difference.source, &difference.target) {
        (Some(source), Some(target)) => {
            let changes: Vec<String> = said(report, source)
                .filter(|(name, ..)| difference.columns.contains(name))
                .map(|(_, column, value)| {
                    format!("{} = {}", dialect.name(&column.name), written(dialect, column, value))
                })
                .collect();
            if changes.is_empty() {
                return format!(
                    "-- {}: only values differ that the target makes of others ({})",
                    difference.kind.name(),
                    one_line(&key_text(dialect, difference))
                );
            }
            let guard = guard(dialect, report, target);
            format!("UPDATE {table} SET {} WHERE {guard};", changes.join(", "))
        }
        (Some(source), None) => {
            let columns = || said(report, source);
            let names: Vec<String> =
                columns().map(|(_, column, _)| dialect.name(&column.name)).collect();
            let values: Vec<String> =
                columns().map(|(_, column, value)| written(dialect, column, value)).collect();
            let counts = columns().any(|(_, column, _)| column.filled == Filled::Counted);
            let insists = if counts { dialect.insists() } else { "" };
            let (names, values) = (names.join(", "), values.join(", "));
            format!("INSERT INTO {table} ({names}){insists} VALUES ({values});")
        }
        (None, Some(target)) if report.key_count > 0 => {
            format!("DELETE FROM {table} WHERE {};", guard(dialect, report, target))
        }
        _ => format!(
            "-- one of the rows with {} is too many; without a key no statement removes just one",
            one_line(&key_text(dialect, difference))
        ),
    }
}

/// The columns that statements say, by the name that they are compared by, with their values.
fn said<'a>(
    report: &'a TableReport,
    row: &'a [Value],
) -> impl Iterator<Item = (&'a String, &'a Column, &'a Value)> {
    let columns = report.columns.iter().zip(&report.target_columns).zip(row);
    let columns = columns.map(|((name, column), value)| (name, column, value));
    columns.filter(|(_, column, _)| column.filled != Filled::Made)
}

fn written(dialect: &dyn Dialect, column: &Column, value: &Value) -> String {
    let written = dialect.written(column, value);
    written.unwrap_or_else(|| literal(dialect, value)).trim_start().to_owned()
}

/// The row as it is expected to be.
fn guard(dialect: &dyn Dialect, report: &TableReport, row: &[Value]) -> String {
    let columns = report.target_columns.iter().zip(row).enumerate();
    let conditions = columns.map(|(place, (column, value))| {
        let (name, written) = (dialect.name(&column.name), written(dialect, column, value));
        // Which row it is must be exact; what else is in it may be said in several ways.
        if place < report.key_count {
            return format!("{name} = {written}");
        }
        let holds = dialect.holds(column, value, &written);
        holds.unwrap_or_else(|| dialect.same(&name, &written))
    });
    conditions.collect::<Vec<String>>().join(" AND ")
}

fn key_text(dialect: &dyn Dialect, difference: &Difference) -> String {
    let parts = difference.key.iter().map(|(column, value)| {
        format!("{} = {}", dialect.name(column), literal(dialect, value).trim_start())
    });
    parts.collect::<Vec<String>>().join(", ")
}

/// A comment ends with its line.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\0'], " ")
}
