//! A table whose rows are somewhere else: executors of a cluster hold them, sum them where they are,
//! and send only those of parts that differ.
//!
//! What they are asked for is a [`Task`], which travels to them as JSON. Each executor gives its rows,
//! in canonical form, to a [`Worker`]; what workers have summed is joined, in any order.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Connection, Engine, Query, Sink, parquet};
use crate::compare::split::Split;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::row::Row;
use crate::row::record::{self, Hash, RECORD_BYTES, Record};
use crate::table::{Column, Form, Table, TableName};

/// A table in the hands of others.
pub const ENGINE: Engine = Engine {
    scheme: "elsewhere",
    title: "rows elsewhere",
    connect,
    dialect: parquet::ENGINE.dialect,
    replicate: None,
    is_one_table: true,
};

/// The most bytes of rows that are kept for another look.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Whole numbers of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The least.
    pub first: i64,
    /// The greatest.
    pub last: i64,
    /// Rows of the table.
    pub rows: u64,
    /// Rows without one.
    pub nulls: u64,
}

/// Who has the rows, and can be asked for them.
pub trait Executors: Send + Sync + fmt::Debug {
    /// What they call themselves, for example "Spark 4.0.1".
    fn title(&self) -> String;

    /// What the table is called.
    fn name(&self) -> String;

    /// The table's columns.
    fn columns(&self) -> Vec<Column>;

    /// The numbers of a column; none if it has none.
    ///
    /// # Errors
    /// They do not answer.
    fn span(&self, column: usize) -> Result<Option<Span>>;

