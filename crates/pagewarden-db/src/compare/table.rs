//! Two tables, compared part by part.
//!
//! Where both sides order the key alike, parts are ranges of it; their bounds are those
//! of the side that has more rows there, so that no part is large on either side. Else
//! rows fall into buckets by the hash of their key or, without one, of all of the row;
//! one reading of the table fills all buckets, and what is in those that differ is read
//! again.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::candidate::candidates;
use super::look::{BUCKETS, Scope, Side, both, sum_buckets};
use super::mode::{Choice, Look, Mode};
use super::report::TableReport;
use super::settle::{Pending, settle};
use super::{Advance, Options, Watch};
use crate::error::Result;
use crate::row::record::Record;
use crate::row::{Value, number};

/// Rows of the first part.
const FIRST_ROWS: u64 = 5_000;
/// The fewest and the most rows of a part.
const ROWS_MIN: u64 = 1_000;
const ROWS_MAX: u64 = 100_000;
/// How long reading a part should take.
const PART_TIME: Duration = Duration::from_millis(500);
/// Rows of buckets that are looked at together, by all tables that are compared at the same
/// time: what is remembered of them is most of the memory of a run.
const GROUP_ROWS_MAX: u64 = 200_000;
/// Groups of buckets that are looked at: each costs a reading of both tables.
const GROUPS_MAX: usize = 16;
/// Keys that may wait for another look, of all tables at the same time.
const WAITING_MAX: usize = 100_000;

/// The comparison of two tables.
pub struct Comparison<'a, 'b> {
    /// One side.
    pub source: Side<'a>,
    /// The other.
    pub target: Side<'a>,
    /// How.
    pub options: &'b Options,
    /// Who is told.
    pub watch: &'b Watch<'b>,
    /// How many tables share the memory.
    pub sharers: usize,
    /// What waits for another look.
    pub pending: Vec<Pending>,
    /// In which way.
    pub choice: Choice,
}

impl Comparison<'_, '_> {
    /// Compares, and fills the report.
    ///
    /// # Errors
    /// A side could not be read; the report holds what was known by then.
    pub fn run(&mut self, has_ranges: bool, report: &mut TableReport) -> Result<()> {
        let read = if has_ranges { self.ranges(report) } else { self.buckets(report) };
        report.mode = self.choice.mode;
        report.mode_because.clone_from(&self.choice.because);
        read?;
        self.settle(report)
    }

    /// A share of what all tables that are compared at the same time may have.
    fn share(&self, rows: u64) -> u64 {
        (rows / (self.sharers as u64).max(1)).max(ROWS_MIN)
    }

    fn settle(&mut self, report: &mut TableReport) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        settle(&mut self.source, &mut self.target, pending, self.options, self.watch, report)
    }

    fn ranges(&mut self, report: &mut TableReport) -> Result<()> {
        let mut after: Option<Vec<Value>> = None;
        let mut rows = self.options.chunk_rows.unwrap_or(FIRST_ROWS);
        loop {
            let begin = Instant::now();
            let upto = self.bound(after.as_ref(), rows)?;
            let scope = Scope::Range { after, upto: upto.clone() };
            let was_probing = self.choice.is_probing();
            let look = self.look(&scope)?;
            let elapsed = begin.elapsed();
            let rows_here = self.count(&look, report);
            if !look.alike {
                match self.choice.mode {
                    Mode::Pushdown => self.narrow(scope, rows_here, report)?,
                    _ => self.suspect(scope, report)?,
                }
            }
            if upto.is_none() {
                return Ok(());
            }
            after = upto;
            if self.options.chunk_rows.is_none() && !was_probing {
                rows = next_rows(rows, elapsed).min(self.share(ROWS_MAX));
            }
        }
    }

    /// The key up to which there are so many rows, counted on the side that has more.
    pub fn bound(&mut self, after: Option<&Vec<Value>>, rows: u64) -> Result<Option<Vec<Value>>> {
        let (of_source, of_target) =
            both(&mut self.source, &mut self.target, |side| side.bound(after, rows))?;
        Ok(nearer(of_source, of_target))
    }

    /// Counts a part in, and tells how many rows it has.
    fn count(&self, look: &Look, report: &mut TableReport) -> u64 {
        report.chunks += 1;
        report.rows_source += look.rows_source;
        report.rows_target += look.rows_target;
        report.bytes += look.bytes;
        let rows = look.rows_source.max(look.rows_target);
        report.map.add(rows);
        (self.watch.advance)(Advance {
            table: &report.table,
            rows: report.rows_source,
            of: self.source.table.rows_estimated,
        });
        rows
    }

    fn buckets(&mut self, report: &mut TableReport) -> Result<()> {
        if self.choice.mode != Mode::Stream {
            // Servers sum the whole table; only where that differs are rows read.
            let look = self.look(&Scope::Range { after: None, upto: None })?;
            if look.alike {
                self.count(&look, report);
                return Ok(());
            }
        }
        let ((one, one_bytes), (other, other_bytes)) =
            both(&mut self.source, &mut self.target, sum_buckets)?;
        report.bytes = one_bytes + other_bytes;
        report.chunks = BUCKETS as u64;
        report.rows_source = one.iter().map(|sum| sum.rows).sum();
        report.rows_target = other.iter().map(|sum| sum.rows).sum();
        one.iter().zip(&other).for_each(|(one, other)| report.map.add(one.rows.max(other.rows)));
        let groups = groups(&one, &other, self.share(GROUP_ROWS_MAX));
        report.counts_at_least = groups.len() > GROUPS_MAX;
        for group in groups.into_iter().take(GROUPS_MAX) {
            self.suspect(Scope::Buckets(group), report)?;
        }
        Ok(())
    }

    /// A part's sums differ: which keys?
    pub fn suspect(&mut self, scope: Scope, report: &mut TableReport) -> Result<()> {
        let now = Instant::now();
        let (of_source, of_target) =
            both(&mut self.source, &mut self.target, |side| side.pairs(&scope, None))?;
        let open = candidates(&of_source, &of_target, now);
        drop((of_source, of_target));
        if !open.is_empty() {
            let part = report.map.last();
            self.pending.push(Pending { scope, part, open });
        }
        let waiting: usize = self.pending.iter().map(|part| part.open.len()).sum();
        if waiting > WAITING_MAX / self.sharers.max(1) { self.settle(report) } else { Ok(()) }
    }
}

