//! Further looks at what was not alike, until it is known what it is.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use super::Watch;
use super::candidate::{Candidate, Image, State, without_common};
use super::look::{Scope, Side, both, bucket};
use super::map::{PartMap, PartState};
use super::report::{Difference, Found, Kind, TableReport};
use super::split::Split;
use super::state::PartNumber;
use super::table::Comparison;
use crate::error::Result;
use crate::row::record::Hash;
use crate::row::{Tag, Value, number};

/// Memory for rows that are shown.
const SHOWN_BYTES_MAX: usize = 16 << 20;
/// How long a pause may be before the caller is asked whether to go on.
const NAP: Duration = Duration::from_millis(50);

/// A part of a table with rows that were not alike.
#[derive(Debug)]
pub struct Pending {
    /// Its number.
    pub number: PartNumber,
    /// The part.
    pub scope: Scope,
    /// The keys of the rows.
    pub open: HashMap<Hash, Candidate>,
    /// What came of others.
    pub found: Found,
}

impl Pending {
    /// Where rows are in the map, by the hashes of their keys.
    fn places(&self) -> impl Fn(Hash) -> u64 + use<> {
        let chunk = match &self.scope {
            Scope::Range { .. } => Some(self.number.0),
            Scope::Parts(Split::Buckets, _) => None,
            // Which of the parts would need the key.
            Scope::Parts(_, wanted) => wanted.iter().min().map(|part| *part as u64),
        };
        move |key| chunk.unwrap_or_else(|| bucket(key) as u64)
    }

    /// Shows in the map which rows are not known.
    pub fn mark_open(&self, map: &mut PartMap) {
        let place = self.places();
        self.open.keys().for_each(|key| map.mark(place(*key), PartState::Unresolved));
    }
}

/// Looks again until every row is known, or patience ends, and counts what came of it. What
/// is not known then is left in `waiting`.
///
/// # Errors
/// A side could not be read, or the caller asked to end. Nothing is counted of what was
/// not known by then; it is left in `waiting`, too.
pub fn settle(
    comparison: &mut Comparison<'_, '_>,
    waiting: &mut Vec<Pending>,
    patience: Duration,
    report: &mut TableReport,
) -> Result<()> {
    let mut begin = Instant::now();
    let mut last = comparison.options.frozen;
    while !waiting.is_empty() {
        // A pause for servers does not use up the patience.
        begin += comparison.wait_for_servers(report)?;
        let mut settle = comparison.options.settle;
        if !last {
            // What the source had at the last look is in its log up to here.
            let position = comparison.source.connection.position()?;
            pause(settle, comparison.watch)?;
            // A replica that has not come so far yet is late, and proves nothing.
            if let Some(position) = position
                && comparison.target.connection.has_reached(&position)? == Some(false)
            {
                settle = Duration::MAX;
            }
        }
        last = last || begin.elapsed() >= patience;
        let mut parts = std::mem::take(waiting).into_iter();
        while let Some(mut part) = parts.next() {
            let looked = look_again(comparison, &mut part, settle, report);
            if looked.is_ok() && part.open.is_empty() {
                comparison.settled(&part)?;
            } else {
                waiting.push(part);
            }
            if let Err(error) = looked {
                waiting.extend(parts);
                return Err(error);
            }
        }
        if last {
            return Ok(());
        }
    }
    Ok(())
}

/// Waits, as long as the caller does not ask to end.
pub fn pause(time: Duration, watch: &Watch<'_>) -> Result<()> {
    let begin = Instant::now();
    loop {
        (watch.tell)(0, 0)?;
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(NAP));
    }
}

fn look_again(
    comparison: &mut Comparison<'_, '_>,
    part: &mut Pending,
    settle: Duration,
    report: &mut TableReport,
) -> Result<()> {
    let (source, target) = (&mut comparison.source, &mut comparison.target);
    let mut shown = Shown::new(comparison.options.listed_max, report);
    let place = part.places();
    if comparison.options.frozen {
        // Both sides stand still: the first look is the last.
        for (key, candidate) in std::mem::take(&mut part.open) {
            shown.confirm(place(key), key, candidate);
        }
    } else {
        let now = Instant::now();
        let open = &part.open;
        let wanted = |key: Hash| open.contains_key(&key);
        // The target comes first, and never has what the source has changed since: a row that
        // came late and went from both sides meanwhile would look as if it had never come.
        let of_target = target.pairs(&part.scope, Some(&wanted))?;
        let of_source = source.pairs(&part.scope, Some(&wanted))?;
        part.open.retain(|key, candidate| {
            let images = (Image::of(*key, &of_source), Image::of(*key, &of_target));
            match candidate.look(images.0, images.1, now, settle) {
                State::Open => return true,
                State::Equal => {}
                State::Different => shown.confirm(place(*key), *key, candidate.clone()),
            }
            false
        });
        // What is left may be little of what was.
        part.open.shrink_to_fit();
    }
    // What was counted counts, also if its rows cannot be read any more.
    let read = shown.read(source, target, &part.scope, report);
    report.take(shown.found.clone());
    part.found.join(shown.found);
    read
}

