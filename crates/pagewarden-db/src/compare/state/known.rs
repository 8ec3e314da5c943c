//! What a state says of the tables, line after line.

use std::collections::{BTreeMap, HashMap};

use super::lines::{Buckets, Chunk, Line, PartNumber};
use crate::compare::look::{BUCKETS, Scope};
use crate::compare::map::PartMap;
use crate::compare::mode::Mode;
use crate::compare::report::Found;
use crate::compare::split::Split;
use crate::row::Value;
use crate::table::TableName;

/// Up to where a table was summed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reached {
    /// Nothing was.
    #[default]
    Begin,
    /// Up to a key.
    Key(Vec<Value>),
    /// All of it was.
    End,
}

/// What an earlier run has found out about a table.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The number of the table.
    pub number: u64,
    /// How it was made.
    pub fingerprint: String,
    /// The chunks.
    pub chunks: u64,
    /// The source's rows.
    pub rows_source: u64,
    /// The target's rows.
    pub rows_target: u64,
    /// The bytes of both.
    pub bytes: u64,
    /// Up to where it came.
    pub reached: Reached,
    /// In which way it is compared, and why, where rows have shown it.
    pub choice: Option<(Mode, String)>,
    /// Its parts.
    pub map: PartMap,
    /// What was not equal and is not settled.
    pub open: BTreeMap<PartNumber, Scope>,
    /// What came of the rest, in the order in which it was settled.
    pub settled: Vec<Found>,
    /// True if more differs than was looked at.
    pub at_least: bool,
}

impl Known {
    /// True if nothing of the table is left to be read.
    pub fn is_finished(&self) -> bool {
        self.reached == Reached::End && self.open.is_empty()
    }

    /// What is said of the table.
    pub fn note(&self, is_anew: bool) -> Option<String> {
        if is_anew {
            let note = "its definition has changed since an earlier run: all of it is read again";
            return Some(note.to_owned());
        }
        if self.is_finished() {
            return Some("an earlier run has finished it: nothing is read again".to_owned());
        }
        let chunks = self.chunks;
        (chunks > 0).then(|| format!("goes on after {chunks} parts of an earlier run"))
    }

    /// Takes a chunk in; false if it is not the next one.
    fn chunk(&mut self, chunk: Chunk) -> bool {
        let begin = match &self.reached {
            Reached::Begin => None,
            Reached::Key(key) => Some(key),
            Reached::End => return false,
        };
        if chunk.number != self.chunks || chunk.after.as_ref() != begin {
            return false;
        }
        self.count(chunk.rows_source, chunk.rows_target, chunk.bytes);
        self.map.add(chunk.rows_source.max(chunk.rows_target));
        self.chunks += 1;
        self.reached = chunk.upto.map_or(Reached::End, Reached::Key);
        for (piece, (after, upto)) in (0..).zip(chunk.unequal) {
            self.open.insert((chunk.number, piece), Scope::Range { after, upto });
        }
        true
    }

    fn buckets(&mut self, buckets: Buckets) -> bool {
        let map = PartMap::of_tiles(BUCKETS as u64, &buckets.rows_of_tiles);
        let (Reached::Begin, Some(map)) = (&self.reached, map) else { return false };
        self.map = map;
        self.count(buckets.rows_source, buckets.rows_target, buckets.bytes);
        self.chunks = BUCKETS as u64;
        self.reached = Reached::End;
        self.at_least = buckets.at_least;
        let groups = buckets.groups.into_iter().map(|group| group.into_iter().collect());
        let numbered = (0..)
            .map(|group| (group, 0))
            .zip(groups.map(|group| Scope::Parts(Split::Buckets, group)));
        self.open = numbered.collect();
        true
    }

    fn count(&mut self, rows_source: u64, rows_target: u64, bytes: u64) {
        self.rows_source = self.rows_source.saturating_add(rows_source);
        self.rows_target = self.rows_target.saturating_add(rows_target);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A table of a target.
pub type TableKey = (String, TableName);

/// What the file said when it was opened.
#[derive(Debug, Default)]
pub struct Said {
    /// The tables.
    pub tables: HashMap<TableKey, Known>,
    /// Their keys, in the order of their numbers.
    pub keys: Vec<TableKey>,
}

impl Said {
    /// Takes a line in; false if it does not follow from those before.
    pub fn take(&mut self, line: Line) -> bool {
        match line {
            Line::Begin(_) => false,
            Line::Table { number, target, schema, name, fingerprint } => {
                let is_next = usize::try_from(number).is_ok_and(|number| number == self.keys.len());
                let key = (target, TableName { schema, name });
                self.keys.push(key.clone());
                self.tables.insert(key, Known { number, fingerprint, ..Known::default() });
                is_next
            }
            Line::Mode(number, mode, because) => self.table(number).is_some_and(|table| {
                table.choice = Some((mode, because));
                true
            }),
            Line::Chunk(number, chunk) => {
                self.table(number).is_some_and(|table| table.chunk(chunk))
            }
            Line::Buckets(number, buckets) => {
                self.table(number).is_some_and(|table| table.buckets(buckets))
            }
            Line::Settled(number, part, found) => self.table(number).is_some_and(|table| {
                table.settled.push(found);
                table.open.remove(&part).is_some()
            }),
        }
    }

    fn table(&mut self, number: u64) -> Option<&mut Known> {
        let key = self.keys.get(usize::try_from(number).ok()?)?;
        self.tables.get_mut(key).filter(|table| table.number == number)
    }
}
