//! Rows of `sys.sysallocunits`, the table of allocation units.
//!
//! | offset in the row | bytes | column | |
//! |---|---|---|---|
//! | 4 | 8 | `auid` | `index << 48`, `object << 16`, as headers of pages say it |
//! | 12 | 1 | `type` | 1: rows, 2: long values, 3: rows that do not fit in their page |
//! | 33 | 4 + 2 | `pgroot` | of rows: the root of the index, or the page of a heap; zero: none |
//! | 39 | 4 + 2 | `pgfirstiam` | its first IAM page; zero: it has no pages |
//!
//! The boot page says at record + 516 where its first page is; it is an index whose leaves are chained.
//!
//! Found in 75 data files of SQL Server 2005 to 2019: of 11,000 units each root and each first IAM page is
//! there and of its unit. `pgfirst` (offset 27) is not: of 300 of them the page is of another unit, or free.

use crate::page::header::u16_at;
use crate::page::rows::{Pointer, Unit};

/// The unit that holds the table itself.
pub const UNIT_OF_UNITS: Unit = Unit { object: 7, index: 1 };

const ID_AT: usize = 4;
const TYPE_AT: usize = 12;
const ROOT_AT: usize = 33;
const IAM_AT: usize = 39;
const FIXED_END_AT: usize = 2;
/// With the three counts of pages at its end.
const FIXED_BYTES_MIN: u16 = 69;
const TYPE_OF_RECORD: u8 = 0x0E;
const OF_ROWS: u8 = 1;

/// An allocation unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitRow {
    /// Which it is.
    pub unit: Unit,
    /// The root, where it is of rows and has one.
    pub root: Option<Pointer>,
    /// Its first IAM page, if it has pages.
    pub iam: Option<Pointer>,
}

impl UnitRow {
    /// Reads a row; `None` for a ghost, and for what is none.
    #[must_use]
    pub fn parse(row: &[u8]) -> Option<Self> {
        let is_row = row.first()? & TYPE_OF_RECORD == 0;
        let (id, kind) = (row.get(ID_AT..)?.first_chunk()?, *row.get(TYPE_AT)?);
        row.get(..IAM_AT.checked_add(6)?)?;
        if !is_row || u16_at(row, FIXED_END_AT) < FIXED_BYTES_MIN || !(1..=3).contains(&kind) {
            return None;
        }
        let some = |at| Some(Pointer::parse(row, at)).filter(|it| !it.is_none());
        Some(Self {
            unit: Unit::of_id(u64::from_le_bytes(*id)),
            root: some(ROOT_AT).filter(|_| kind == OF_ROWS),
            iam: some(IAM_AT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_says_where_a_unit_begins() {
        let mut row = [0; 80];
        row[0] = 0x10;
        row[2] = 69;
        row[ID_AT..ID_AT + 8].copy_from_slice(&(1_u64 << 48 | 34 << 16).to_le_bytes());
        row[TYPE_AT] = 1;
        row[ROOT_AT] = 160;
        row[ROOT_AT + 4] = 1;
        row[IAM_AT] = 117;
        row[IAM_AT + 4] = 1;
        let at = |page| Some(Pointer { page, file: 1 });
        let found = UnitRow { unit: Unit { object: 34, index: 1 }, root: at(160), iam: at(117) };
        assert_eq!(UnitRow::parse(&row), Some(found));
        let changed = |at: usize, value: u8| {
            let mut row = row;
            row[at] = value;
            UnitRow::parse(&row)
        };
        assert_eq!(changed(0, 0x1C), None);
        assert_eq!(changed(2, 60), None);
        assert_eq!(changed(TYPE_AT, 0), None);
        assert_eq!(changed(TYPE_AT, 2).unwrap().root, None);
        assert_eq!(UnitRow::parse(&row[..40]), None);
    }
}
