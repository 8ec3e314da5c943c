//! Tables compared across servers and engines, without writing anywhere.
//!
//! [`plan`] says what is compared with what, [`mode`] in which way (`native`, `pushdown`),
//! `table` goes through a pair of tables part by part, `buckets` through those that have no
//! ranges, `look` reads a part of both sides at
//! once, [`map`] keeps what came of each part, `candidate` and
//! `settle` tell differences from changes that have not arrived, [`diagnosis`] says
//! what the differences have in common, [`repair`] which statements would end them.
//! [`state`] keeps how far it has come, [`throttle`] pauses for servers, [`sample`]
//! chooses a part of a table, `watch` follows what was unresolved.

mod buckets;
mod candidate;
pub mod diagnosis;
mod look;
pub mod map;
pub mod mode;
mod native;
pub mod plan;
mod pushdown;
pub mod repair;
pub mod report;
pub mod sample;
mod settle;
pub mod state;
mod table;
pub mod throttle;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::checksum::Tell;
use crate::engine::{self, Connection};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::table::TableName;
use look::Side;
use mode::{Choice, Mode};
use plan::{Plan, counterpart};
use report::{Outcome, TableReport};
use sample::Sample;
use state::{Known, State};
use table::Comparison;
use throttle::Limits;
use watch::Waiting;

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
    /// How parts are held against each other.
    pub mode: Mode,
}

/// What is compared.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where the truth is.
    pub source: Location,
    /// What is held against it.
    pub target: Location,
    /// The tables by their names; all if there are none.
    pub tables: Vec<String>,
    /// Tables to leave out.
    pub excluded_tables: Vec<String>,
    /// Columns to leave out: `column`, or `table.column`.
    pub excluded_columns: Vec<String>,
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
    /// Is told of pauses, and of what became of rows that are watched.
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

/// Who is told how far it is, and may end it.
pub struct Watch<'a> {
    /// Is told how much was read; an error ends the run.
    pub tell: &'a Tell<'a>,
    /// Is told which table begins.
    pub begin: &'a (dyn Fn(&str) + Sync),
    /// Is told how far a table is, part by part.
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

/// Two connections, made again when they break.
struct Pair<'a> {
    request: &'a Request,
    source: Option<Box<dyn Connection>>,
    target: Option<Box<dyn Connection>>,
    /// How many pairs there are at the same time.
    sharers: usize,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Pair<'_> {
    fn connect(&mut self) -> Result<()> {
        for (location, place) in
            [(&self.request.source, &mut self.source), (&self.request.target, &mut self.target)]
        {
            if place.is_none() {
                let mut connection = (engine::of(location)?.connect)(location)?;
                if self.request.options.frozen {
                    connection.freeze()?;
                }
                *place = Some(connection);
            }
        }
        Ok(())
    }

    fn both(&mut self) -> Result<(&mut dyn Connection, &mut dyn Connection)> {
        self.connect()?;
        match (&mut self.source, &mut self.target) {
            (Some(source), Some(target)) => Ok((source.as_mut(), target.as_mut())),
            _ => Err(Error::Stopped),
        }
    }

    fn break_off(&mut self) {
        self.source = None;
        self.target = None;
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
    let mut pair = Pair { request, source: None, target: None, sharers: 1 };
    let (source, target) = pair.both()?;
    let of_source = source.tables()?;
    let of_target = target.tables()?;
    let mut outcome = Outcome {
        source: request.source.to_string(),
        source_server: source.server().to_owned(),
        target: request.target.to_string(),
        target_scheme: engine::of(&request.target)?.scheme,
        target_server: target.server().to_owned(),
        ..Outcome::default()
    };
    let run = Run {
        names: wanted(request, &of_source),
        of_target,
        course,
        watch,
        next: AtomicUsize::new(0),
        ended: AtomicBool::new(false),
    };
    let mut waiting = Vec::new();
    run.tables(pair, &mut |compared| {
        seen(&compared.report);
        waiting.extend(compared.waiting.map(|table| (outcome.tables.len(), table)));
        outcome.tables.push(compared.report);
    });
    if run.ended.load(Ordering::Relaxed) {
        return Ok(outcome);
    }
    let of_target = &run.of_target;
    for name in only_target(request, &of_source, of_target) {
        let report = failed(&name, "the source has no such table");
        seen(&report);
        outcome.tables.push(report);
    }
    let mut pair = Pair { request, source: None, target: None, sharers: 1 };
    watch::watch(&run, &mut pair, waiting, &mut outcome, seen);
    Ok(outcome)
}

