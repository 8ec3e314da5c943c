//! Rows that were unresolved when all tables had been read, looked at again until each is
//! settled, or the caller ends it.

use std::time::Duration;

use super::diagnosis;
use super::mode::Choice;
use super::report::{Outcome, TableReport};
use super::run::{Pair, Run, sides};
use super::settle::{Pending, pause, settle};
use super::state::{self, TableState};
use super::table::{Comparison, rows_open};
use crate::error::{Error, Result};
use crate::table::TableName;

/// How soon a server that is away is tried again.
const AWAY: Duration = Duration::from_secs(2);

/// Rows of a table that are unresolved.
pub(super) struct Waiting<'a> {
    /// The table.
    pub name: TableName,
    /// How it was made: under another definition, its rows are other rows.
    pub fingerprint: String,
    /// Where it is written what comes of it.
    pub state: Option<TableState<'a>>,
    /// The rows.
    pub parts: Vec<Pending>,
}

/// Looks again and again. `waiting` are tables by their places in the outcome.
pub(super) fn watch(
    run: &Run<'_>,
    pair: &mut Pair<'_>,
    mut waiting: Vec<(usize, Waiting<'_>)>,
    outcome: &mut Outcome,
    seen: &mut dyn FnMut(&TableReport),
) {
    while !waiting.is_empty() {
        let mut still = Vec::new();
        for (index, mut table) in waiting {
            let Some(report) = outcome.tables.get_mut(index) else { continue };
            let before = (report.different(), report.unresolved);
            let result = again(run, pair, &mut table, report);
            let open = rows_open(&table.parts);
            if outcome.stopped || matches!(result, Err(Error::Stopped)) {
                outcome.stopped = true;
                return;
            }
            let different = report.different() - before.0;
            let settled = before.1.saturating_sub(report.unresolved);
            if settled > 0 {
                run.course.tell(&format!(
                    "{}: of {} unresolved rows {different} differ, {} are equal, {open} are left",
                    table.name,
                    before.1,
                    settled.saturating_sub(different)
                ));
            }
            match result {
                Ok(()) if open == 0 => seen(report),
                Ok(()) => still.push((index, table)),
                Err(error) if !error.is_fatal() => {
                    report.error = Some(error.to_string());
                    seen(report);
                }
                // A server that went may come back.
                Err(error) => {
                    pair.break_off();
                    run.course.tell(&format!("{}: {error}", table.name));
                    outcome.stopped = pause(AWAY, run.watch).is_err();
                    still.push((index, table));
                }
            }
        }
        waiting = still;
    }
}

/// One more look at a table.
fn again(
    run: &Run<'_>,
    pair: &mut Pair<'_>,
    table: &mut Waiting<'_>,
    report: &mut TableReport,
) -> Result<()> {
    let options = &pair.request.options;
    let (source, target, plan) = sides(pair, &table.name, run)?;
    if state::fingerprint(&source.table, &target.table, &plan) != table.fingerprint {
        let reason = "its definition has changed since it was read";
        return Err(Error::Unsupported(reason.to_owned()));
    }
    // Rows are looked at, and no parts: in whichever way.
    let sides = (source, target);
    let mut comparison = Comparison::new(sides, Choice::default(), options, run, table.state, 1);
    let before = rows_open(&table.parts);
    let result = settle(&mut comparison, &mut table.parts, Duration::ZERO, report);
    report.unresolved -= before.saturating_sub(rows_open(&table.parts)).min(report.unresolved);
    if report.unresolved == rows_open(&table.parts) {
        // Nothing else is unresolved in the map than what is marked now.
        report.map.forget_unresolved();
    }
    table.parts.iter().for_each(|part| part.mark_open(&mut report.map));
    report.diagnosis = diagnosis::diagnose(&report.columns, &report.differences);
    result
}
