//! Tables whose key gives no ranges: rows fall into buckets by the hash of their key or, without
//! one, of all of the row. One reading of the table fills all buckets, and what is in those that
//! differ is read again.

use std::collections::HashSet;

use super::look::{Scope, Side, both, sum_parts};
use super::mode::Mode;
use super::report::TableReport;
use super::split::{Ranges, Split};
use super::state::Buckets;
use super::table::Comparison;
use crate::error::Result;
use crate::row::record::Record;

/// Rows of buckets that are looked at together, by all tables that are compared at the same
/// time: what is remembered of them is most of the memory of a run.
const GROUP_ROWS_MAX: u64 = 200_000;
/// Groups of buckets that are looked at: each costs a reading of both tables.
const GROUPS_MAX: usize = 16;
/// Rows that a range has of a table in others' hands, if all numbers are in use: what differs brings
/// as many here. Few, for one number far from all others makes ranges a hundred times as wide.
const RANGE_ROWS: u64 = 20;

impl Comparison<'_, '_> {
    /// Compares by buckets, unless servers sum the whole table, and alike.
    ///
    /// # Errors
    /// A side could not be read.
    pub fn buckets(&mut self, report: &mut TableReport) -> Result<()> {
        self.parts(Split::Buckets, report)
    }

    /// True if rows of a side are summed by others, who are asked for little at a time.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.source.connection.is_elsewhere() || self.target.connection.is_elsewhere()
    }

    /// The parts of a table that others sum: ranges of its key, if that is one whole number.
    pub(super) fn split(&self, has_ranges: bool) -> Split {
        let span = |side: &Side<'_>| side.connection.span();
        match span(&self.source).or_else(|| span(&self.target)) {
            Some(span) if has_ranges && self.stride.is_whole() => {
                let numbers = [[span.first, span.last]; 2];
                Split::Ranges(Ranges::new(None, numbers, span.rows, RANGE_ROWS))
            }
            _ => Split::Buckets,
        }
    }

    /// Compares by parts, all of which one reading of each side sums.
    ///
    /// # Errors
    /// A side could not be read.
    pub(super) fn parts(&mut self, split: Split, report: &mut TableReport) -> Result<()> {
        self.wait_for_servers(report)?;
        if self.choice.mode != Mode::Stream {
            // Servers sum the whole table; only where that differs are rows read.
            let all = Scope::Range { after: None, upto: None };
            let look = self.look(&all)?;
            if look.alike {
                return self.chunk(all, &look, report);
            }
            self.wait_for_servers(report)?;
        }
        let ((one, one_bytes), (other, other_bytes)) =
            both(&mut self.source, &mut self.target, |side| sum_parts(side, split))?;
        report.bytes = one_bytes + other_bytes;
        report.chunks = split.count() as u64;
        report.rows_source = one.iter().map(|sum| sum.rows).sum();
        report.rows_target = other.iter().map(|sum| sum.rows).sum();
        one.iter().zip(&other).for_each(|(one, other)| report.map.add(one.rows.max(other.rows)));
        let mut groups = groups(&one, &other, self.share(GROUP_ROWS_MAX));
        report.counts_at_least = groups.len() > GROUPS_MAX;
        groups.truncate(GROUPS_MAX);
        if let Some(state) = self.state {
            state.buckets(Buckets {
                rows_source: report.rows_source,
                rows_target: report.rows_target,
                bytes: report.bytes,
                rows_of_tiles: report.map.tiles().iter().map(|tile| tile.rows).collect(),
                groups: groups.iter().map(|group| group.iter().copied().collect()).collect(),
                at_least: report.counts_at_least,
            })?;
        }
        for (number, group) in (0..).zip(groups) {
            self.wait_for_servers(report)?;
            self.suspect((number, 0), Scope::Parts(split, group), report)?;
        }
        Ok(())
    }
}

/// Buckets that differ, in groups of at most `rows_max` rows; a larger bucket stands alone.
fn groups(one: &[Record], other: &[Record], rows_max: u64) -> Vec<HashSet<usize>> {
    let mut groups: Vec<HashSet<usize>> = Vec::new();
    let mut rows = 0;
    for (bucket, (one, other)) in one.iter().zip(other).enumerate() {
        if one == other {
            continue;
        }
        let here = one.rows.max(other.rows);
        match groups.last_mut() {
            Some(group) if rows + here <= rows_max => {
                group.insert(bucket);
                rows += here;
            }
            _ => {
                groups.push(HashSet::from([bucket]));
                rows = here;
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_buckets_fit_into_memory() {
        let record = |rows: u64| {
            let mut record = Record::default();
            record.rows = rows;
            record
        };
        let one = [record(300_000), record(5), record(200_000), record(100_000)];
        let other = [record(1), record(5), record(1), record(1)];
        let found = groups(&one, &other, 400_000);
        assert_eq!(found, [HashSet::from([0]), HashSet::from([2, 3])]);
    }
}
