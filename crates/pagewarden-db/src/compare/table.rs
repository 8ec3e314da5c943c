//! Two tables, compared part by part.
//!
//! Where both sides order the key alike, parts are ranges of it; their bounds are those
//! of the side that has more rows there, so that no part is large on either side, unless
//! whole numbers tell as much (`stride.rs`). Other
//! tables fall into buckets (`buckets.rs`). Where servers give all rows at once for much less,
//! only ranges that are not alike are gone through (`sweep.rs`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::candidate::candidates;
use super::look::{Scope, Side, both};
use super::mode::{Choice, Look, Mode, PROBE_ROWS};
use super::report::{Found, TableReport};
use super::run::Run;
use super::sample::{self, Sampled};
use super::settle::{Pending, settle};
use super::state::{Bound, Chunk, Known, PartNumber, Reached, TableState};
use super::stream::Reading;
use super::stride::Stride;
use super::{Advance, Course, Options, Watch, throttle};
use crate::error::{Error, Result};
use crate::row::{Value, number};

/// Rows of the first part.
pub const FIRST_ROWS: u64 = 5_000;
/// The fewest and the most rows of a part.
const ROWS_MIN: u64 = 1_000;
const ROWS_MAX: u64 = 100_000;
/// How long reading a part should take.
const PART_TIME: Duration = Duration::from_millis(500);
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
    /// What else is wished.
    pub course: &'b Course<'b>,
    /// Functions of the caller that learn how far it is.
    pub watch: &'b Watch<'b>,
    /// In which way.
    pub choice: Choice,
    /// How rows that are read are compared.
    pub(super) reading: Reading,
    /// How far the next part goes.
    pub(super) stride: Stride,
    /// True once it was tried to read all that is left at once.
    pub(super) was_swept: bool,
    /// Where it is written what was found.
    pub state: Option<TableState<'b>>,
    /// How many tables share the memory.
    sharers: usize,
    /// What waits for another look.
    pending: Vec<Pending>,
    /// What was unresolved when patience ended, if it is watched.
    pub left: Vec<Pending>,
    /// Of a sample, the current block.
    pub block: u64,
    /// Parts that are not known to be equal, and the blocks to which they belong.
    unequal: BTreeMap<PartNumber, u64>,
}

impl<'a, 'b> Comparison<'a, 'b> {
    /// Two sides that were not read yet.
    pub(super) fn new(
        sides: (Side<'a>, Side<'a>),
        choice: Choice,
        options: &'b Options,
        run: &'b Run<'b>,
        state: Option<TableState<'b>>,
        sharers: usize,
    ) -> Self {
        Self {
            reading: Reading::of(&sides.0, &sides.1),
            stride: Stride::of(&sides.0, &sides.1),
            was_swept: false,
            source: sides.0,
            target: sides.1,
            options,
            course: run.course,
            watch: run.watch,
            choice,
            state,
            sharers,
            pending: Vec::new(),
            left: Vec::new(),
            block: 0,
            unequal: BTreeMap::new(),
        }
    }

    /// Compares, and fills the report. What an earlier run has found out is not read again.
    ///
    /// # Errors
    /// A side could not be read; the report holds what was known by then.
    pub fn run(&mut self, has_ranges: bool, known: Known, report: &mut TableReport) -> Result<()> {
        let result = self.all(has_ranges, known, report).and_then(|()| self.settle(report));
        report.mode = self.choice.mode;
        report.mode_because.clone_from(&self.choice.because);
        if let Some(sampled) = &mut report.sample {
            let not_equal = self.unequal.values().collect::<BTreeSet<_>>().len() as u64;
            *sampled = Sampled::of(sampled.blocks, sampled.compared, not_equal, sampled.seed);
        }
        result
    }

    fn all(&mut self, has_ranges: bool, known: Known, report: &mut TableReport) -> Result<()> {
        if let Some(wanted) = self.course.sample {
            if !has_ranges {
                let reason = "only tables with a key of whole or decimal numbers can be sampled\n\
                              hint: compare it without --sample";
                return Err(Error::Unsupported(reason.to_owned()));
            }
            return sample::compare(self, wanted, report);
        }
        let reached = self.resume(known, report)?;
        match reached {
            Reached::End => Ok(()),
            Reached::Key(key) => self.span(Some(key), &None, report),
            Reached::Begin if self.is_elsewhere() => self.parts(self.split(has_ranges), report),
            Reached::Begin if has_ranges => self.span(None, &None, report),
            Reached::Begin => self.buckets(report),
        }
    }

    /// Takes over what an earlier run has found out, and says how far it came.
    fn resume(&mut self, known: Known, report: &mut TableReport) -> Result<Reached> {
        (report.chunks, report.chunks_resumed) = (known.chunks, known.chunks);
        (report.rows_source, report.rows_target) = (known.rows_source, known.rows_target);
        (report.bytes, report.counts_at_least) = (known.bytes, known.at_least);
        report.map = known.map;
        for found in known.settled {
            report.take(found);
        }
        for (number, scope) in known.open {
            self.suspect(number, scope, report)?;
        }
        Ok(known.reached)
    }

    /// A share of what all tables that are compared at the same time may have.
    pub fn share(&self, rows: u64) -> u64 {
        (rows / (self.sharers as u64).max(1)).max(ROWS_MIN)
    }