    /// What workers have summed, each in [its form](Worker::sums).
    ///
    /// # Errors
    /// They do not answer, or `see` gave the error.
    fn sums(&self, task: &Task, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// The rows of a task, one after the other, in pieces that end between rows.
    ///
    /// # Errors
    /// They do not answer, or `see` gave the error.
    fn rows(&self, task: &Task, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

/// Executors as a [`Location`] has them.
#[derive(Debug, Clone)]
pub struct Elsewhere(pub Arc<dyn Executors>);

/// What executors are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Columns by their places in the table, each with the form of its values: the key first.
    pub columns: Vec<(usize, Form)>,
    /// How many of them are the key.
    pub key_count: usize,
    /// The parts into which rows fall.
    pub split: Split,
    /// The parts of which rows are wanted; of all, if there is nothing.
    pub wanted: Option<HashSet<usize>>,
}

impl Task {
    /// The hashes of a row's key and of the row.
    pub fn hashes(&self, row: &Row) -> (Hash, Hash) {
        let of_row = record::hash(row.bytes());
        let of_key = match self.key_count {
            0 => of_row,
            count => record::hash(row.leading(count)),
        };
        (of_key, of_row)
    }
}

/// What an executor does with its rows.
#[derive(Debug)]
pub struct Worker {
    task: Task,
    sums: Vec<Record>,
}

impl Worker {
    /// One that has seen no row.
    pub fn new(task: Task) -> Self {
        let sums = vec![Record::default(); task.split.count()];
        Self { task, sums }
    }

    /// Its task.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Counts a row in.
    pub fn add(&mut self, row: &Row) {
        let (of_key, of_row) = self.task.hashes(row);
        let part = self.task.split.part(row, of_key);
        if let Some(sum) = self.sums.get_mut(part) {
            sum.add(of_row);
        }
    }

    /// True if the row is wanted.
    pub fn is_wanted(&self, row: &Row) -> bool {
        let part = || self.task.split.part(row, self.task.hashes(row).0);
        self.task.wanted.as_ref().is_none_or(|wanted| wanted.contains(&part()))
    }

    /// The sums: of each part with rows its number, the rows, and two lanes.
    pub fn sums(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (part, sum) in (0_u32..).zip(&self.sums) {
            if sum.rows > 0 {
                bytes.extend_from_slice(&part.to_le_bytes());
                bytes.extend_from_slice(&sum.to_bytes());
            }
        }
        bytes
    }

    /// Counts in what another worker has summed.
    ///
    /// # Errors
    /// It is no such thing.
    pub fn join(&mut self, sums: &[u8]) -> Result<()> {
        let wrong = || Error::Unsupported("an executor gave sums of another task".to_owned());
        let (entries, rest) = sums.as_chunks::<{ 4 + RECORD_BYTES }>();
        for entry in entries {
            let (part, sum) = entry.split_first_chunk::<4>().ok_or_else(wrong)?;
            let part = usize::try_from(u32::from_le_bytes(*part)).map_err(|_| wrong())?;
            let known = self.sums.get_mut(part).ok_or_else(wrong)?;
            known.join(&Record::of_bytes(sum.try_into().map_err(|_| wrong())?));
        }
        if rest.is_empty() { Ok(()) } else { Err(wrong()) }
    }

    /// The sum of everything.
    pub fn total(&self) -> Record {
        let mut total = Record::default();
        self.sums.iter().for_each(|sum| total.join(sum));
        total
    }

    /// The sums of the parts.
    pub fn into_parts(self) -> Vec<Record> {
        self.sums
    }
}

/// The connection to executors, as far as there is one.
struct Held {
    place: String,
    server: String,
    executors: Arc<dyn Executors>,
    /// The key by which parts are ranges, and its numbers.
    span: Option<(Vec<usize>, Span)>,
    /// The rows of the last task, for the next look.
    kept: Option<(Task, Vec<u8>)>,
}

fn connect(location: &Location) -> Result<Box<dyn Connection>> {
    let Some(Elsewhere(executors)) = location.elsewhere.clone() else {
        return Err(Error::Address("there are no executors that have these rows".to_owned()));
    };
    let (place, server) = (location.to_string(), executors.title());
    Ok(Box::new(Held { place, server, executors, span: None, kept: None }))
}

/// What cannot be read is refused by its name.
fn can_read(all: &[Column], columns: &[(usize, Form)]) -> Result<()> {
    for column in columns.iter().filter_map(|(place, _)| all.get(*place)) {
        if matches!(column.form, Form::Opaque(_)) {
            return Err(Error::Unsupported(format!(
                "the column {} ({}) has no form in which values of all engines are compared\n\
                 hint: leave it out",
                column.name, column.declared
            )));
        }
    }
    Ok(())
}

/// The task of summing all of a table, as [`checksum`](crate::checksum::checksum) does.
///
/// # Errors
/// A column has no canonical form.
pub fn whole(table: &Table) -> Result<Task> {
    let form = |place: usize| table.columns.get(place).map(|column| (place, column.form.clone()));
    let columns: Vec<(usize, Form)> = table.ordered().into_iter().filter_map(form).collect();
    can_read(&table.columns, &columns)?;
    Ok(Task { columns, key_count: 0, split: Split::Whole, wanted: None })
}

/// Gives the rows of a piece, one by one.
fn each_row(
    piece: &[u8],
    count: usize,
    row: &mut Row,
    see: &mut dyn FnMut(&Row) -> Result<()>,
) -> Result<()> {
    let mut rest = piece;
    while !rest.is_empty() {
        rest = row
            .take(rest, count)
            .ok_or_else(|| Error::Unsupported("an executor gave rows that are none".to_owned()))?;
        see(row)?;
    }
    Ok(())
}

impl Connection for Held {
    fn server(&self) -> &str {
        &self.server
    }

    fn freeze(&mut self) -> Result<()> {
        // What executors read is theirs to keep as it is.
        Ok(())
    }

    fn tables(&mut self) -> Result<Vec<TableName>> {
        Ok(vec![TableName { schema: None, name: self.executors.name() }])
    }

    fn describe(&mut self, name: &TableName) -> Result<Table> {
        Ok(Table {
            name: name.clone(),
            columns: self.executors.columns(),
            key: Vec::new(),
            engine: name.name.clone(),
            bytes: None,
            rows_estimated: None,
        })
    }

    fn put_in_order(&mut self, table: &mut Table, key: &[usize]) -> Result<bool> {
        let [place] = key else { return Ok(false) };
        if !table.columns.get(*place).is_some_and(Column::is_whole) {
            return Ok(false);
        }
        // Rows without a key are in no range.
        let Some(span) = self.executors.span(*place)?.filter(|span| span.nulls == 0) else {
            return Ok(false);
        };
        self.span = Some((key.to_vec(), span));
        table.key = key.to_vec();
        if let Some(column) = table.columns.get_mut(*place) {
            column.nullable = false;
        }
        Ok(true)
    }

    fn span(&self) -> Option<Span> {
        self.span.as_ref().map(|(_, span)| *span)
    }

    fn count(&mut self, _table: &Table) -> Result<u64> {
        let task = Task { columns: Vec::new(), key_count: 0, split: Split::Whole, wanted: None };
        Ok(self.sums_of_task(&task)?.iter().map(|sum| sum.rows).sum())
    }

    fn read(&mut self, query: &Query<'_>, sink: &mut Sink<'_>) -> Result<()> {
        let is_whole = query.range.after.is_none() && query.range.upto.is_none();
        if !is_whole || query.ordered || query.offset > 0 || query.limit.is_some() {
            let reason = "rows of executors are read by parts";
            return Err(Error::Unsupported(format!("{}: {reason}", self.place)));
        }
        let columns = query.columns.to_vec();
        self.rows_of_task(&Task { columns, key_count: 0, split: Split::Whole, wanted: None }, sink)
    }

    fn is_elsewhere(&self) -> bool {
        true
    }

    fn sums_of_task(&mut self, task: &Task) -> Result<Vec<Record>> {
        can_read(&self.executors.columns(), &task.columns)?;
        let mut joined = Worker::new(task.clone());
        self.executors.sums(task, &mut |sums| joined.join(sums))?;
        Ok(joined.into_parts())
    }

    fn rows_of_task(&mut self, task: &Task, sink: &mut Sink<'_>) -> Result<()> {
        can_read(&self.executors.columns(), &task.columns)?;
        let (count, mut row) = (task.columns.len(), Row::new());
        if let Some((_, rows)) = self.kept.as_ref().filter(|(known, _)| known == task) {
            return each_row(rows, count, &mut row, sink);
        }
        let mut kept = Some(Vec::new());
        self.executors.rows(task, &mut |piece| {
            match &mut kept {
                Some(rows) if rows.len() + piece.len() <= KEPT_BYTES_MAX => {
                    rows.extend_from_slice(piece);
                }
                _ => kept = None,
            }
            each_row(piece, count, &mut row, sink)
        })?;
        self.kept = kept.map(|rows| (task.clone(), rows));
        Ok(())
    }

    fn native(&mut self, _table: &Table) -> Result<String> {
        Err(Error::Unsupported("rows elsewhere have no checksum of their own".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::split::Ranges;

    fn row(key: i64, text: &str) -> Row {
        let mut row = Row::new();
        row.integer(key);
        row.text(text.as_bytes());
        row
    }

    fn task(split: Split) -> Task {
        let columns = vec![(0, Form::Number), (1, Form::Text)];
        Task { columns, key_count: 1, split, wanted: None }
    }

    /// However rows are spread over workers, the sums are the same, and so is their total.
    #[test]
    fn sums_join_to_those_of_all_rows() {
        let splits = [
            Split::Whole,
            Split::Buckets,
            Split::Ranges(Ranges::new(None, [[1, 1000]; 2], 1000, 10)),
        ];
        for split in splits {
            let task = task(split);
            let mut all = Worker::new(task.clone());
            let mut parts = [0, 1, 2].map(|_| Worker::new(task.clone()));
            for key in 0..1000_i64 {
                all.add(&row(key, "x"));
                parts[usize::try_from(key % 3).unwrap()].add(&row(key, "x"));
            }
            let mut joined = Worker::new(task.clone());
            parts.iter().rev().for_each(|part| joined.join(&part.sums()).unwrap());
            assert_eq!(joined.total(), all.total());
            assert_eq!(joined.into_parts(), all.into_parts());
        }
    }

    #[test]
    fn what_are_no_sums_is_refused() {
        let mut worker = Worker::new(task(Split::Whole));
        worker.add(&row(1, "x"));
        let sums = worker.sums();
        assert!(worker.join(&sums[1..]).is_err());
        assert!(worker.join(&[0xFF; 4 + RECORD_BYTES]).is_err());
        assert!(worker.join(&[]).is_ok());
    }

    #[test]
    fn a_task_arrives_as_it_was_sent() {
        let task = Task {
            wanted: Some(HashSet::from([3])),
            ..task(Split::Ranges(Ranges::new(None, [[i64::MIN, 7]; 2], 9, 1)))
        };
        let text = serde_json::to_string(&task).unwrap();
        assert_eq!(serde_json::from_str::<Task>(&text).unwrap(), task);
    }

    #[test]
    fn rows_are_found_again_one_by_one() {
        let mut piece = row(1, "a").bytes().to_vec();
        piece.extend_from_slice(row(2, "").bytes());
        let mut found = Vec::new();
        let mut see = |row: &Row| {
            found.push((row.count(), row.bytes().to_vec()));
            Ok(())
        };
        each_row(&piece, 2, &mut Row::new(), &mut see).unwrap();
        assert_eq!(found, [(2, row(1, "a").bytes().to_vec()), (2, row(2, "").bytes().to_vec())]);
        for end in 1..piece.len() {
            let cut = &piece[..end];
            let is_whole = end == row(1, "a").bytes().len();
            let read = each_row(cut, 2, &mut Row::new(), &mut |_| Ok(()));
            assert_eq!(read.is_ok(), is_whole, "{end}");
        }
    }
}
