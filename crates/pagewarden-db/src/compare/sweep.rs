//! Both tables read once as a whole, in whatever order is cheapest for each server, and rows
//! summed by the range of the key in which they lie.
//!
//! Ranges of which the sums are alike are equal. All others are read again in the order of the
//! key, like tables that were not swept, and it is that reading which says what differs: rows
//! that changed between the moments in which the two sides were read are no differences yet.
//!
//! Rows are hashed as they are sent, by XXH3 (128 bits) with a seed that is new for each table.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use twox_hash::XxHash3_128;

use super::look::{Scope, Side, both};
use super::mode::{Look, Mode};
use super::report::TableReport;
use super::state::Bound;
use super::stream::Reading;
use super::stride;
use super::table::Comparison;
use super::throttle::Limits;
use super::{Advance, Watch};
use crate::checksum::Teller;
use crate::engine::Query;
use crate::error::{Error, Result};
use crate::row::record::{Hash, Record};

/// Smaller tables are read soon in any way.
const ROWS_MIN: u64 = 20_000;
/// The largest table: a sweep makes no pauses for servers, a run that is resumed begins with the
/// table anew, and the servers keep what our snapshots see.
const BYTES_MAX: u64 = 64 << 30;
/// Rows that a range has if all numbers are in use, and the most ranges.
const PART_ROWS: u64 = 50_000;
const PARTS_MAX: u64 = 1 << 16;
/// After how many rows a sweep reports how far it is.
const ADVANCE_ROWS: u64 = 100_000;

/// Ranges of the key of equal width.
#[derive(Debug, Clone, Copy)]
struct Parts {
    /// Rows up to this key are known already.
    after: Option<i64>,
    first: i64,
    /// Numbers of a range.
    width: u64,
    count: usize,
}

/// What is known of a range.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    rows: Record,
    bytes: u64,
}

impl Parts {
    fn new(after: Option<i64>, spans: [[i64; 2]; 2], rows: u64) -> Self {
        let [[one, one_last], [other, other_last]] = spans;
        let first = after.map_or(one.min(other), |after| after.saturating_add(1));
        let numbers = one_last.max(other_last).saturating_sub(first).max(0).unsigned_abs();
        let count = (rows / PART_ROWS).clamp(1, PARTS_MAX);
        // One more, for the division leaves a rest.
        let width = numbers / count + 1;
        let count = usize::try_from(numbers / width + 1).unwrap_or(1);
        Self { after, first, width, count }
    }

    /// The range of a key; none of one that is known already. Those before the first and behind
    /// the last, which are younger, belong to these.
    fn of(&self, key: i64) -> Option<usize> {
        if self.after.is_some_and(|after| key <= after) {
            return None;
        }
        let distance = key.max(self.first).wrapping_sub(self.first).cast_unsigned();
        Some(usize::try_from(distance / self.width).unwrap_or(usize::MAX).min(self.count - 1))
    }

    /// The last key of a range; none of the last, which has no end.
    fn upto(&self, part: usize) -> Bound {
        if part + 1 >= self.count {
            return None;
        }
        let next = (part as u64 + 1).checked_mul(self.width)?;
        let last = i128::from(self.first) + i128::from(next) - 1;
        i64::try_from(last).ok().map(stride::bound)
    }
}

impl Comparison<'_, '_> {
    /// True if nothing that was asked for stands against a sweep from here on, and there was
    /// none yet.
    pub(super) fn may_sweep(&self, end: &Bound) -> bool {
        let is_of_size = |side: &Side<'_>| {
            side.table.rows_estimated.is_some_and(|rows| rows >= ROWS_MIN)
                && side.table.bytes.is_some_and(|bytes| bytes <= BYTES_MAX)
        };
        end.is_none()
            && !self.was_swept
            && self.reading == Reading::AsSent
            && self.choice.mode == Mode::Stream
            && !self.choice.is_probing()
            && self.options.chunk_rows.is_none()
            && self.course.sample.is_none()
            && self.course.limits == Limits::default()
            && self.stride.is_whole()
            && is_of_size(&self.source)
            && is_of_size(&self.target)
    }

    /// Sweeps both tables behind a key, and reads again what is not alike. False if one of the
    /// servers does not offer that.
    ///
    /// # Errors
    /// A side could not be read, or the state not be written.
    pub(super) fn sweep(&mut self, after: &Bound, report: &mut TableReport) -> Result<bool> {
        self.was_swept = true;
        let known = match after {
            None => None,
            Some(_) => match stride::whole(after).and_then(|key| i64::try_from(key).ok()) {
                Some(key) => Some(key),
                None => return Ok(false),
            },
        };
        let spans = both(&mut self.source, &mut self.target, key_span)?;
        let (Some(one), Some(other)) = spans else { return Ok(false) };
        let rows = self.source.table.rows_estimated.max(self.target.table.rows_estimated);
        let parts = Parts::new(known, [one, other], rows.unwrap_or(0));
        let seed = RandomState::new().build_hasher().finish();
        let hash = |row: &[u8]| XxHash3_128::oneshot_with_seed(seed, row);
        let progress = Progress {
            watch: self.watch,
            table: &report.table,
            before: report.rows_source,
            of: self.source.table.rows_estimated,
            rows: AtomicU64::new(0),
        };
        let swept = both(&mut self.source, &mut self.target, |side| {
            sum_parts(side, &parts, &hash, &progress)
        });
        let (of_source, of_target) = match swept {
            // What can be read in another way is no error.
            Err(Error::Refused { reason, .. } | Error::Unsupported(reason)) => {
                self.because(&format!("not from pages: {reason}"));
                return Ok(false);
            }
            other => other?,
        };
        self.because("rows taken from pages (pageinspect)");
        let mut after = after.clone();
        for (part, (one, other)) in of_source.iter().zip(&of_target).enumerate() {
            let upto = parts.upto(part);
            if one.rows.rows == 0 && other.rows.rows == 0 && upto.is_some() {
                continue;
            }
            if one.rows == other.rows {
                let look = Look {
                    mode: Mode::Stream,
                    rows_source: one.rows.rows,
                    rows_target: other.rows.rows,
                    bytes: one.bytes + other.bytes,
                    sums: [one.rows.text(), other.rows.text()],
                    alike: true,
                };
                self.chunk(Scope::Range { after, upto: upto.clone() }, &look, report)?;
            } else {
                self.span(after, &upto, report)?;
            }
            after = upto;
        }
        Ok(true)
    }

    fn because(&mut self, reason: &str) {
        let because = &mut self.choice.because;
        if !because.is_empty() {
            because.push_str("; ");
        }
        because.push_str(reason);
    }
}

