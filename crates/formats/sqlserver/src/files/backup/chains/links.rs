//! Which backups fit on one another.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::files::backup::SetKind;
use crate::files::backup::chains::SetHeader;
use crate::mtf::details::{Date, Fork, Guid, Lsn};

/// A backup, and where it lies.
#[derive(Debug, Clone)]
pub(super) struct Set {
    pub(super) files: Vec<PathBuf>,
    /// In a store, where a server cannot read them by these paths.
    pub(super) is_elsewhere: bool,
    /// How many files it was striped over.
    pub(super) stripes: u16,
    /// Bytes of its files.
    pub(super) bytes: u64,
    pub(super) is_compressed: bool,
    /// Why no restore can use it.
    pub(super) unusable: Option<String>,
    pub(super) header: SetHeader,
}

impl Set {
    pub(super) fn kind(&self) -> SetKind {
        self.header.kind
    }

    pub(super) fn first(&self) -> Lsn {
        self.header.configuration.first_lsn
    }

    pub(super) fn last(&self) -> Lsn {
        self.header.configuration.last_lsn
    }

    pub(super) fn fork(&self) -> Fork {
        self.header.configuration.fork
    }

    pub(super) fn begun(&self) -> Option<Date> {
        self.header.configuration.begun
    }

    pub(super) fn ended(&self) -> Option<Date> {
        self.header.configuration.ended
    }

    /// The last moment of which it is certain that it is in the backup: the log in it ends while the
    /// backup is made.
    pub(super) fn moment(&self) -> Option<Date> {
        if self.kind() == SetKind::Log { self.begun() } else { self.ended() }
    }

    /// A database in the state that `before` leaves can be brought on by this log backup.
    fn goes_on_from(&self, before: &Self) -> bool {
        self.first() <= before.last() && before.last() < self.last() && self.is_of_history(before)
    }

    /// All that is in this backup is in the state that `before` leaves.
    fn is_contained_in(&self, before: &Self) -> bool {
        self.last() <= before.last() && (self.is_of_history(before) || before.is_of_history(self))
    }

    fn is_of_history(&self, before: &Self) -> bool {
        let (own, its) = (self.fork(), before.fork());
        own.id == its.id || own.left == its.id && own.left.is_set() && before.last() <= own.point
    }

    /// It is the differential backup on that full one.
    fn is_based_on(&self, full: &Self) -> bool {
        let (own, its) = (&self.header.configuration, &full.header);
        match own.base_id.is_set() && its.id.is_set() {
            true => own.base_id == its.id,
            false => own.previous_full_lsn == its.configuration.checkpoint_lsn,
        }
    }
}

/// How a database comes to the state that a backup leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    /// The backup before, on the shortest way; `None` for a full one.
    from: Option<usize>,
    /// Of a log backup, the oldest state from which it goes on.
    oldest: Option<usize>,
    /// How many are restored before it.
    steps: usize,
}

/// States that can be restored: one, or all from the first to the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    /// The backup that leaves the first.
    pub(super) first: usize,
    /// The backup that leaves the last.
    pub(super) last: usize,
    pub(super) from: Lsn,
    pub(super) to: Lsn,
    pub(super) from_time: Option<Date>,
    pub(super) to_time: Option<Date>,
    members: Vec<usize>,
}

impl Range {
    /// One state, and no other.
    pub(super) fn is_state(&self) -> bool {
        self.from == self.to
    }
}

/// What keeps a backup from being restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// The log between the state that this backup leaves and this log backup is not here.
    Gap {
        /// The backup before; `None` where no full backup is here.
        before: Option<usize>,
        /// The log backup behind the gap.
        log: usize,
        /// Another backup leads over the gap, and what is before it is no log backup: what only brings
        /// old backups to moments between them may have been removed.
        is_bridged: bool,
    },
    /// The full backup that this differential one builds on is not here, or cannot be used.
    Base {
        /// The differential backup.
        set: usize,
        /// The base, if it is here.
        base: Option<usize>,
    },
}

/// All backups of one database.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) name: String,
    pub(super) family: Guid,
    /// In the order of the log.
    pub(super) sets: Vec<Set>,
    /// How each comes to be restored; `None` where it cannot.
    pub(super) reached: Vec<Option<Reached>>,
}

impl Database {
    /// All databases, by name.
    pub(super) fn all(sets: Vec<Set>) -> Vec<Self> {
        let mut databases: BTreeMap<(String, Guid), Vec<Set>> = BTreeMap::new();
        for set in sets {
            let configuration = &set.header.configuration;
            let key = (configuration.database.clone(), configuration.family);
            databases.entry(key).or_default().push(set);
        }
        let all = databases.into_iter();
        all.map(|((name, family), sets)| Self::of(name, family, sets)).collect()
    }

    fn of(name: String, family: Guid, mut sets: Vec<Set>) -> Self {
        // A copy of a backup is the same backup: one that can be used is kept.
        sets.sort_by_key(|set| (set.last(), set.first(), set.header.id, set.unusable.is_some()));
        sets.dedup_by(|a, b| a.header.id.is_set() && a.header.id == b.header.id);
        let mut database = Self { name, family, reached: vec![None; sets.len()], sets };
        database.find_reached();
        database
    }

    fn usable(&self, kind: SetKind) -> impl Iterator<Item = (usize, &Set)> {
        let sets = self.sets.iter().enumerate();
        sets.filter(move |(_, set)| set.kind() == kind && set.unusable.is_none())
    }

    fn reached_sets(&self) -> impl Iterator<Item = (usize, &Set, Reached)> {
        let sets = self.sets.iter().zip(&self.reached).enumerate();
        sets.filter_map(|(at, (set, reached))| Some((at, set, (*reached)?)))
    }

