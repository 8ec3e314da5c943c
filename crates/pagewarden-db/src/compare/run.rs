//! Tables that are gone through, several at the same time, each by a pair of connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use super::look::Side;
use super::mode::Choice;
use super::pairing::{self, NOT_TABLES, Pairing};
use super::plan::{Plan, counterpart};
use super::report::TableReport;
use super::state::{self, Known};
use super::table::Comparison;
use super::watch::Waiting;
use super::{Course, Request, Watch, diagnosis};
use crate::engine::{self, Connection};
use crate::error::{Error, Result};
use crate::table::{Column, Table, TableName};

/// Two connections, made again when they break.
pub struct Pair<'a> {
    /// What is compared.
    pub request: &'a Request,
    source: Option<Box<dyn Connection>>,
    target: Option<Box<dyn Connection>>,
    /// How many pairs there are at the same time.
    sharers: usize,
}

impl<'a> Pair<'a> {
    /// A pair that is not connected yet.
    pub fn new(request: &'a Request) -> Self {
        Self { request, source: None, target: None, sharers: 1 }
    }

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

    /// Both connections.
    ///
    /// # Errors
    /// A server cannot be reached.
    pub fn both(&mut self) -> Result<(&mut dyn Connection, &mut dyn Connection)> {
        self.connect()?;
        match (&mut self.source, &mut self.target) {
            (Some(source), Some(target)) => Ok((source.as_mut(), target.as_mut())),
            _ => Err(Error::Stopped),
        }
    }

    /// Gives up connections that broke.
    pub fn break_off(&mut self) {
        self.source = None;
        self.target = None;
    }
}

/// Tables that are gone through, several at the same time.
pub struct Run<'a> {
    names: Vec<TableName>,
    /// The tables that the source has.
    of_source: Vec<TableName>,
    /// The tables that the target has.
    pub of_target: Vec<TableName>,
    /// One table with one, whatever they are called.
    is_pair: bool,
    /// What else is wished.
    pub course: &'a Course<'a>,
    /// Functions of the caller that learn how far the run is.
    pub watch: &'a Watch<'a>,
    next: AtomicUsize,
    /// True if the caller asked to end.
    pub ended: AtomicBool,
    /// Columns that are to be left out, and that no table had so far.
    unknown_columns: Mutex<Vec<String>>,
}

/// What came of a table, and what of it is watched.
pub struct Compared<'a> {
    /// What came of it.
    pub report: TableReport,
    /// What is watched.
    pub waiting: Option<Waiting<'a>>,
}

impl<'a> Run<'a> {
    /// A run over some of the source's tables.
    pub fn new(
        request: &Request,
        pairing: Pairing,
        course: &'a Course<'a>,
        watch: &'a Watch<'a>,
    ) -> Self {
        let Pairing { names, of_source, of_target, is_pair } = pairing;
        let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        let unknown_columns = Mutex::new(request.excluded_columns.clone());
        Self { names, of_source, of_target, is_pair, course, watch, next, ended, unknown_columns }
    }

    /// Columns that were to be left out, and that no table has that was compared.
    pub fn unknown_columns(&self) -> Vec<String> {
        self.unknown_columns.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells of columns that are to be left out.
    fn see_columns(&self, name: &TableName, columns: &[Column]) {
        let is_known = |wanted: &str| columns.iter().any(|it| is_column(wanted, name, &it.name));
        let mut unknown = self.unknown_columns.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.retain(|wanted| !is_known(wanted));
    }

    /// Compares all tables, and gives them in their order, whichever was done first.
    pub fn tables(&self, mut pair: Pair<'_>, seen: &mut dyn FnMut(Compared<'a>)) {
        let request = pair.request;
        let jobs =
            if request.options.frozen { 1 } else { request.jobs.get().min(self.names.len()) };
        pair.sharers = jobs;
        let (reports, arriving) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 1..jobs {
                let reports = reports.clone();
                let pair = Pair { sharers: jobs, ..Pair::new(request) };
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
            // The receiver is gone only where the caller has panicked.
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
        let places = plan.target.iter().filter_map(|(place, _)| target.table.columns.get(*place));
        report.target_columns = places.cloned().collect();
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
///
/// # Errors
/// A side cannot be reached, or has no such table.
pub fn sides<'p>(
    pair: &'p mut Pair<'_>,
    name: &TableName,
    run: &Run<'p>,
) -> Result<(Side<'p>, Side<'p>, Plan)> {
    let request = pair.request;
    let (source, target) = pair.both()?;
    let mut of_source = source.describe(name)?;
    let pair = run.of_target.first().filter(|_| run.is_pair);
    let Some(other) = pair.or_else(|| counterpart(name, &run.of_source, &run.of_target)) else {
        let reason = format!("the target has no such table; {NOT_TABLES}");
        return Err(Error::Unsupported(reason));
    };
    let mut of_target = target.describe(other)?;
    let has_order = put_in_order(request, (source, &mut of_source), (target, &mut of_target))?;
    let excluded =
        |column: &str| request.excluded_columns.iter().any(|one| is_column(one, name, column));
    run.see_columns(name, &of_source.columns);
    run.see_columns(name, &of_target.columns);
    let mut plan = Plan::make(&of_source, &of_target, &excluded);
    plan.has_ranges &= has_order;
    let tell = run.watch.tell;
    let source = Side::new(source, of_source, plan.source.clone(), &plan, tell);
    let target = Side::new(target, of_target, plan.target.clone(), &plan, tell);
    Ok((source, target, plan))
}

/// True if a column is meant by `wanted`: its name, or that behind the table's and a dot.
fn is_column(wanted: &str, table: &TableName, column: &str) -> bool {
    wanted == column || wanted == format!("{table}.{column}")
}

/// Agrees on the key of two tables, and puts those in its order that have none of their own. False if
/// the source has no ranges of it; whether the target has, its key says.
fn put_in_order(
    request: &Request,
    (source, of_source): (&mut dyn Connection, &mut Table),
    (target, of_target): (&mut dyn Connection, &mut Table),
) -> Result<bool> {
    let Some((source_key, target_key)) = pairing::key(request, of_source, of_target)? else {
        return Ok(true);
    };
    let is_exact = |table: &Table, key: &[usize]| {
        key.iter().all(|place| table.columns.get(*place).is_some_and(|column| column.exact))
    };
    let has_order = is_exact(of_source, &source_key)
        && is_exact(of_target, &target_key)
        && source.put_in_order(of_source, &source_key)?
        && target.put_in_order(of_target, &target_key)?;
    if of_source.key != source_key {
        of_source.key = source_key;
    }
    Ok(has_order)
}

/// The report of a table that could not be looked at.
pub fn failed(name: &TableName, error: &str) -> TableReport {
    TableReport { table: name.to_string(), error: Some(error.to_owned()), ..TableReport::default() }
}