/// Tells how far a sweep is.
struct Progress<'a> {
    watch: &'a Watch<'a>,
    table: &'a str,
    before: u64,
    of: Option<u64>,
    /// Of both sides.
    rows: AtomicU64,
}

impl Progress<'_> {
    fn add(&self, rows: u64) {
        let rows = self.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        let rows = self.before + rows / 2;
        (self.watch.advance)(Advance { table: self.table, rows, of: self.of });
    }
}

/// The first and the last number of the key, if the table can be swept.
fn key_span(side: &mut Side<'_>) -> Result<Option<[i64; 2]>> {
    let everything = side.range(&Scope::Range { after: None, upto: None });
    side.connection.skims(&Query::of(&side.table, &side.columns, &everything))
}

fn sum_parts(
    side: &mut Side<'_>,
    parts: &Parts,
    hash: &impl Fn(&[u8]) -> Hash,
    progress: &Progress<'_>,
) -> Result<Vec<Sum>> {
    let everything = side.range(&Scope::Range { after: None, upto: None });
    let query = Query::of(&side.table, &side.columns, &everything);
    let mut sums = vec![Sum::default(); parts.count];
    let mut teller = Teller::new(side.tell);
    side.connection.skim(&query, &mut |key, row| {
        if let Some(sum) = parts.of(key).and_then(|part| sums.get_mut(part)) {
            sum.rows.add(hash(row));
            sum.bytes += row.len() as u64;
        }
        teller.row(row)?;
        if teller.rows.is_multiple_of(ADVANCE_ROWS) {
            progress.add(ADVANCE_ROWS);
        }
        Ok(())
    })?;
    teller.end()?;
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_the_range_that_is_said_to_have_it() {
        for (after, spans, rows) in [
            (None, [[1, 100], [5, 99]], 1_000_000),
            (Some(7), [[1, 1_000_000], [1, 900_000]], 1_000_000),
            (None, [[i64::MIN, i64::MAX], [0, 0]], u64::MAX),
            (None, [[i64::MAX - 3, i64::MAX], [i64::MAX; 2]], 100_000),
            (Some(i64::MAX), [[1, i64::MAX], [0, 0]], 100_000),
            (None, [[-10, -10]; 2], 0),
        ] {
            let parts = Parts::new(after, spans, rows);
            let ends: Vec<Option<i128>> =
                (0..parts.count).map(|part| stride::whole(&parts.upto(part))).collect();
            assert_eq!(ends.last(), Some(&None));
            assert!(ends.iter().rev().skip(1).all(Option::is_some), "{parts:?}");
            let inner = &ends[..parts.count - 1];
            assert!(inner.is_sorted_by(|one, next| one < next), "{parts:?}");
            let around = ends.iter().flatten().flat_map(|end| [end - 1, *end, end + 1]);
            let keys =
                around.chain([i64::MIN, -1, 0, 1, 7, 8, 99, 100, 1000, i64::MAX].map(i128::from));
            for key in keys.filter_map(|key| i64::try_from(key).ok()) {
                if after.is_some_and(|after| key <= after) {
                    assert_eq!(parts.of(key), None);
                    continue;
                }
                let part = parts.of(key).unwrap();
                let is_below = |end: &Option<i128>| end.is_some_and(|end| end < i128::from(key));
                assert_eq!(ends.partition_point(is_below), part, "{key} {parts:?}");
            }
        }
    }
}