/// Tables that are gone through, several at the same time.
struct Run<'a> {
    names: Vec<TableName>,
    of_target: Vec<TableName>,
    course: &'a Course<'a>,
    watch: &'a Watch<'a>,
    next: AtomicUsize,
    ended: AtomicBool,
}

/// What came of a table, and what of it is watched.
struct Compared<'a> {
    report: TableReport,
    waiting: Option<Waiting<'a>>,
}

impl<'a> Run<'a> {
    /// Compares all tables, and gives them in their order, whichever was done first.
    fn tables(&self, mut pair: Pair<'_>, seen: &mut dyn FnMut(Compared<'a>)) {
        let request = pair.request;
        let jobs =
            if request.options.frozen { 1 } else { request.jobs.get().min(self.names.len()) };
        pair.sharers = jobs;
        let (reports, arriving) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 1..jobs {
                let reports = reports.clone();
                let pair = Pair { request, source: None, target: None, sharers: jobs };
                scope.spawn(move || self.work(pair, &reports));
            }
            scope.spawn(move || self.work(pair, &reports));
            let mut early: BTreeMap<usize, Compared<'a>> = BTreeMap::new();
            let mut given = 0;
            for (index, compared) in arriving {
                early.insert(index, compared);
                while let Some(compared) = early.remove(&given) {
                    seen(compared);
                    given += 1;
                }
            }
            early.into_values().for_each(seen);
        });
    }

    fn work(&self, mut pair: Pair<'_>, reports: &mpsc::Sender<(usize, Compared<'a>)>) {
        let mut unreachable: Option<String> = None;
        while !self.ended.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = self.names.get(index) else { return };
            (self.watch.begin)(&name.to_string());
            let compared = match &unreachable {
                Some(error) => Compared { report: failed(name, error), waiting: None },
                None => self.one_table(&mut pair, name),
            };
            let report = &compared.report;
            if report.error.is_some() && pair.source.is_none() {
                // One try for the tables that are left; a server that is gone stays gone.
                unreachable = pair.connect().err().map(|error| error.to_string());
            }
            self.ended.fetch_or(report.stopped, Ordering::Relaxed);
            // Nobody listens only where the caller has panicked.
            let _ = reports.send((index, compared));
        }
    }

    fn one_table(&self, pair: &mut Pair<'_>, name: &TableName) -> Compared<'a> {
        let begin = Instant::now();
        let mut report = TableReport { table: name.to_string(), ..TableReport::default() };
        let result = self.compare_table(pair, name, &mut report);
        let mut waiting = None;
        match result {
            Ok(left) => waiting = left,
            Err(Error::Stopped) => report.stopped = true,
            Err(error) => {
                if error.is_fatal() {
                    pair.break_off();
                }
                report.error = Some(error.to_string());
            }
        }
        report.diagnosis = diagnosis::diagnose(&report.columns, &report.differences);
        report.seconds = begin.elapsed().as_secs_f64();
        Compared { report, waiting }
    }

    fn compare_table(
        &self,
        pair: &mut Pair<'_>,
        name: &TableName,
        report: &mut TableReport,
    ) -> Result<Option<Waiting<'a>>> {
        (self.watch.tell)(0, 0)?;
        let (request, sharers) = (pair.request, pair.sharers);
        let (mut source, mut target, plan) = sides(pair, name, self)?;
        report.target_table.clone_from(&target.table.engine);
        report.columns.clone_from(&plan.columns);
        report.key_count = plan.key_count;
        report.not_compared.clone_from(&plan.not_compared);
        if plan.columns.is_empty() {
            return Err(Error::Unsupported("the tables have no column to compare".to_owned()));
        }
        let fingerprint = state::fingerprint(&source.table, &target.table, &plan);
        let (mut table_state, mut known) = (None, Known::default());
        if let Some(file) = self.course.state {
            let place = state::place(&request.target);
            let (state, earlier, is_anew) = file.table(&place, name, fingerprint.clone())?;
            report.is_known = earlier.is_finished();
            report.notes.extend(earlier.note(is_anew));
            (table_state, known) = (Some(state), earlier);
        }
        let options = &request.options;
        let choice = match known.choice.take() {
            Some((mode, because)) => Choice::of(mode, because),
            None => Choice::make(options.mode, &mut source, &mut target, &plan)?,
        };
        let mut comparison =
            Comparison::new((source, target), choice, options, self, table_state, sharers);
        comparison.run(plan.has_ranges, known, report)?;
        let parts = std::mem::take(&mut comparison.left);
        let waiting = Waiting { name: name.clone(), fingerprint, state: table_state, parts };
        Ok(Some(waiting).filter(|waiting| !waiting.parts.is_empty()))
    }
}

