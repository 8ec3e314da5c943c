//! Further looks at what was not alike, until it is known what it is.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use super::candidate::{Candidate, Image, State, without_common};
use super::look::{Scope, Side, both};
use super::report::{Difference, Kind, TableReport};
use super::{Options, Watch};
use crate::error::Result;
use crate::row::record::Hash;
use crate::row::{Tag, Value, number};

/// Memory for rows that are shown.
const SHOWN_BYTES_MAX: usize = 16 << 20;
/// How long a pause may be before somebody is asked whether to go on.
const NAP: Duration = Duration::from_millis(50);

/// A part of a table with rows that were not alike.
#[derive(Debug)]
pub struct Pending {
    /// The part.
    pub scope: Scope,
    /// The keys of the rows.
    pub open: HashMap<Hash, Candidate>,
}

/// Looks again until every row is known, or patience ends, and counts what came of it.
///
/// # Errors
/// A side could not be read, or somebody asked to end. Nothing is counted of what was
/// not known by then.
pub fn settle(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    pending: Vec<Pending>,
    options: &Options,
    watch: &Watch<'_>,
    report: &mut TableReport,
) -> Result<()> {
    let begin = Instant::now();
    let mut waiting = pending;
    let mut last = options.frozen;
    while !waiting.is_empty() {
        let mut settle = options.settle;
        if !last {
            // What the source had at the last look is in its log up to here.
            let position = source.connection.position()?;
            pause(options.settle, watch)?;
            // A replica that has not come so far yet is late, and proves nothing.
            if let Some(position) = position
                && target.connection.has_reached(&position)? == Some(false)
            {
                settle = Duration::MAX;
            }
        }
        last = last || begin.elapsed() >= options.patience;
        let mut still = Vec::new();
        for mut part in waiting {
            let mut shown = Shown::new(options, report);
            if options.frozen {
                // Both sides stand still: the first look is the last.
                for (key, candidate) in std::mem::take(&mut part.open) {
                    shown.confirm(key, candidate, report);
                }
            } else {
                look_again(source, target, &mut part, settle, &mut |key, candidate| {
                    shown.confirm(key, candidate, report);
                })?;
            }
            shown.read(source, target, &part.scope, report)?;
            if last {
                report.unresolved += part.open.len() as u64;
            } else if !part.open.is_empty() {
                still.push(part);
            }
        }
        waiting = still;
    }
    Ok(())
}

fn pause(time: Duration, watch: &Watch<'_>) -> Result<()> {
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
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    part: &mut Pending,
    settle: Duration,
    confirm: &mut dyn FnMut(Hash, Candidate),
) -> Result<()> {
    let now = Instant::now();
    let open = &part.open;
    let wanted = |key: Hash| open.contains_key(&key);
    // The target comes first, and never has what the source has changed since: a row that came
    // late and went from both sides meanwhile would look as if it had never come.
    let of_target = target.pairs(&part.scope, Some(&wanted))?;
    let of_source = source.pairs(&part.scope, Some(&wanted))?;
    part.open.retain(|key, candidate| {
        let images = (Image::of(*key, &of_source), Image::of(*key, &of_target));
        match candidate.look(images.0, images.1, now, settle) {
            State::Open => return true,
            State::Equal => {}
            State::Different => confirm(*key, candidate.clone()),
        }
        false
    });
    // What is left may be little of what was.
    part.open.shrink_to_fit();
    Ok(())
}

/// The differences of a part that are to be shown.
struct Shown {
    room: usize,
    chosen: BTreeMap<Hash, Candidate>,
}

impl Shown {
    fn new(options: &Options, report: &TableReport) -> Self {
        let room = options.listed_max.saturating_sub(report.differences.len());
        Self { room, chosen: BTreeMap::new() }
    }

    /// Counts a difference, and chooses those of the smallest hashes: the same in every run.
    fn confirm(&mut self, key: Hash, candidate: Candidate, report: &mut TableReport) {
        let (changed, only_source, only_target) = candidate.counts();
        report.changed += changed;
        report.only_source += only_source;
        report.only_target += only_target;
        self.chosen.insert(key, candidate);
        if self.chosen.len() > self.room {
            self.chosen.pop_last();
        }
    }

    /// Reads the rows that are to be shown.
    fn read(
        self,
        source: &mut Side<'_>,
        target: &mut Side<'_>,
        scope: &Scope,
        report: &mut TableReport,
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
        report.differences.extend(shown);
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
