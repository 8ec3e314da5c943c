//! One look at some rows of both sides at once.

use std::collections::{HashMap, HashSet};
use std::thread;

use super::plan::Plan;
use super::split::Split;
use crate::checksum::{Tell, Teller};
use crate::engine::elsewhere::Task;
use crate::engine::interrupt::interruptible;
use crate::engine::{Connection, Hashing, Query, Range, Sums};
use crate::error::{Error, Result};
use crate::row::record::{self, Hash, Record};
use crate::row::{Row, Value};
use crate::table::{Form, Table};

/// The most rows that are remembered of a part: 128 MiB of them. Parts are made much
/// smaller; only rows that are all alike fall together.
const PAIRS_MAX: usize = 4 << 20;

/// The parts into which rows fall where no order can be relied on.
pub const BUCKETS: usize = 1 << 16;

/// One side of a comparison.
pub struct Side<'a> {
    /// The connection.
    pub connection: &'a mut dyn Connection,
    /// Its table.
    pub table: Table,
    /// Its columns, in the order of the plan.
    pub columns: Vec<(usize, Form)>,
    /// How many of them are the key.
    pub key_count: usize,
    /// Takes how many rows were read.
    pub tell: &'a Tell<'a>,
}

/// Some rows of a table.
#[derive(Debug, Clone)]
pub enum Scope {
    /// Those between two keys.
    Range {
        /// The key before the first.
        after: Option<Vec<Value>>,
        /// The last key.
        upto: Option<Vec<Value>>,
    },
    /// Those that fall into some parts.
    Parts(Split, HashSet<usize>),
}

/// A row as it is remembered: by the hashes of its key and of all of it.
pub type Pair = (Hash, Hash);

/// Rows as they are, by the hashes of their keys, each with its own hash.
pub type Rows = HashMap<Hash, Vec<(Hash, Vec<Value>)>>;

/// The bucket of a row, by its key or, without one, all of it.
pub fn bucket(key: Hash) -> usize {
    usize::try_from(key % (BUCKETS as u128)).unwrap_or(0)
}

impl<'a> Side<'a> {
    /// A side of a plan.
    pub fn new(
        connection: &'a mut dyn Connection,
        table: Table,
        columns: Vec<(usize, Form)>,
        plan: &Plan,
        tell: &'a Tell<'a>,
    ) -> Self {
        Self { connection, table, columns, key_count: plan.key_count, tell }
    }

    /// The range of a scope; everything if it is not one.
    pub fn range(&self, scope: &Scope) -> Range {
        let key = self.columns.iter().take(self.key_count).map(|(place, _)| *place).collect();
        match scope {
            Scope::Range { after, upto } => Range { key, after: after.clone(), upto: upto.clone() },
            Scope::Parts(..) => Range::default(),
        }
    }

    /// Reads the rows of a scope; `see` gets each, with the hashes of its key and of it.
    fn read(&mut self, scope: &Scope, see: &mut dyn FnMut(&Row, Pair) -> Result<()>) -> Result<()> {
        let key_count = self.key_count;
        let mut teller = Teller::new(self.tell);
        let mut seen = |row: &Row| {
            teller.row(row.bytes())?;
            let of_row = record::hash(row.bytes());
            let key = if key_count > 0 { record::hash(row.leading(key_count)) } else { of_row };
            match scope {
                Scope::Parts(split, wanted) if !wanted.contains(&split.part(row, key)) => Ok(()),
                _ => see(row, (key, of_row)),
            }
        };
        if let (Scope::Parts(split, wanted), true) = (scope, self.connection.is_elsewhere()) {
            let task = self.task(*split, Some(wanted.clone()));
            self.connection.rows_of_task(&task, &mut seen)?;
            return teller.end();
        }
        for range in self.ranges(scope) {
            let query = Query::of(&self.table, &self.columns, &range);
            self.connection.read(&query, &mut seen)?;
        }
        teller.end()
    }

    /// The ranges in which all rows of a scope are, and perhaps others.
    fn ranges(&self, scope: &Scope) -> Vec<Range> {
        let bounds = match scope {
            Scope::Parts(split, wanted) => split.bounds(wanted),
            Scope::Range { .. } => None,
        };
        let Some(bounds) = bounds else { return vec![self.range(scope)] };
        let range = |(after, upto)| self.range(&Scope::Range { after, upto });
        bounds.into_iter().map(range).collect()
    }