/// Both sides of a table, and what of them is compared.
fn sides<'p>(
    pair: &'p mut Pair<'_>,
    name: &TableName,
    run: &Run<'p>,
) -> Result<(Side<'p>, Side<'p>, Plan)> {
    let request = pair.request;
    let (source, target) = pair.both()?;
    let of_source = source.describe(name)?;
    let Some(other) = counterpart(name, &run.of_target) else {
        return Err(Error::Unsupported("the target has no such table".to_owned()));
    };
    let of_target = target.describe(other)?;
    let excluded = |column: &str| {
        let qualified = format!("{name}.{column}");
        request.excluded_columns.iter().any(|one| *one == column || *one == qualified)
    };
    let plan = Plan::make(&of_source, &of_target, &excluded);
    let tell = run.watch.tell;
    let source = Side::new(source, of_source, plan.source.clone(), &plan, tell);
    let target = Side::new(target, of_target, plan.target.clone(), &plan, tell);
    Ok((source, target, plan))
}

fn failed(name: &TableName, error: &str) -> TableReport {
    TableReport { table: name.to_string(), error: Some(error.to_owned()), ..TableReport::default() }
}

/// The tables that were asked for, in order; those that are not there too.
fn wanted(request: &Request, tables: &[TableName]) -> Vec<TableName> {
    let excluded = |name: &TableName| request.excluded_tables.contains(&name.to_string());
    if request.tables.is_empty() {
        return tables.iter().filter(|name| !excluded(name)).cloned().collect();
    }
    let mut names: Vec<TableName> = Vec::new();
    for wanted in &request.tables {
        let as_is = TableName { schema: None, name: wanted.clone() };
        let name = tables.iter().find(|name| name.to_string() == *wanted);
        let name = name.or_else(|| counterpart(&as_is, tables)).cloned().unwrap_or(as_is);
        if !names.contains(&name) && !excluded(&name) {
            names.push(name);
        }
    }
    names
}

/// Tables that only the target has, unless tables were named or these were excluded.
fn only_target(request: &Request, source: &[TableName], target: &[TableName]) -> Vec<TableName> {
    if !request.tables.is_empty() {
        return Vec::new();
    }
    let known = |name: &TableName| {
        source.iter().any(|of_source| counterpart(of_source, target) == Some(name))
    };
    let excluded = |name: &TableName| request.excluded_tables.contains(&name.to_string());
    target.iter().filter(|name| !known(name) && !excluded(name)).cloned().collect()
}