/// The bound that comes first; none if neither side has one.
pub fn nearer(one: Option<Vec<Value>>, other: Option<Vec<Value>>) -> Option<Vec<Value>> {
    let (one, other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (Some(bound), None) | (None, Some(bound)) => {
            return Some(bound).filter(|bound| bound.iter().all(is_finite));
        }
        (None, None) => return None,
    };
    for (value, other_value) in one.iter().zip(&other) {
        // What is not finite cannot be said in a statement of every engine: no bound, then.
        match number::compare(&value.payload, &other_value.payload)? {
            Ordering::Less => return Some(one).filter(|bound| bound.iter().all(is_finite)),
            Ordering::Greater => return Some(other).filter(|bound| bound.iter().all(is_finite)),
            Ordering::Equal => {}
        }
    }
    Some(one)
}

fn is_finite(value: &Value) -> bool {
    number::parts(&value.payload).is_some()
}

/// How many rows the next part should have.
fn next_rows(rows: u64, elapsed: Duration) -> u64 {
    let factor = PART_TIME.as_secs_f64() / elapsed.as_secs_f64().max(0.001);
    // Not by more than double or half: one part tells little.
    let wanted = rows as f64 * factor.clamp(0.5, 2.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^32")]
    (wanted as u64).clamp(ROWS_MIN, ROWS_MAX)
}

/// Buckets that differ, in groups of so many rows as memory holds.
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
    use crate::row::Tag;

    fn key(parts: &[&str]) -> Option<Vec<Value>> {
        let value = |part: &&str| Value { tag: Tag::Number, payload: part.as_bytes().to_vec() };
        Some(parts.iter().map(value).collect())
    }

    #[test]
    fn nearer_bound_is_taken() {
        assert_eq!(nearer(key(&["9"]), key(&["1e1"])), key(&["9"]));
        assert_eq!(nearer(key(&["1", "7"]), key(&["1", "5"])), key(&["1", "5"]));
        assert_eq!(nearer(key(&["1", "5"]), key(&["1", "5"])), key(&["1", "5"]));
        assert_eq!(nearer(None, key(&["3"])), key(&["3"]));
        assert_eq!(nearer(None, None), None);
        assert_eq!(nearer(key(&["NaN"]), None), None);
        assert_eq!(nearer(key(&["NaN"]), key(&["3"])), None);
    }

    #[test]
    fn parts_grow_and_shrink_with_their_time() {
        assert_eq!(next_rows(5_000, Duration::from_millis(10)), 10_000);
        assert_eq!(next_rows(50_000, Duration::from_secs(5)), 25_000);
        assert_eq!(next_rows(1_000, Duration::from_secs(5)), ROWS_MIN);
        assert_eq!(next_rows(90_000, Duration::from_millis(1)), ROWS_MAX);
    }

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