    /// Waits until the servers have room for us, and says how long.
    ///
    /// # Errors
    /// A server does not tell, or the caller asked to end.
    pub fn wait_for_servers(&mut self, report: &mut TableReport) -> Result<Duration> {
        let (source, target) = (&mut self.source, &mut self.target);
        let is_frozen = self.options.frozen;
        let paused = throttle::wait(source, target, is_frozen, self.course, self.watch)?;
        report.paused_seconds += paused.as_secs_f64();
        Ok(paused)
    }

    fn settle(&mut self, report: &mut TableReport) -> Result<()> {
        let mut waiting = std::mem::take(&mut self.pending);
        settle(self, &mut waiting, self.options.patience, report)?;
        report.unresolved += rows_open(&waiting);
        for part in waiting {
            part.mark_open(&mut report.map);
            // What memory does not hold is unresolved to the end.
            if self.course.watch && rows_open(&self.left) < WAITING_MAX as u64 {
                self.left.push(part);
            }
        }
        Ok(())
    }

    /// All is known of a part.
    pub fn settled(&mut self, part: &Pending) -> Result<()> {
        if part.found.rows() == 0 {
            self.unequal.remove(&part.number);
        }
        self.state.map_or(Ok(()), |state| state.settled(part.number, &part.found))
    }

    /// Goes through the rows between two keys, chunk by chunk.
    ///
    /// # Errors
    /// A side could not be read, or the state not be written.
    pub fn span(&mut self, begin: Bound, end: &Bound, report: &mut TableReport) -> Result<()> {
        let mut after = begin;
        let first = if self.choice.is_probing() { PROBE_ROWS } else { FIRST_ROWS };
        let mut rows = self.options.chunk_rows.unwrap_or(first);
        loop {
            if self.may_sweep(end) && self.sweep(&after, report)? {
                return Ok(());
            }
            self.wait_for_servers(report)?;
            let begin = Instant::now();
            let mut next = self.stride.next(&after, end, rows);
            if next.is_none() {
                next =
                    self.bound(&Scope::Range { after: after.clone(), upto: end.clone() }, rows)?;
            }
            let upto = next.clone().or_else(|| end.clone());
            let scope = Scope::Range { after, upto };
            let was_probing = self.choice.is_probing();
            let look = self.look(&scope)?;
            let elapsed = begin.elapsed();
            self.stride.seen(&scope, look.rows());
            self.chunk(scope, &look, report)?;
            if next.is_none() {
                return Ok(());
            }
            after = next;
            if self.options.chunk_rows.is_none() {
                rows = match was_probing {
                    true => FIRST_ROWS,
                    false => next_rows(rows, elapsed).min(self.share(ROWS_MAX)),
                };
            }
        }
    }

    /// The key up to which there are `rows` rows, counted on the side that has more; none if there
    /// are fewer.
    ///
    /// # Errors
    /// A side could not be read.
    pub fn bound(&mut self, scope: &Scope, rows: u64) -> Result<Bound> {
        let (of_source, of_target) =
            both(&mut self.source, &mut self.target, |side| side.bound(scope, rows))?;
        Ok(nearer(of_source, of_target))
    }

    /// Counts a chunk in, writes down what was seen of it, and reads what is not alike.
    ///
    /// # Errors
    /// A side could not be read, or the state not be written.
    pub fn chunk(&mut self, scope: Scope, look: &Look, report: &mut TableReport) -> Result<()> {
        let number = report.chunks;
        let unequal = match self.choice.mode {
            _ if look.alike => Vec::new(),
            Mode::Pushdown => self.narrow(scope.clone(), look.rows(), report)?,
            _ => vec![scope.clone()],
        };
        if let (Some(state), Scope::Range { after, upto }) = (self.state, scope) {
            state.chunk(Chunk::new(number, (after, upto), look, &unequal))?;
        }
        report.chunks += 1;
        report.rows_source += look.rows_source;
        report.rows_target += look.rows_target;
        report.bytes += look.bytes;
        report.map.add(look.rows());
        self.advance(report);
        for (piece, scope) in (0..).zip(unequal) {
            let differs = self.suspect((number, piece), scope, report)?;
            if !differs && look.mode == Mode::Stream {
                self.reading = self.reading.next();
            }
        }
        Ok(())
    }

    fn advance(&self, report: &TableReport) {
        (self.watch.advance)(Advance {
            table: &report.table,
            rows: report.rows_source,
            of: self.source.table.rows_estimated,
        });
    }

    /// A part's sums differ: which keys? False if none are seen to.
    ///
    /// # Errors
    /// A side could not be read, or the state not be written.
    pub fn suspect(
        &mut self,
        number: PartNumber,
        scope: Scope,
        report: &mut TableReport,
    ) -> Result<bool> {
        self.unequal.insert(number, self.block);
        let now = Instant::now();
        let (of_source, of_target) =
            both(&mut self.source, &mut self.target, |side| side.pairs(&scope, None))?;
        let open = candidates(&of_source, &of_target, now);
        drop((of_source, of_target));
        let part = Pending { number, scope, open, found: Found::default() };
        if part.open.is_empty() {
            self.settled(&part)?;
            return Ok(false);
        }
        self.pending.push(part);
        if rows_open(&self.pending) > (WAITING_MAX / self.sharers.max(1)) as u64 {
            self.settle(report)?;
        }
        Ok(true)
    }
}

/// Keys that wait for another look.
pub fn rows_open(parts: &[Pending]) -> u64 {
    parts.iter().map(|part| part.open.len() as u64).sum()
}

/// The bound that comes first; none if neither side has one.
fn nearer(one: Option<Vec<Value>>, other: Option<Vec<Value>>) -> Option<Vec<Value>> {
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
}
