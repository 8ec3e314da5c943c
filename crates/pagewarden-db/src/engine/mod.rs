//! The kinds of servers. One file each, and one line in [`ENGINES`].
//!
//! A connection only ever reads (but for `replicate`, which has one of its own): sessions are set to be read-only where they begin,
//! and what a hostile default may change in what we read (character sets, time zones,
//! date styles, SQL modes, limits) is set to one value for all.

pub mod elsewhere;
pub mod interrupt;
pub mod mysql;
pub mod parquet;
pub mod postgres;
pub mod sqlite;
pub mod statement;

use std::time::Duration;

use elsewhere::{Span, Task};
use interrupt::Interrupt;

use crate::error::{Error, Result};
use crate::location::Location;
use crate::replicate;
use crate::row::record::Record;
use crate::row::{Row, Value, portable};
use crate::table::{Column, Form, Table, TableName};

/// A kind of server.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// How its URLs begin.
    pub scheme: &'static str,
    /// What it is called.
    pub title: &'static str,
    /// Opens a connection that can only read.
    pub connect: fn(&Location) -> Result<Box<dyn Connection>>,
    /// How it writes statements.
    pub dialect: &'static dyn statement::Dialect,
    /// Makes checksums of a table that replicas compute again, where there are such.
    pub replicate: Option<replicate::Write>,
    /// Its locations are of one table each, which is compared with one of any name, and is never
    /// changed by statements.
    pub is_one_table: bool,
}

/// All kinds of servers.
pub const ENGINES: &[Engine] =
    &[postgres::ENGINE, mysql::ENGINE, sqlite::ENGINE, parquet::ENGINE, elsewhere::ENGINE];

/// The kind of server that a location is about.
///
/// # Errors
/// There is none, which is a fault of the location.
pub fn of(location: &Location) -> Result<&'static Engine> {
    named(&location.scheme)
        .ok_or_else(|| Error::Address(format!("unknown kind of database '{}'", location.scheme)))
}

/// The kind of server whose URLs begin so.
pub fn named(scheme: &str) -> Option<&'static Engine> {
    ENGINES.iter().find(|engine| engine.scheme == scheme)
}

/// What is done with each row. An error ends the reading.
pub type Sink<'a> = dyn FnMut(&Row) -> Result<()> + 'a;

/// Rows to be read.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    /// The table.
    pub table: &'a Table,
    /// The columns by their places in the table, and the form of each.
    pub columns: &'a [(usize, Form)],
    /// Which rows.
    pub range: &'a Range,
    /// True if the rows come in the order of the range's key.
    pub ordered: bool,
    /// Rows to leave out at the begin.
    pub offset: u64,
    /// The most rows to read.
    pub limit: Option<u64>,
}

impl<'a> Query<'a> {
    /// All rows of a range, in no order.
    pub fn of(table: &'a Table, columns: &'a [(usize, Form)], range: &'a Range) -> Self {
        Self { table, columns, range, ordered: false, offset: 0, limit: None }
    }
}

/// Rows between two keys; all of them where there is neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    /// The key's columns, by their places in the table.
    pub key: Vec<usize>,
    /// The key before the first row, or the first values of it: all keys that begin so
    /// come before.
    pub after: Option<Vec<Value>>,
    /// The key of the last row, or the first values of it: all keys that begin so are
    /// among the rows.
    pub upto: Option<Vec<Value>>,
}

/// What stands beside tables in a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    /// `sequence`, `materialized view`, `foreign table` or `large object`.
    pub kind: &'static str,
    /// How many there are.
    pub count: u64,
    /// Their names, where they have some.
    pub names: Vec<TableName>,
}

/// A connection to a database.
pub trait Connection: Send {
    /// What the server calls itself, for example "PostgreSQL 15.18".
    fn server(&self) -> &str;

    /// The server's kind alone, for example "PostgreSQL".
    fn title(&self) -> &str {
        self.server().split(' ').next().unwrap_or_default()
    }

    /// From here on, everything is read as it is at this moment.
    ///
    /// # Errors
    /// The server refuses.
    fn freeze(&mut self) -> Result<()>;

