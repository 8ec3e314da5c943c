//! Further looks at what was not alike, until it is known what it is.

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use super::candidate::{Candidate, Image, State, images, without_common};
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
            let mut confirmed = HashMap::new();
            if options.frozen {
                // Both sides stand still: the first look is the last.
                confirmed = std::mem::take(&mut part.open);
            } else {
                look_again(source, target, &mut part, &mut confirmed, settle)?;
            }
            count(&confirmed, report);
            list(source, target, &part.scope, &confirmed, options, report)?;
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
    confirmed: &mut HashMap<Hash, Candidate>,
    settle: Duration,
) -> Result<()> {
    let now = Instant::now();
    let open = &part.open;
    let wanted = |key: Hash| open.contains_key(&key);
    let (of_source, of_target) =
        both(source, target, |side| side.pairs(&part.scope, Some(&wanted)))?;
    let (mut of_source, mut of_target) = (images(&of_source), images(&of_target));
    let mut known: Vec<(Hash, State)> = Vec::new();
    for (key, candidate) in &mut part.open {
        let take = |images: &mut HashMap<Hash, Image>| images.remove(key).unwrap_or_default();
        let state = candidate.look(take(&mut of_source), take(&mut of_target), now, settle);
        if state != State::Open {
            known.push((*key, state));
        }
    }
    for (key, state) in known {
        if let Some(candidate) = part.open.remove(&key)
            && state == State::Different
        {
            confirmed.insert(key, candidate);
        }
    }
    Ok(())
}

fn count(confirmed: &HashMap<Hash, Candidate>, report: &mut TableReport) {
    for candidate in confirmed.values() {
        let (changed, only_source, only_target) = candidate.counts();
        report.changed += changed;
        report.only_source += only_source;
        report.only_target += only_target;
    }
}

/// Reads the rows that are to be shown.
fn list(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    scope: &Scope,
    confirmed: &HashMap<Hash, Candidate>,
    options: &Options,
    report: &mut TableReport,
) -> Result<()> {
    let room = options.listed_max.saturating_sub(report.differences.len());
    if room == 0 || confirmed.is_empty() {
        return Ok(());
    }
    let mut keys: Vec<Hash> = confirmed.keys().copied().collect();
    // The same ones in every run.
    keys.sort_unstable();
    keys.truncate(room);
    let wanted: HashSet<Hash> = keys.iter().copied().collect();
    let (of_source, of_target) =
        both(source, target, |side| side.rows(scope, &wanted, SHOWN_BYTES_MAX))?;
    let mut shown = Vec::new();
    for key in &keys {
        let Some(candidate) = confirmed.get(key) else { continue };
        let (source, target) = without_common(candidate.source(), candidate.target());
        // Only rows that are still what they were found to be.
        let values = |rows: Option<&Vec<(Hash, Vec<Value>)>>, image: &Image| {
            let mut left = image.clone();
            let mut values = Vec::new();
            for (hash, row) in rows.into_iter().flatten() {
                if let Some(place) = left.iter().position(|known| known == hash) {
                    left.swap_remove(place);
                    values.push(row.clone());
                }
            }
            values
        };
        let mut source = values(of_source.get(key), &source).into_iter();
        let mut target = values(of_target.get(key), &target).into_iter();
        loop {
            let (one, other) = (source.next(), target.next());
            if one.is_none() && other.is_none() {
                break;
            }
            shown.push(difference(report, one, other));
        }
    }
    shown.truncate(room);
    shown.sort_by(|one, other| order(&one.key, &other.key));
    report.differences.extend(shown);
    Ok(())
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
