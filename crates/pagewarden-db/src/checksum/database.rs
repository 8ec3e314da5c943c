//! Checksums of the tables of a database, several at a time, as `checksum --json` has them.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pagewarden::words::seconds;
use serde_json::{Value, json};

use super::{BLINDNESS, Checksum, Function, Strategy, Tell, checksum};
use crate::engine::{self, Connection};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::replicate;
use crate::table::TableName;

/// What is summed.
#[derive(Debug, Clone)]
pub struct Request {
    /// The database.
    pub location: Location,
    /// The tables by their names; all if there are none, nor in the location.
    pub tables: Vec<String>,
    /// In which ways.
    pub strategies: Vec<Strategy>,
    /// What `accum` and `bitxor` hash with.
    pub function: Function,
    /// All is read as it is at one moment.
    pub frozen: bool,
    /// Rows of a statement of `replicate`; else as many as time allows.
    pub chunk_rows: Option<u64>,
    /// Tables that are summed at the same time. A frozen view belongs to one connection: then one.
    pub jobs: NonZero<usize>,
}

/// One table and strategy.
#[derive(Debug)]
pub struct Line {
    /// The database, without its password.
    pub url: String,
    /// What the server calls itself.
    pub server: String,
    /// The table.
    pub table: TableName,
    /// How it was summed.
    pub strategy: Strategy,
    /// What with, where that can be chosen.
    pub function: Function,
    /// The table's size as the server has it, and what came of it.
    pub made: Result<(Option<u64>, Checksum)>,
}

impl Line {
    /// The size of the table, as far as it is known.
    pub fn bytes(&self) -> Option<u64> {
        self.made.as_ref().ok().and_then(|(bytes, sum)| bytes.or(sum.bytes_read))
    }

    /// It as an object.
    pub fn object(&self) -> Value {
        let function = match (self.strategy, self.function) {
            (Strategy::Accum | Strategy::Bitxor, Function::Crc32) => Some("crc32"),
            (Strategy::Accum | Strategy::Bitxor, Function::Md5) => Some("md5"),
            _ => None,
        };
        let mut object = json!({
            "url": self.url,
            "server": self.server,
            "table": self.table.to_string(),
            "strategy": self.strategy.name(),
            "function": function,
        });
        let mut more = Vec::new();
        match &self.made {
            Ok((_, sum)) => {
                more.extend([
                    ("rows", json!(sum.rows)),
                    ("bytes", json!(self.bytes())),
                    ("bytes_read", json!(sum.bytes_read)),
                    ("checksum", json!(sum.value)),
                    ("seconds", json!(seconds(sum.elapsed))),
                    ("computed_by", json!(if sum.by_server { "server" } else { "client" })),
                ]);
                if self.strategy == Strategy::Bitxor && self.function == Function::Crc32 {
                    more.push(("warning", json!(BLINDNESS)));
                }
            }
            Err(error) => more.push(("error", json!(error.to_string()))),
        }
        if let Some(fields) = object.as_object_mut() {
            fields.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
        object
    }
}

/// How a run over databases ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ended<'a> {
    /// A table could not be summed.
    pub failed: bool,
    /// The caller ended it.
    pub stopped: bool,
    /// Why it ended, if a server could not be reached.
    pub error: Option<&'a str>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Ended<'_> {
    /// The whole object, of those of the lines.
    pub fn object(&self, lines: &[Value]) -> Value {
        let is_whole = self.error.is_none() && !self.failed && !self.stopped;
        let mut object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "checksum",
            "verdict": if is_whole { "complete" } else { "incomplete" },
            "seconds": seconds(self.elapsed),
            "stopped": self.stopped,
            "tables": lines,
        });
        if let (Some(error), Some(object)) = (self.error, object.as_object_mut()) {
            object.insert("error".to_owned(), json!(error));
        }
        object
    }
}

/// What is done with what comes.
pub trait Taker<E> {
    /// The server answers, and these are the tables.
    ///
    /// # Errors
    /// It could not be handed on, which ends the run.
    fn opened(&mut self, server: &str, names: &[TableName]) -> std::result::Result<(), E>;

