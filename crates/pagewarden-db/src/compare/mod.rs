//! Tables compared across servers and engines, without writing anywhere.
//!
//! `run` goes through the tables, `pairing` and [`plan`] say what is compared with what, [`mode`] in which
//! way (`stream`, `native`, `pushdown`), `table` goes through a pair of tables part by part, `buckets`
//! through those that have no ranges or are in others' hands (by [`split`]), `look` reads a part of both sides at once, [`map`] keeps
//! what came of each part, `candidate` and `settle` tell differences from changes that have
//! not arrived, [`diagnosis`] says what the differences have in common, [`repair`] which
//! statements would end them. [`state`] keeps how far it has come, [`throttle`] pauses for
//! servers, [`sample`] chooses a part of a table, `watch` follows what was unresolved.

mod buckets;
mod candidate;
pub mod diagnosis;
pub mod json;
mod look;
pub mod map;
pub mod mode;
mod native;
mod pairing;
pub mod plan;
mod pushdown;
pub mod repair;
pub mod report;
mod run;
pub mod sample;
mod settle;
pub mod split;
pub mod state;
mod stream;
mod stride;
mod sweep;
mod table;
pub mod throttle;
mod watch;

use std::fmt;
use std::num::NonZero;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::checksum::Tell;
use crate::engine::{self, Beside, Connection};
use crate::error::Result;
use crate::location::Location;
use crate::table::TableName;
use mode::Mode;
use pairing::pairing;
use plan::counterpart;
use report::{Outcome, TableReport};
use run::{Pair, Run, failed};
use sample::Sample;
use state::State;
use throttle::Limits;

/// How tables are compared.
#[derive(Debug, Clone)]
pub struct Options {
    /// Both sides are read as they are at one moment each, and what differs then is
    /// different.
    pub frozen: bool,
    /// How long both sides of a row must stand still before it counts as different.
    pub settle: Duration,
    /// How long rows that keep changing are looked at again.
    pub patience: Duration,
    /// The most rows that are listed of a table.
    pub listed_max: usize,
    /// Rows of a part; else as many as time allows.
    pub chunk_rows: Option<u64>,
    /// How parts are compared.
    pub mode: Mode,
}

/// What is compared.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where the truth is.
    pub source: Location,
    /// What is compared with it.
    pub target: Location,
    /// The tables by their names; all if there are none.
    pub tables: Vec<String>,
    /// Tables to leave out.
    pub excluded_tables: Vec<String>,
    /// Columns to leave out: `column`, or `table.column`.
    pub excluded_columns: Vec<String>,
    /// The columns that identify a row, if not those of the tables' own keys.
    pub key: Vec<String>,
    /// How many tables are compared at the same time, each with connections of its own. A
    /// frozen view belongs to one connection: then one.
    pub jobs: NonZero<usize>,
    /// How.
    pub options: Options,
}

/// What a run may have beside: nothing of it is needed.
#[derive(Clone, Copy, Default)]
pub struct Course<'a> {
    /// Where it is written how far the run has come.
    pub state: Option<&'a State>,
    /// When servers have enough to do.
    pub limits: Limits,
    /// Compares only a part of each table.
    pub sample: Option<Sample>,
    /// Goes on looking at what is unresolved until it is settled.
    pub watch: bool,
    /// Takes notes of pauses, and of what became of rows that are watched.
    pub note: Option<&'a (dyn Fn(&str) + Sync)>,
}

impl fmt::Debug for Course<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Course").finish_non_exhaustive()
    }
}

impl Course<'_> {
    fn tell(&self, note: &str) {
        if let Some(tell) = self.note {
            tell(note);
        }
    }
}

/// Functions of the caller that learn how far a run is, and may end it.
pub struct Watch<'a> {
    /// Takes how much was read; an error ends the run.
    pub tell: &'a Tell<'a>,
    /// Takes the name of the table that begins.
    pub begin: &'a (dyn Fn(&str) + Sync),
    /// Takes how far a table is, part by part.
    pub advance: &'a (dyn Fn(Advance<'_>) + Sync),
}