    /// The tables, in the order of their names.
    ///
    /// # Errors
    /// The server does not answer.
    fn tables(&mut self) -> Result<Vec<TableName>>;

    /// What this database holds besides tables and no comparison of tables looks at, in words
    /// for what it is, with its names; large objects have none, and are counted.
    ///
    /// # Errors
    /// The server does not answer.
    fn beside_tables(&mut self) -> Result<Vec<Beside>> {
        Ok(Vec::new())
    }

    /// What a table is made of.
    ///
    /// # Errors
    /// There is no such table, or we may not see it.
    fn describe(&mut self, name: &TableName) -> Result<Table>;

    /// Whether ranges of a key, by its columns' places in the table, can be read in their order for
    /// what they are worth. Where a table has no key of its own, it may be put in order by this one,
    /// which is then its key.
    ///
    /// # Errors
    /// The server is gone, or the table cannot be read.
    fn put_in_order(&mut self, table: &mut Table, key: &[usize]) -> Result<bool> {
        Ok(table.key.starts_with(key))
    }

    /// The number of rows, as the server counts them.
    ///
    /// # Errors
    /// The server refuses.
    fn count(&mut self, table: &Table) -> Result<u64>;

    /// Reads rows.
    ///
    /// # Errors
    /// The server refuses or is gone, or `sink` gave the error.
    fn read(&mut self, query: &Query<'_>, sink: &mut Sink<'_>) -> Result<()>;

    /// True if values of two columns of the same form, sent by this connection and by another
    /// to a server of this kind in the same bytes, are the same. Those that are sent in other
    /// bytes may be, too.
    fn sends_alike(&self, one: &Column, other: &Column) -> bool {
        let _ = (one, other);
        false
    }

    /// Reads rows as the server sends them: bytes that, with the columns' types,
    /// tell where a row ends. For columns that are [sent alike](Self::sends_alike).
    ///
    /// # Errors
    /// The server refuses or is gone, or `see` gave the error.
    fn read_as_sent(
        &mut self,
        query: &Query<'_>,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let _ = (query, see);
        Err(Error::Unsupported(format!("{} sends rows in no fixed form", self.title())))
    }

    /// The first and the last number of the first column, which is the key, if the server gives
    /// all rows of the table at once for far less than range by range.
    ///
    /// # Errors
    /// The server is gone.
    fn skims(&mut self, query: &Query<'_>) -> Result<Option<[i64; 2]>> {
        let _ = query;
        Ok(None)
    }

