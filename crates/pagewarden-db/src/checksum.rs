//! Checksums of whole tables, by strategies that differ in cost and in what they see.
//!
//! | strategy | what | where |
//! |---|---|---|
//! | `count` | rows only | server |
//! | `native` | `CHECKSUM TABLE`; sums of `hash_record_extended` | server |
//! | `accum` | each row's hash goes into the next one's, in the order of the key | server (MySQL), here |
//! | `bitxor` | hashes of rows joined by exclusive or | server (MySQL), here |
//! | `multiset` | sums of strong hashes of canonical rows: equal across engines | here |
//! | `replicate` | sums of MD5 in a table on the primary, see [`crate::replicate`] | server |

pub mod database;

use std::time::{Duration, Instant};

use md5::{Digest as _, Md5};
use pagewarden::crc::Crc32;

use crate::engine::interrupt::interruptible;
use crate::engine::{Connection, Query, Range, ServerSum};
use crate::error::{Error, Result};
use crate::row::record::{self, Record};
use crate::row::{Row, hex_text};
use crate::table::{Form, Table};

/// A way to make a checksum of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Counts rows.
    Count,
    /// The engine's own.
    Native,
    /// Hashes in the order of the key, each with what came before.
    Accum,
    /// Hashes joined by exclusive or.
    Bitxor,
    /// Kept in a table on the primary, so that replicas compute their own.
    Replicate,
    /// The sums of two lanes of strong hashes.
    Multiset,
}

impl Strategy {
    /// All of them, by their names.
    pub const ALL: &[(&'static str, Self)] = &[
        ("count", Self::Count),
        ("native", Self::Native),
        ("accum", Self::Accum),
        ("bitxor", Self::Bitxor),
        ("replicate", Self::Replicate),
        ("multiset", Self::Multiset),
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// The strategy of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, strategy)| *strategy)
    }
}

/// What `accum` and `bitxor` hash with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Function {
    /// CRC-32.
    Crc32,
    /// MD5.
    #[default]
    Md5,
}

/// What `bitxor` with CRC-32 cannot see.
pub const BLINDNESS: &str = "CRC-32 joined by exclusive or is blind: values swapped between rows, \
    or a whole column shifted in an even number of rows, leave it as it was\n\
    hint: --function md5, or --strategy multiset";

/// A table's checksum.
#[derive(Debug, Clone)]
pub struct Checksum {
    /// The number of rows.
    pub rows: u64,
    /// The bytes of the rows as they came; none where the server summed them.
    pub bytes_read: Option<u64>,
    /// The checksum; none of `count`.
    pub value: Option<String>,
    /// How long it took.
    pub elapsed: Duration,
    /// True if the server computed it.
    pub by_server: bool,
}

/// Takes the number of rows that were read and of their bytes; may slow the reading down, or
/// end it by an error.
pub type Tell<'a> = dyn Fn(u64, u64) -> Result<()> + Sync + 'a;

/// Counts rows, and tells of them now and then.
pub(crate) struct Teller<'a> {
    tell: &'a Tell<'a>,
    /// All rows.
    pub rows: u64,
    /// All bytes.
    pub bytes: u64,
    told_rows: u64,
    told_bytes: u64,
}

impl<'a> Teller<'a> {
    pub fn new(tell: &'a Tell<'a>) -> Self {
        Self { tell, rows: 0, bytes: 0, told_rows: 0, told_bytes: 0 }
    }

    /// A row was read.
    pub fn row(&mut self, row: &[u8]) -> Result<()> {
        self.rows += 1;
        self.bytes += row.len() as u64;
        let much =
            self.rows - self.told_rows >= TELL_ROWS || self.bytes - self.told_bytes >= TELL_BYTES;
        if much { self.end() } else { Ok(()) }
    }

    /// Tells of what was not told yet.
    pub fn end(&mut self) -> Result<()> {
        let (rows, bytes) = (self.rows - self.told_rows, self.bytes - self.told_bytes);
        (self.told_rows, self.told_bytes) = (self.rows, self.bytes);
        (self.tell)(rows, bytes)
    }
}

/// After how many rows or bytes [`Tell`] is called.
const TELL_ROWS: u64 = 1024;
const TELL_BYTES: u64 = 1 << 20;

/// Makes a checksum of a table.
///
/// # Errors
/// The engine has no such checksum, the server refuses, or `tell` ended it.
pub fn checksum(
    connection: &mut dyn Connection,
    table: &Table,
    strategy: Strategy,
    function: Function,
    tell: &Tell<'_>,
) -> Result<Checksum> {
    let begin = Instant::now();
    let md5 = function == Function::Md5;
    let by_server =
        |rows, value, elapsed| Checksum { rows, bytes_read: None, value, elapsed, by_server: true };
    match strategy {
        Strategy::Count => {
            let rows = interruptible(connection, tell, |connection| connection.count(table))?;
            Ok(by_server(rows, None, begin.elapsed()))
        }
        Strategy::Native => {
            let value = interruptible(connection, tell, |connection| connection.native(table))?;
            let elapsed = begin.elapsed();
            // Counted apart, and not part of its time.
            let rows = interruptible(connection, tell, |connection| connection.count(table))?;
            Ok(by_server(rows, Some(value), elapsed))
        }
        Strategy::Accum | Strategy::Bitxor => {
            let accumulated = strategy == Strategy::Accum;
            let sum = ServerSum { accumulated, md5 };
            match interruptible(connection, tell, |connection| connection.summed(table, sum))? {
                Some((rows, value)) => Ok(by_server(rows, Some(value), begin.elapsed())),
                None => here(connection, table, &mut Chain::new(accumulated, md5), tell),
            }
        }
        Strategy::Multiset => here(connection, table, &mut Record::default(), tell),
        Strategy::Replicate => {
            Err(Error::Unsupported("replicate writes, and a connection only reads".to_owned()))
        }
    }
}