    /// A line, in the order of the tables and of the strategies; none where the caller ended the run.
    ///
    /// # Errors
    /// It could not be handed on, which ends the run.
    fn take(&mut self, line: Option<Line>) -> std::result::Result<(), E>;
}

/// Sums the tables of a database. `begin` gets the name of each table that begins.
///
/// # Errors
/// The server cannot be reached, or `taker` gave the error. What goes wrong with one table is in its line.
pub fn database<E: From<Error> + Send>(
    request: &Request,
    tell: &Tell<'_>,
    begin: &(dyn Fn(&str) + Sync),
    taker: &mut dyn Taker<E>,
) -> std::result::Result<(), E> {
    let mut connection = connect(request)?;
    let names = names(connection.as_mut(), request)?;
    taker.opened(connection.server(), &names)?;
    // A frozen view belongs to one connection.
    let jobs = if request.frozen { 1 } else { request.jobs.get().min(names.len()) };
    let next = AtomicUsize::new(0);
    let (done, arriving) = mpsc::channel();
    let strategies = request.strategies.as_slice();
    let work = |first: Option<Box<dyn Connection>>, done: mpsc::Sender<_>| {
        let mut connection = first;
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(name) = names.get(index)
        {
            begin(&name.to_string());
            for (place, strategy) in strategies.iter().enumerate() {
                let made = line(&mut connection, request, name, *strategy, tell);
                let ended = !matches!(made, Ok(Some(_)));
                // The receiver is gone once the run has failed.
                if done.send((index * strategies.len() + place, made)).is_err() || ended {
                    return;
                }
            }
        }
    };
    thread::scope(|scope| {
        let work = &work;
        for _ in 1..jobs {
            let done = done.clone();
            scope.spawn(move || work(None, done));
        }
        scope.spawn(move || work(Some(connection), done));
        // In the order of the tables, whichever was done first.
        let mut early = BTreeMap::new();
        let mut given = 0;
        for (index, made) in arriving {
            early.insert(index, made?);
            while let Some(made) = early.remove(&given) {
                taker.take(made)?;
                given += 1;
            }
        }
        early.into_values().try_for_each(|made| taker.take(made))
    })
}

/// Opens a connection, which is frozen if that is asked for.
fn connect(request: &Request) -> Result<Box<dyn Connection>> {
    let location = &request.location;
    let mut connection = (engine::of(location)?.connect)(location)?;
    if request.frozen {
        connection.freeze()?;
    }
    Ok(connection)
}

/// The tables that were asked for, or all of them.
fn names(connection: &mut dyn Connection, request: &Request) -> Result<Vec<TableName>> {
    let known = connection.tables()?;
    let asked = || request.tables.iter().chain(&request.location.table);
    if asked().next().is_none() {
        return Ok(known);
    }
    let find = |wanted: &String| {
        let found = known.iter().find(|name| name.to_string() == *wanted).cloned();
        found.unwrap_or_else(|| TableName { schema: None, name: wanted.clone() })
    };
    Ok(asked().map(find).collect())
}

/// One table and strategy, by the connection that there is or a new one; none if the caller
/// ended the run. A server that cannot be reached is an error.
fn line(
    connection: &mut Option<Box<dyn Connection>>,
    request: &Request,
    name: &TableName,
    strategy: Strategy,
    tell: &Tell<'_>,
) -> Result<Option<Line>> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => connect(request)?,
    };
    let server = open.server().to_owned();
    let made = open.describe(name).and_then(|table| {
        let sum = if strategy == Strategy::Replicate {
            let options = replicate::Options { chunk_rows: request.chunk_rows };
            replicate::write(&request.location, name, options, tell)?
        } else {
            checksum(open.as_mut(), &table, strategy, request.function, tell)?
        };
        Ok((table.bytes, sum))
    });
    if matches!(made, Err(Error::Stopped)) {
        return Ok(None);
    }
    if !made.as_ref().is_err_and(Error::is_fatal) {
        *connection = Some(open);
    }
    let (url, table, function) = (request.location.to_string(), name.clone(), request.function);
    Ok(Some(Line { url, server, table, strategy, function, made }))
}