    /// Reads all rows of a table in any order, as they are at one moment and as the server
    /// [sends](Self::read_as_sent) them; `see` gets each with the number in its first column.
    ///
    /// # Errors
    /// The server refuses or is gone, the table cannot be read in this way (`Unsupported`), or
    /// `see` gave the error.
    fn skim(
        &mut self,
        query: &Query<'_>,
        see: &mut dyn FnMut(i64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let _ = (query, see);
        Err(Error::Unsupported(format!("{} gives no rows at once", self.title())))
    }

    /// What ends the statement that the server works on; none where all statements are
    /// short, or send rows.
    fn interrupt(&self) -> Option<Interrupt> {
        None
    }

    /// True if others have the rows, who do [tasks](Task) and nothing else.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// The numbers of the key in whose order a table of others [was put](Self::put_in_order).
    fn span(&self) -> Option<Span> {
        None
    }

    /// Has others sum their rows, part by part.
    ///
    /// # Errors
    /// There are no others, or they do not answer.
    fn sums_of_task(&mut self, task: &Task) -> Result<Vec<Record>> {
        let _ = task;
        Err(Error::Unsupported(format!("{} does no tasks", self.title())))
    }

    /// Has others send the rows of a task.
    ///
    /// # Errors
    /// There are no others, they do not answer, or `sink` gave the error.
    fn rows_of_task(&mut self, task: &Task, sink: &mut Sink<'_>) -> Result<()> {
        let _ = (task, sink);
        Err(Error::Unsupported(format!("{} does no tasks", self.title())))
    }

    /// The engine's own checksum of a table.
    ///
    /// # Errors
    /// It has none, or refuses.
    fn native(&mut self, table: &Table) -> Result<String>;

    /// Where its log ends, in words of its own, if others may follow it.
    ///
    /// # Errors
    /// The server is gone.
    fn position(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Whether it has all up to a position of another server, whose log it follows; none
    /// if it follows none, or does not tell.
    ///
    /// # Errors
    /// The server is gone.
    fn has_reached(&mut self, position: &str) -> Result<Option<bool>> {
        let _ = position;
        Ok(None)
    }

    /// How many statements it works on, but for the one that asks; none where it has no
    /// such number.
    ///
    /// # Errors
    /// We may not see those of others.
    fn load(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// How far it is behind the server that it follows; [`Duration::MAX`] if it has
    /// stopped to follow, none if it follows none.
    ///
    /// # Errors
    /// We may not ask.
    fn lag(&mut self) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// Which sums of rows the server can make by statements.
    ///
    /// # Errors
    /// The server is gone.
    fn sums_of(&mut self, hashing: Hashing) -> Result<Ability> {
        Ok(match hashing {
            Hashing::Native => {
                Ability::No(format!("{} has no hash of rows of its own", self.title()))
            }
            Hashing::Portable => Ability::As(String::new()),
        })
    }

    /// Sums the hashes of rows where they are. Here is how it is done without a server.
    ///
    /// # Errors
    /// The server refuses or is gone.
    fn sums(&mut self, query: &Query<'_>, hashing: Hashing) -> Result<Sums> {
        let _ = hashing;
        let mut sums = Sums::default();
        let mut text = Vec::new();
        self.read(query, &mut |row| {
            let hashed = portable::hash(query.columns, row, &mut text);
            sums.add(hashed);
            Ok(())
        })?;
        Ok(sums)
    }

    /// A checksum that the server computes by a statement, if it can: of `count` and
    /// the sum.
    ///
    /// # Errors
    /// The server refuses.
    fn summed(&mut self, table: &Table, sum: ServerSum) -> Result<Option<(u64, String)>> {
        let _ = (table, sum);
        Ok(None)
    }
}

/// How servers hash rows by statements of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hashing {
    /// By their own functions: equal between servers that are alike.
    Native,
    /// By MD5 of [`portable`] text: equal across engines.
    Portable,
}

/// Whether a server can make sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ability {
    /// It can, and they are comparable with those of servers that say the same.
    As(String),
    /// It cannot, and why.
    No(String),
}

/// What a server's statement says of some rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// The rows.
    pub rows: u64,
    /// Those that have a hash: fewer where one was longer than the server allows.
    pub hashed: u64,
    /// Those with a value that has no text which every engine writes alike.
    pub special: u64,
    /// Exact sums of two independent parts of the rows' hashes.
    pub lanes: [i128; 2],
}

impl Sums {
    /// Counts a row in; one without a hash is special.
    fn add(&mut self, lanes: Option<[u64; 2]>) {
        self.rows += 1;
        self.hashed += 1;
        match lanes {
            Some(lanes) => {
                for (sum, lane) in self.lanes.iter_mut().zip(lanes) {
                    *sum += i128::from(lane);
                }
            }
            None => self.special += 1,
        }
    }

    /// The answer of a statement: rows, rows hashed, special rows, two lanes.
    pub(crate) fn of_answer(answer: &[Option<String>]) -> Option<Self> {
        let [rows, hashed, special, low, high] = answer else { return None };
        let count = |text: &Option<String>| text.as_ref()?.parse().ok();
        let lane = |text: &Option<String>| text.as_ref()?.parse().ok();
        Some(Self {
            rows: count(rows)?,
            hashed: count(hashed)?,
            special: count(special)?,
            lanes: [lane(low)?, lane(high)?],
        })
    }

    /// The two sums.
    pub fn text(&self) -> String {
        let [low, high] = self.lanes;
        format!("{low} {high}")
    }

    /// True if the sums are a verdict: every row has gone into them.
    pub fn is_whole(&self) -> bool {
        self.hashed == self.rows && self.special == 0
    }
}

/// A checksum that a server may compute by a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerSum {
    /// Each row's hash goes into the next one's; else they are joined by exclusive or.
    pub accumulated: bool,
    /// MD5; else CRC-32.
    pub md5: bool,
}