/// The differences of a part that are to be shown.
struct Shown {
    room: usize,
    chosen: BTreeMap<Hash, Candidate>,
    found: Found,
}

impl Shown {
    fn new(listed_max: usize, report: &TableReport) -> Self {
        let room = listed_max.saturating_sub(report.differences.len());
        Self { room, chosen: BTreeMap::new(), found: Found::default() }
    }

    /// Counts a difference at a place of the map, and chooses those of the smallest hashes:
    /// the same in every run.
    fn confirm(&mut self, place: u64, key: Hash, candidate: Candidate) {
        self.found.places.insert(place);
        let (changed, only_source, only_target) = candidate.counts();
        self.found.changed += changed;
        self.found.only_source += only_source;
        self.found.only_target += only_target;
        self.chosen.insert(key, candidate);
        if self.chosen.len() > self.room {
            self.chosen.pop_last();
        }
    }

    /// Reads the rows that are to be shown.
    fn read(
        &mut self,
        source: &mut Side<'_>,
        target: &mut Side<'_>,
        scope: &Scope,
        report: &TableReport,
    ) -> Result<()> {
        if self.chosen.is_empty() {
            return Ok(());
        }
        let wanted: HashSet<Hash> = self.chosen.keys().copied().collect();
        let (of_source, of_target) =
            both(source, target, |side| side.rows(scope, &wanted, SHOWN_BYTES_MAX))?;
        let mut shown = Vec::new();
        for (key, candidate) in &self.chosen {
            let (source, target) = without_common(candidate.source(), candidate.target());
            let mut source = still_there(of_source.get(key), source).into_iter();
            let mut target = still_there(of_target.get(key), target).into_iter();
            loop {
                let (one, other) = (source.next(), target.next());
                if one.is_none() && other.is_none() {
                    break;
                }
                shown.push(difference(report, one, other));
            }
        }
        shown.truncate(self.room);
        shown.sort_by(|one, other| order(&one.key, &other.key));
        self.found.differences = shown;
        Ok(())
    }
}

/// Only rows that are still what they were found to be.
fn still_there(rows: Option<&Vec<(Hash, Vec<Value>)>>, mut found: Vec<Hash>) -> Vec<Vec<Value>> {
    let mut values = Vec::new();
    for (hash, row) in rows.into_iter().flatten() {
        if let Some(place) = found.iter().position(|known| known == hash) {
            found.swap_remove(place);
            values.push(row.clone());
        }
    }
    values
}

fn difference(
    report: &TableReport,
    source: Option<Vec<Value>>,
    target: Option<Vec<Value>>,
) -> Difference {
    let kind = match (&source, &target) {
        (Some(_), Some(_)) => Kind::Changed,
        (Some(_), None) => Kind::OnlySource,
        _ => Kind::OnlyTarget,
    };
    let of_key = if report.key_count > 0 { report.key_count } else { report.columns.len() };
    let either = source.as_ref().or(target.as_ref()).cloned().unwrap_or_default();
    let key = report.columns.iter().cloned().zip(either).take(of_key).collect();
    let mut columns = Vec::new();
    if let (Some(source), Some(target)) = (&source, &target) {
        for ((name, one), other) in report.columns.iter().zip(source).zip(target) {
            if one != other {
                columns.push(name.clone());
            }
        }
    }
    Difference { kind, key, columns, source, target }
}

fn order(one: &[(String, Value)], other: &[(String, Value)]) -> std::cmp::Ordering {
    let values = one.iter().zip(other).map(|((_, one), (_, other))| (one, other));
    for (one, other) in values {
        let numbers = one.tag == Tag::Number && other.tag == Tag::Number;
        let by_number = numbers.then(|| number::compare(&one.payload, &other.payload)).flatten();
        let order = by_number.unwrap_or_else(|| one.cmp(other));
        if order.is_ne() {
            return order;
        }
    }
    one.len().cmp(&other.len())
}