    /// What executors are asked for who have the rows.
    fn task(&self, split: Split, wanted: Option<HashSet<usize>>) -> Task {
        let (columns, key_count) = (self.columns.clone(), self.key_count);
        Task { columns, key_count, split, wanted }
    }

    /// The sums of a range that the server makes.
    pub fn sum_there(&mut self, scope: &Scope, hashing: Hashing) -> Result<Sums> {
        let range = self.range(scope);
        let query = Query::of(&self.table, &self.columns, &range);
        let sum = |connection: &mut dyn Connection| connection.sums(&query, hashing);
        let sums = interruptible(self.connection, self.tell, sum)?;
        (self.tell)(sums.rows, 0)?;
        Ok(sums)
    }

    /// The rows of a scope by their hashes, in the order of these; of those keys only
    /// that are wanted, if any are named.
    pub fn pairs(
        &mut self,
        scope: &Scope,
        wanted: Option<&dyn Fn(Hash) -> bool>,
    ) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        self.read(scope, &mut |_, pair| {
            if wanted.is_none_or(|wanted| wanted(pair.0)) {
                if pairs.len() >= PAIRS_MAX {
                    let reason = "more rows are alike than memory may hold";
                    return Err(Error::Unsupported(reason.to_owned()));
                }
                pairs.push(pair);
            }
            Ok(())
        })?;
        pairs.sort_unstable();
        Ok(pairs)
    }

    /// The rows of some keys, as they are, as long as they fit into `bytes_max`.
    pub fn rows(
        &mut self,
        scope: &Scope,
        wanted: &HashSet<Hash>,
        bytes_max: usize,
    ) -> Result<Rows> {
        let mut kept = Rows::new();
        let mut bytes = 0;
        self.read(scope, &mut |row, (key, of_row)| {
            if wanted.contains(&key) && bytes < bytes_max {
                bytes += row.bytes().len();
                kept.entry(key).or_default().push((of_row, row.values()));
            }
            Ok(())
        })?;
        Ok(kept)
    }

    /// The key that has `rows` rows of a range up to it; none if there are fewer.
    pub fn bound(&mut self, scope: &Scope, rows: u64) -> Result<Option<Vec<Value>>> {
        let range = self.range(scope);
        let key = self.columns.get(..self.key_count).unwrap_or_default();
        let query = Query {
            ordered: true,
            offset: rows.saturating_sub(1),
            limit: Some(1),
            ..Query::of(&self.table, key, &range)
        };
        let mut bound = None;
        self.connection.read(&query, &mut |row| {
            bound = Some(row.values());
            Ok(())
        })?;
        Ok(bound)
    }
}

/// The sums of all parts, and the bytes of all rows that were read here.
pub fn sum_parts(side: &mut Side<'_>, split: Split) -> Result<(Vec<Record>, u64)> {
    if side.connection.is_elsewhere() {
        let task = side.task(split, None);
        let sums = side.connection.sums_of_task(&task)?;
        (side.tell)(sums.iter().map(|sum| sum.rows).sum(), 0)?;
        return Ok((sums, 0));
    }
    let everything = Scope::Range { after: None, upto: None };
    let mut sums = vec![Record::default(); split.count()];
    let mut bytes = 0;
    side.read(&everything, &mut |row, (key, of_row)| {
        bytes += row.bytes().len() as u64;
        if let Some(sum) = sums.get_mut(split.part(row, key)) {
            sum.add(of_row);
        }
        Ok(())
    })?;
    Ok((sums, bytes))
}

/// Does the same on both sides at the same time. If both fail, the source's error is given.
pub fn both<T: Send>(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    work: impl Fn(&mut Side<'_>) -> Result<T> + Sync,
) -> Result<(T, T)> {
    thread::scope(|scope| {
        let of_target = scope.spawn(|| work(target));
        let of_source = work(source);
        let of_target = of_target.join().unwrap_or(Err(Error::Stopped));
        Ok((of_source?, of_target?))
    })
}