    /// Sets are in the order of the states that they leave, so that what a log backup goes on from
    /// comes before it.
    fn find_reached(&mut self) {
        let fulls: Vec<usize> = self.usable(SetKind::Full).map(|(at, _)| at).collect();
        let mut found = vec![None; self.sets.len()];
        let mut reach = |at: usize, reached| {
            if let Some(place) = found.get_mut(at) {
                *place = Some(reached);
            }
        };
        fulls.iter().for_each(|at| reach(*at, Reached { from: None, oldest: None, steps: 0 }));
        for (at, set) in self.usable(SetKind::Differential) {
            if let Some(base) = self.base_of(set).filter(|base| fulls.contains(base)) {
                reach(at, Reached { from: Some(base), oldest: None, steps: 1 });
            }
        }
        self.reached = found;
        let logs: Vec<usize> = self.usable(SetKind::Log).map(|(at, _)| at).collect();
        for at in logs {
            let Some(log) = self.sets.get(at) else { continue };
            let before = || self.reached_sets().filter(|(_, set, _)| log.goes_on_from(set));
            let best = before().min_by_key(|(_, set, it)| (it.steps, Reverse(set.last())));
            let oldest = before().min_by_key(|(_, set, _)| set.last()).map(|(at, ..)| at);
            let found = best.map(|(from, _, reached)| Reached {
                from: Some(from),
                oldest,
                steps: reached.steps.saturating_add(1),
            });
            if let Some(place) = self.reached.get_mut(at) {
                *place = found;
            }
        }
    }

    /// The full backup that a differential one builds on.
    fn base_of(&self, set: &Set) -> Option<usize> {
        let mut fulls = self.sets.iter().enumerate();
        fulls.find(|(_, full)| full.kind() == SetKind::Full && set.is_based_on(full)).map(|it| it.0)
    }

    /// To which states it can be brought, in the order of the log.
    pub(super) fn ranges(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        for (at, set, reached) in self.reached_sets() {
            let before = reached.oldest.and_then(|before| Some((before, self.sets.get(before)?)));
            let to_time = set.moment().max(before.and_then(|(_, before)| before.moment()));
            let one = Range {
                first: before.map_or(at, |(before, _)| before),
                last: at,
                from: before.map_or(set.last(), |(_, before)| before.last()),
                to: set.last(),
                from_time: before.map_or(set.moment(), |(_, before)| before.moment()),
                to_time,
                members: vec![at],
            };
            self.add(&mut ranges, one, before.map(|(before, _)| before));
        }
        ranges.sort_by_key(|range| (range.from, range.to));
        ranges
    }

    /// Joins what touches: what goes on from a backup in a range, and a state of its history in it.
    fn add(&self, ranges: &mut Vec<Range>, one: Range, before: Option<usize>) {
        let fork = |at: usize| self.sets.get(at).map(|set| set.fork().id);
        let own = fork(one.last);
        let fits = |range: &Range| {
            before.is_some_and(|before| range.members.contains(&before))
                || one.from <= range.to
                    && range.from <= one.to
                    && range.members.iter().any(|member| fork(*member) == own)
        };
        let (joined, rest): (Vec<Range>, Vec<Range>) =
            std::mem::take(ranges).into_iter().partition(fits);
        let whole = joined.into_iter().fold(one, |mut whole, range| {
            if range.from < whole.from {
                (whole.first, whole.from) = (range.first, range.from);
                whole.from_time = range.from_time;
            }
            if range.to > whole.to {
                (whole.last, whole.to) = (range.last, range.to);
            }
            whole.to_time = whole.to_time.max(range.to_time);
            whole.members.extend(range.members);
            whole
        });
        *ranges = rest;
        ranges.push(whole);
    }

    /// The backups that bring it to its newest state, in the order in which they are restored.
    pub(super) fn newest(&self) -> Vec<&Set> {
        let newest = self.reached_sets().max_by_key(|(_, set, _)| (set.moment(), set.last()));
        let mut way = Vec::new();
        let mut next = newest.map(|(at, ..)| at);
        while let Some(at) = next
            && way.len() <= self.sets.len()
        {
            way.extend(self.sets.get(at));
            next = self.reached.get(at).copied().flatten().and_then(|reached| reached.from);
        }
        way.reverse();
        way
    }

    /// What keeps backups that are sound from being restored.
    pub(super) fn lacks(&self) -> Vec<Lack> {
        let mut lacks = Vec::new();
        let is_reached = |at: usize| self.reached.get(at).is_some_and(Option::is_some);
        for (at, set) in self.usable(SetKind::Differential) {
            if !is_reached(at) {
                lacks.push(Lack::Base { set: at, base: self.base_of(set) });
            }
        }
        for (at, log) in self.usable(SetKind::Log) {
            // What keeps the one before it away keeps this one away.
            if self.usable(SetKind::Log).any(|(_, before)| log.goes_on_from(before)) {
                continue;
            }
            let older = self.reached_sets().filter(|(_, set, _)| set.last() < log.first());
            let before = older.max_by_key(|(_, set, _)| set.last());
            let is_older_than_all =
                before.is_none() && self.reached_sets().any(|(_, set, _)| log.is_contained_in(set));
            let begins_with_a_state =
                self.reached_sets().any(|(_, set, _)| set.last() == log.first());
            if before.is_none() && (is_reached(at) || is_older_than_all) || begins_with_a_state {
                continue;
            }
            let is_bridged =
                is_reached(at) && before.is_some_and(|(_, set, _)| set.kind() != SetKind::Log);
            lacks.push(Lack::Gap { before: before.map(|(at, ..)| at), log: at, is_bridged });
        }
        lacks
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests;
