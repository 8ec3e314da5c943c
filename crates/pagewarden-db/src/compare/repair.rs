//! Statements that would make the target equal. This library does not run them.
//!
//! Each is guarded by the values that it expects, so that a row which has changed since
//! is left alone.

use crate::engine::statement::{Dialect, is_writable, literal};
use crate::row::Value;

use super::report::{Difference, Kind, TableReport};

/// The statements for the listed differences of a table, each on a line of its own.
/// What cannot be said in a statement is a comment.
pub fn statements(dialect: &dyn Dialect, report: &TableReport) -> Vec<String> {
    let mut statements: Vec<String> =
        report.differences.iter().map(|one| statement(dialect, report, one)).collect();
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
            let changes: Vec<String> = report
                .columns
                .iter()
                .zip(source)
                .filter(|(column, _)| difference.columns.contains(column))
                .map(|(column, value)| {
                    format!("{} = {}", dialect.name(column), literal(dialect, value).trim_start())
                })
                .collect();
            let guard = guard(dialect, report, target);
            format!("UPDATE {table} SET {} WHERE {guard};", changes.join(", "))
        }
        (Some(source), None) => {
            let names: Vec<String> = report.columns.iter().map(|name| dialect.name(name)).collect();
            let values: Vec<String> = source
                .iter()
                .map(|value| literal(dialect, value).trim_start().to_owned())
                .collect();
            format!("INSERT INTO {table} ({}) VALUES ({});", names.join(", "), values.join(", "))
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

/// The row as it is expected to be.
fn guard(dialect: &dyn Dialect, report: &TableReport, row: &[Value]) -> String {
    let conditions = report.columns.iter().zip(row).enumerate().map(|(place, (column, value))| {
        let (name, value) = (dialect.name(column), literal(dialect, value));
        if place < report.key_count {
            format!("{name} = {}", value.trim_start())
        } else {
            dialect.same(&name, value.trim_start())
        }
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
    text.replace(['\n', '\r'], " ")
}
