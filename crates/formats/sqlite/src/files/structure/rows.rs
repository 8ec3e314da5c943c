//! Rows and index entries: what each must be, and what they say together.
//!
//! Rows and entries are added up as hashes, in whatever order they come, so that a table and its
//! index are compared without memory. Equal sums prove that each row has its entry and each entry
//! its row.

#![deny(clippy::arithmetic_side_effects)]

use std::cmp::Ordering;

use super::condition::Row;
use super::definition::{IndexDefinition, IndexedRows, Part, Source, TableDefinition};
use super::keys::{KeyHash, compare};
use super::tree::{Entry, Visitor};
use crate::page::record::{self, Serial, Value};

/// Of longer records the end is not seen.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// What a list of entries adds up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many there are.
    pub count: u64,
    /// Of their hashes.
    pub hashes: u128,
    /// Some could not be hashed: only the count is right.
    pub is_unsure: bool,
    /// Of some it is not known whether they count.
    pub is_count_unsure: bool,
}

impl Sum {
    fn add(&mut self, hash: Option<u128>) {
        self.count = self.count.saturating_add(1);
        match hash {
            Some(hash) => self.hashes = self.hashes.wrapping_add(hash),
            None => self.is_unsure = true,
        }
    }
}

/// Sees the rows of a table.
#[derive(Debug)]
pub struct Rows<'a> {
    table: Option<&'a TableDefinition>,
    /// The indexes whose entries are foreseen, and their sums.
    pub indexes: Vec<(&'a IndexDefinition, Sum)>,
    order: Option<Order<'a>>,
    is_utf8: bool,
    serials: Vec<Serial>,
}

impl<'a> Rows<'a> {
    /// Of a table, if its definition was understood.
    #[must_use]
    pub fn new(
        table: Option<&'a TableDefinition>,
        indexes: Vec<&'a IndexDefinition>,
        is_utf8: bool,
    ) -> Self {
        let key = table.and_then(|table| table.key.as_deref());
        Self {
            table,
            indexes: indexes.into_iter().map(|index| (index, Sum::default())).collect(),
            order: key.map(|key| Order::new(key, key.len(), true, is_utf8)),
            is_utf8,
            serials: Vec::new(),
        }
    }

    /// A column that must have a value and has none.
    fn missing_value(&self) -> Option<String> {
        let table = self.table?;
        let is_missing = |(at, column): &(usize, &super::definition::Column)| {
            let serial = column.place.and_then(|place| self.serials.get(place));
            column.not_null && serial == Some(&Serial::Null) && table.alias != Some(*at)
        };
        let (_, column) = table.columns.iter().enumerate().find(is_missing)?;
        Some(format!("NULL in the column {}, which is NOT NULL", column.name))
    }
}

impl Visitor for Rows<'_> {
    fn record_bytes(&self) -> usize {
        if self.indexes.is_empty() && self.order.is_none() { 0 } else { RECORD_BYTES_MAX }
    }

    fn see(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        let Some(table) = self.table else {
            return record::walk_header(entry.record, entry.payload_bytes, |_| {});
        };
        self.serials.clear();
        let serials = &mut self.serials;
        record::walk_header(entry.record, entry.payload_bytes, |serial| serials.push(serial))?;
        if let Some(missing) = self.missing_value() {
            return Err(missing);
        }
        if self.record_bytes() == 0 {
            return Ok(());
        }
        let values: Vec<_> = record::values(entry.record).collect();
        let (rowid, in_record) = (entry.rowid, self.serials.len());
        let row = Row { table, rowid, values: &values, in_record };
        for (index, sum) in &mut self.indexes {
            let is_indexed = match &index.rows {
                IndexedRows::All => Some(true),
                IndexedRows::Fulfilling(condition) => condition.holds(&row, self.is_utf8),
                IndexedRows::Unknown => None,
            };
            match is_indexed {
                Some(true) => sum.add(hash_of_row(&row, index)),
                Some(false) => {}
                None => sum.is_count_unsure = true,
            }
        }
        match &mut self.order {
            Some(order) => order.see(entry.record, &values),
            None => Ok(()),
        }
    }
}

