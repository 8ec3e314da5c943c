//! Parts that are read from both sides, and how their rows are compared.
//!
//! | reading | what is hashed | where hashes are not alike |
//! |---|---|---|
//! | as sent | the bytes of two servers of one kind, in the order in which they come | equal values may be written in other bytes, or come in another order |
//! | in order | canonical rows, in the order in which they come | they may come in another order |
//! | sums | each canonical row; the hashes are summed | the rows are not alike |
//!
//! Hashes that are alike prove the rows equal in each of them, and the earlier are the
//! cheaper. A part whose hashes are not alike is read row by row in any case. If its rows turn
//! out to be equal then, the table goes on with the next.

use super::look::{Scope, Side, both};
use super::mode::{Look, Mode};
use super::table::Comparison;
use crate::checksum::Teller;
use crate::engine::Query;
use crate::error::Result;
use crate::row::record::{self, Record, Sequence};

/// How rows that were read are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    AsSent,
    InOrder,
    Sums,
}

impl Reading {
    /// The cheapest that two sides have.
    pub fn of(source: &Side<'_>, target: &Side<'_>) -> Self {
        let one_kind = source.connection.title() == target.connection.title();
        let mut columns = source.columns.iter().zip(&target.columns);
        let sent_alike = columns.all(|((place, form), (other_place, other_form))| {
            let columns =
                (source.table.columns.get(*place), target.table.columns.get(*other_place));
            let (Some(column), Some(other)) = columns else { return false };
            column.form == other.form
                && form == other_form
                && source.connection.sends_alike(column, other)
                && target.connection.sends_alike(column, other)
        });
        if one_kind && sent_alike { Self::AsSent } else { Self::InOrder }
    }

    /// The one to take where this one was in vain.
    pub fn next(self) -> Self {
        match self {
            Self::AsSent => Self::InOrder,
            Self::InOrder | Self::Sums => Self::Sums,
        }
    }

    fn read(self, side: &mut Side<'_>, scope: &Scope) -> Result<Seen> {
        let range = side.range(scope);
        let query = Query::of(&side.table, &side.columns, &range);
        let mut teller = Teller::new(side.tell);
        if self == Self::Sums {
            let mut sum = Record::default();
            side.connection.read(&query, &mut |row| {
                sum.add(record::hash(row.bytes()));
                teller.row(row.bytes())
            })?;
            teller.end()?;
            return Ok(Seen { rows: sum.rows, bytes: teller.bytes, hash: sum.text() });
        }
        let mut sequence = Sequence::new();
        let mut take = |row: &[u8]| {
            sequence.add(row);
            teller.row(row)
        };
        match self {
            Self::AsSent => side.connection.read_as_sent(&query, &mut take)?,
            _ => side.connection.read(&query, &mut |row| take(row.bytes()))?,
        }
        teller.end()?;
        Ok(Seen { rows: sequence.rows, bytes: sequence.bytes, hash: sequence.text() })
    }
}

/// What was read of a side.
struct Seen {
    rows: u64,
    bytes: u64,
    hash: String,
}

impl Comparison<'_, '_> {
    /// Reads a part of both sides.
    ///
    /// # Errors
    /// A side could not be read.
    pub fn look_at_rows(&mut self, scope: &Scope) -> Result<Look> {
        let reading = self.reading;
        let (one, other) =
            both(&mut self.source, &mut self.target, |side| reading.read(side, scope))?;
        Ok(Look {
            mode: Mode::Stream,
            rows_source: one.rows,
            rows_target: other.rows,
            bytes: one.bytes + other.bytes,
            alike: one.rows == other.rows && one.hash == other.hash,
            sums: [one.hash, other.hash],
        })
    }
}