/// What is computed from rows as they come.
trait Sum {
    fn add(&mut self, row: &Row);
    fn value(&self) -> String;
    fn needs_order(&self) -> bool;
}

impl Sum for Record {
    fn add(&mut self, row: &Row) {
        Self::add(self, record::hash(row.bytes()));
    }

    fn value(&self) -> String {
        self.text()
    }

    fn needs_order(&self) -> bool {
        false
    }
}

/// `accum` and `bitxor` of canonical rows.
struct Chain {
    accumulated: bool,
    md5: bool,
    digest: [u8; 16],
}

impl Chain {
    fn new(accumulated: bool, md5: bool) -> Self {
        Self { accumulated, md5, digest: [0; 16] }
    }

    fn hash(&self, parts: &[&[u8]]) -> [u8; 16] {
        if self.md5 {
            let mut hasher = Md5::new();
            for part in parts {
                hasher.update(part);
            }
            return hasher.finalize().into();
        }
        let mut hasher = Crc32::new();
        for part in parts {
            hasher.update(part);
        }
        let mut digest = [0; 16];
        for (byte, of_sum) in digest.iter_mut().rev().zip(hasher.finish().to_le_bytes()) {
            *byte = of_sum;
        }
        digest
    }
}

impl Sum for Chain {
    fn add(&mut self, row: &Row) {
        let of_row = self.hash(&[row.bytes()]);
        if self.accumulated {
            self.digest = self.hash(&[&self.digest, &of_row]);
        } else {
            for (byte, of_row) in self.digest.iter_mut().zip(of_row) {
                *byte ^= of_row;
            }
        }
    }

    fn value(&self) -> String {
        let significant = if self.md5 { 0 } else { 12 };
        hex_text(self.digest.get(significant..).unwrap_or_default())
    }

    fn needs_order(&self) -> bool {
        self.accumulated
    }
}

fn here(
    connection: &mut dyn Connection,
    table: &Table,
    sum: &mut dyn Sum,
    tell: &Tell<'_>,
) -> Result<Checksum> {
    tell(0, 0)?;
    let begin = Instant::now();
    let form = |place: usize| table.columns.get(place).map(|column| (place, column.form.clone()));
    let columns: Vec<(usize, Form)> = table.ordered().into_iter().filter_map(form).collect();
    let range = Range { key: table.key.clone(), ..Range::default() };
    let ordered = sum.needs_order() && !table.key.is_empty();
    let query = Query { table, columns: &columns, range: &range, ordered, offset: 0, limit: None };
    let mut teller = Teller::new(tell);
    connection.read(&query, &mut |row| {
        sum.add(row);
        teller.row(row.bytes())
    })?;
    teller.end()?;
    Ok(Checksum {
        rows: teller.rows,
        bytes_read: Some(teller.bytes),
        value: Some(sum.value()),
        elapsed: begin.elapsed(),
        by_server: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(accumulated: bool, md5: bool, rows: &[&str]) -> String {
        let mut chain = Chain::new(accumulated, md5);
        for text in rows {
            let mut row = Row::new();
            row.text(text.as_bytes());
            chain.add(&row);
        }
        chain.value()
    }

    /// The hole of CRC-32 joined by exclusive or, which is why it is no verdict: all four
    /// rows are other ones, by values swapped between pairs of rows.
    #[test]
    fn crc32_by_exclusive_or_misses_swapped_values_and_md5_does_not() {
        let before = ["1 aaaa xxxx", "2 bbbb yyyy", "3 aaaa yyyy", "4 bbbb xxxx"];
        let after = ["1 bbbb xxxx", "2 aaaa yyyy", "3 bbbb yyyy", "4 aaaa xxxx"];
        assert_eq!(chain(false, false, &before), chain(false, false, &after));
        assert_ne!(chain(false, true, &before), chain(false, true, &after));
        assert_ne!(chain(true, false, &before), chain(true, false, &after));
    }

    #[test]
    fn doubled_rows_cancel_in_exclusive_or_only() {
        assert_eq!(chain(false, true, &["a", "a"]), chain(false, true, &["b", "b"]));
        assert_ne!(chain(true, true, &["a", "a"]), chain(true, true, &["b", "b"]));
    }

    #[test]
    fn order_matters_to_accum_only() {
        assert_ne!(chain(true, true, &["a", "b"]), chain(true, true, &["b", "a"]));
        assert_eq!(chain(false, true, &["a", "b"]), chain(false, true, &["b", "a"]));
        assert_eq!(chain(false, false, &["a"]).len(), 8);
    }
}