/// How far a table is.
#[derive(Debug, Clone, Copy)]
pub struct Advance<'a> {
    /// Its name.
    pub table: &'a str,
    /// Rows that were looked at on one side.
    pub rows: u64,
    /// How many there are, as the source's statistics have it.
    pub of: Option<u64>,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Compares tables of two databases.
///
/// # Errors
/// A server cannot be reached at all, or does not say which tables it has. What goes
/// wrong with one table is in its report.
pub fn compare(
    request: &Request,
    watch: &Watch<'_>,
    seen: &mut dyn FnMut(&TableReport),
) -> Result<Outcome> {
    compare_on_course(request, &Course::default(), watch, seen)
}

/// The same, resumable, throttled, of a sample or watched. Tables with rows that are watched
/// are seen a second time, when they are settled.
///
/// # Errors
/// Those of [`compare`].
pub fn compare_on_course(
    request: &Request,
    course: &Course<'_>,
    watch: &Watch<'_>,
    seen: &mut dyn FnMut(&TableReport),
) -> Result<Outcome> {
    let mut pair = Pair::new(request);
    let (source, target) = pair.both()?;
    let of_source = source.tables()?;
    let of_target = target.tables()?;
    let is_whole = request.tables.is_empty() && !is_of_one_table(request);
    let beside = match is_whole {
        true => [beside(source)?, beside(target)?],
        false => Default::default(),
    };
    let mut outcome = Outcome {
        beside,
        source: request.source.to_string(),
        source_server: source.server().to_owned(),
        target: request.target.to_string(),
        target_scheme: engine::of(&request.target)?.scheme,
        target_server: target.server().to_owned(),
        ..Outcome::default()
    };
    let is_there =
        |name: &String| of_source.iter().chain(&of_target).any(|table| table.to_string() == *name);
    for name in request.excluded_tables.iter().filter(|name| !is_there(name)) {
        course.tell(&format!("--exclude-table {name}: neither side has such a table"));
    }
    let pairing = pairing(request, &of_source, of_target)?;
    let is_pair = pairing.is_pair;
    let run = Run::new(request, pairing, course, watch);
    let mut waiting = Vec::new();
    run.tables(pair, &mut |compared| {
        seen(&compared.report);
        waiting.extend(compared.waiting.map(|table| (outcome.tables.len(), table)));
        outcome.tables.push(compared.report);
    });
    if run.ended.load(Ordering::Relaxed) {
        return Ok(outcome);
    }
    if outcome.tables.iter().all(|report| report.error.is_none()) {
        for name in run.unknown_columns() {
            let text = format!("--exclude-column {name}: no table that was compared has it");
            course.tell(&text);
        }
    }
    let of_target = &run.of_target;
    let left = if is_pair { Vec::new() } else { only_target(request, &of_source, of_target) };
    for name in left {
        let report =
            failed(&name, &format!("the source has no such table; {}", pairing::NOT_TABLES));
        seen(&report);
        outcome.tables.push(report);
    }
    let mut pair = Pair::new(request);
    watch::watch(&run, &mut pair, waiting, &mut outcome, seen);
    Ok(outcome)
}

/// True if one of the sides is one table, and not all of a database.
fn is_of_one_table(request: &Request) -> bool {
    [&request.source, &request.target].into_iter().any(|location| {
        location.table.is_some() || engine::of(location).is_ok_and(|engine| engine.is_one_table)
    })
}

/// What is not compared. A user who may not ask for it gets an empty list.
fn beside(connection: &mut dyn Connection) -> Result<Vec<Beside>> {
    match connection.beside_tables() {
        Err(error) if !error.is_fatal() => Ok(Vec::new()),
        other => other,
    }
}

/// Tables that only the target has, unless tables were named or these were excluded.
fn only_target(request: &Request, source: &[TableName], target: &[TableName]) -> Vec<TableName> {
    if !request.tables.is_empty() {
        return Vec::new();
    }
    let known = |name: &TableName| {
        source.iter().any(|of_source| counterpart(of_source, source, target) == Some(name))
    };
    let excluded = |name: &TableName| request.excluded_tables.contains(&name.to_string());
    target.iter().filter(|name| !known(name) && !excluded(name)).cloned().collect()
}
