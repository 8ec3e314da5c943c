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
use super::split::Ranges;
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
/// Rows that a range has if all numbers are in use.
const PART_ROWS: u64 = 50_000;
/// After how many rows a sweep reports how far it is.
const ADVANCE_ROWS: u64 = 100_000;

/// What is known of a range.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    rows: Record,
    bytes: u64,
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
        let parts = Ranges::new(known, [one, other], rows.unwrap_or(0), PART_ROWS);
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
    parts: &Ranges,
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