/// The hash of the entry that a row should have, but for what is computed; `None` if it is not known.
fn hash_of_row(row: &Row<'_>, index: &IndexDefinition) -> Option<u128> {
    let mut hash = KeyHash::default();
    for part in &index.parts {
        match part.source {
            Source::Column(column) => hash.add(&column_of_row(row, column)?),
            Source::Rowid => hash.add(&Value::Integer(row.rowid)),
            Source::Computed => {}
        }
    }
    Some(hash.finish())
}

/// The value of a row's column; `None` if it is not known.
pub(super) fn column_of_row<'a>(row: &Row<'a>, at: usize) -> Option<Value<'a>> {
    if row.table.alias == Some(at) {
        return Some(Value::Integer(row.rowid));
    }
    let column = row.table.columns.get(at)?;
    match row.values.get(column.place?) {
        Some(value) => Some(*value),
        // The column was added later, or the record is too long.
        None if column.place? >= row.in_record && !column.has_default => Some(Value::Null),
        None => None,
    }
}

/// Sees the entries of an index.
#[derive(Debug)]
pub struct Entries<'a> {
    /// What they add up to.
    pub sum: Sum,
    parts: &'a [Part],
    order: Order<'a>,
}

impl<'a> Entries<'a> {
    /// Of this index.
    #[must_use]
    pub fn new(index: &'a IndexDefinition, is_utf8: bool) -> Self {
        Self {
            sum: Sum::default(),
            parts: &index.parts,
            order: Order::new(&index.parts, index.key_parts, index.is_unique, is_utf8),
        }
    }
}

impl Visitor for Entries<'_> {
    fn record_bytes(&self) -> usize {
        RECORD_BYTES_MAX
    }

    fn see(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        record::walk_header(entry.record, entry.payload_bytes, |_| {})?;
        let values: Vec<_> = record::values(entry.record).collect();
        let hash = (values.len() == self.parts.len()).then(|| {
            let mut hash = KeyHash::default();
            let stored = values.iter().zip(self.parts);
            let stored = stored.filter(|(_, part)| part.source != Source::Computed);
            stored.for_each(|(value, _)| hash.add(value));
            hash.finish()
        });
        self.sum.add(hash);
        self.order.see(entry.record, &values)
    }
}

/// Holds each record against the one before.
#[derive(Debug)]
struct Order<'a> {
    parts: &'a [Part],
    key_parts: usize,
    is_unique: bool,
    is_utf8: bool,
    before: Option<Vec<u8>>,
}

impl<'a> Order<'a> {
    fn new(parts: &'a [Part], key_parts: usize, is_unique: bool, is_utf8: bool) -> Self {
        Self { parts, key_parts, is_unique, is_utf8, before: None }
    }

    fn see(&mut self, record: &[u8], values: &[Value<'_>]) -> Result<(), String> {
        let mut fault = None;
        if let Some(before) = &self.before {
            match self.order(before, values) {
                Some((Ordering::Less, at)) => {
                    let key = values.iter().take(self.key_parts);
                    let has_null = key.clone().any(|value| *value == Value::Null);
                    if self.is_unique && at >= self.key_parts && !has_null {
                        fault =
                            Some("an entry has the key of the one before, which is to be unique");
                    }
                }
                Some(_) => fault = Some("an entry out of order"),
                None => {}
            }
        }
        let mut kept = self.before.take().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(record);
        self.before = Some(kept);
        fault.map_or(Ok(()), |fault| Err(fault.to_owned()))
    }

    /// How the record before stands to these values, and which part says so; `None` if that is
    /// not known.
    fn order(&self, before: &[u8], values: &[Value<'_>]) -> Option<(Ordering, usize)> {
        let mut before = record::values(before);
        for (at, part) in self.parts.iter().enumerate() {
            let (one, other) = (before.next()?, values.get(at)?);
            let order = compare(&one, other, part.collation, self.is_utf8)?;
            if order != Ordering::Equal {
                return Some((if part.is_descending { order.reverse() } else { order }, at));
            }
        }
        Some((Ordering::Equal, self.parts.len()))
    }
}
