//! How far each set can be brought by the stretches of log that are sound.

use std::collections::BTreeSet;

use crate::files::archived_log::history::Histories;
use crate::files::archived_log::read::Stretch;

/// What a set asks of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) label: String,
    pub(super) timeline: u32,
    /// Where replay begins.
    pub(super) from: u64,
    /// Where the database is consistent.
    pub(super) to: u64,
}

/// A way that replay can go from a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) timeline: u32,
    pub(super) to: u64,
    /// The last end of a transaction that is replayed, in microseconds since 2000.
    pub(super) time: Option<i64>,
}

/// The stretch of a set's own timeline that makes it consistent.
pub(super) fn stretch_of<'a>(need: &Need, stretches: &'a [Stretch]) -> Option<&'a Stretch> {
    stretches.iter().find(|stretch| {
        stretch.timeline == need.timeline
            && (stretch.begin..=stretch.end).contains(&need.from)
            && stretch.end >= need.to
    })
}

/// All ways from a set that can be made consistent: in its own timeline, unless it only leads to
/// another, and in those that left it later.
pub(super) fn reaches(
    need: &Need,
    own: &Stretch,
    stretches: &[Stretch],
    histories: &Histories,
    segment_bytes: u64,
) -> Vec<Reach> {
    let mut found = Vec::new();
    let mut is_left_behind = false;
    for (child, left_at) in histories.that_left(need.timeline) {
        if left_at < need.to {
            continue;
        }
        let Some(path) = path_to(child, own, left_at, stretches, histories) else { continue };
        let fork = left_at.checked_next_multiple_of(segment_bytes.max(1)).unwrap_or(left_at);
        is_left_behind |= own.end <= fork;
        let last = path.last().copied().unwrap_or(own);
        found.push(Reach { timeline: child, to: last.end, time: time_on(need, &path) });
    }
    // A timeline that another one left, and that is not longer, is only on the way.
    let passed: BTreeSet<u32> = found
        .iter()
        .flat_map(|reach| histories.ancestors_of(reach.timeline))
        .map(|ancestor| ancestor.timeline)
        .collect();
    found.retain(|reach| {
        let fork = histories.that_left(reach.timeline).map(|(_, left_at)| left_at).max();
        !passed.contains(&reach.timeline) || fork.is_none_or(|fork| reach.to > fork)
    });
    if !is_left_behind {
        found.push(Reach { timeline: need.timeline, to: own.end, time: time_on(need, &[own]) });
    }
    found.sort_by_key(|reach| reach.timeline);
    found
}

/// The stretches from `own` to the end of `child`, which left it at `left_at`.
fn path_to<'a>(
    child: u32,
    own: &'a Stretch,
    left_at: u64,
    stretches: &'a [Stretch],
    histories: &Histories,
) -> Option<Vec<&'a Stretch>> {
    let mut path = vec![own];
    let mut cover = own.end;
    let later = histories.ancestors_of(child).iter().filter(|ancestor| ancestor.left_at > left_at);
    let timelines = later.map(|ancestor| (ancestor.timeline, false));
    for (timeline, is_target) in timelines.chain([(child, true)]) {
        let mut of_timeline = stretches.iter().filter(|stretch| stretch.timeline == timeline);
        let next = of_timeline.find(|stretch| stretch.begin <= cover && stretch.end >= left_at);
        match next {
            Some(next) => {
                cover = cover.max(next.end);
                path.push(next);
            }
            None if is_target => return None,
            // It was left in the segment in which it began.
            None => {}
        }
    }
    Some(path)
}

/// The latest end of a transaction before a set is consistent.
pub(super) fn last_commit(need: &Need, own: &Stretch) -> Option<i64> {
    let before = own.commits.iter().filter(|(at, _)| *at <= need.to);
    before.map(|(_, time)| *time).max()
}

/// The last end of a transaction on a way, behind the set's own end or before it.
fn time_on(need: &Need, path: &[&Stretch]) -> Option<i64> {
    let commits = path.iter().flat_map(|stretch| &stretch.commits);
    commits.filter(|(at, _)| *at > need.from).map(|(_, time)| *time).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 0x100_0000;

    fn stretch(timeline: u32, begin: u64, end: u64) -> Stretch {
        Stretch { timeline, begin, end, commits: vec![(end, end.cast_signed())] }
    }

    fn need(timeline: u32, from: u64, to: u64) -> Need {
        Need { label: "a".to_owned(), timeline, from, to }
    }

    fn ways(need: &Need, stretches: &[Stretch], histories: &Histories) -> Vec<(u32, u64)> {
        let Some(own) = stretch_of(need, stretches) else { return Vec::new() };
        let found = reaches(need, own, stretches, histories, SEGMENT);
        found.into_iter().map(|reach| (reach.timeline, reach.to)).collect()
    }

    #[test]
    fn set_needs_one_stretch_from_its_begin_to_its_end() {
        let stretches = [stretch(1, 0x100, 0x500), stretch(1, 0x600, 0x900)];
        let found = |from, to| ways(&need(1, from, to), &stretches, &Histories::default());
        assert_eq!(found(0x100, 0x200), [(1, 0x500)]);
        assert_eq!(found(0x600, 0x900), [(1, 0x900)]);
        for (from, to) in [(0x80, 0x200), (0x100, 0x501), (0x400, 0x700), (0x901, 0x902)] {
            assert_eq!(found(from, to), [], "{from:x} {to:x}");
        }
        assert_eq!(ways(&need(2, 0x100, 0x200), &stretches, &Histories::default()), []);
    }

    #[test]
    fn newer_timelines_are_followed_where_the_log_leads_to_them() {
        let (fork, second_fork) = (3 * SEGMENT + 0x100, 5 * SEGMENT + 0x80);
        let texts = [
            (2, format!("1 0/{fork:X} promoted")),
            (3, format!("1 0/{fork:X} promoted\n2 0/{second_fork:X} promoted")),
        ];
        let histories = Histories::parse(&texts);
        let (first, old) = (stretch(1, 0x28, 3 * SEGMENT - 40), need(1, SEGMENT, 2 * SEGMENT));
        let second = stretch(2, 2 * SEGMENT, 5 * SEGMENT - 16);
        let third = stretch(3, 4 * SEGMENT + 40, 9 * SEGMENT);
        let all = [first.clone(), second.clone(), third.clone()];
        assert_eq!(ways(&old, &all, &histories), [(3, 9 * SEGMENT)]);
        // A log of the second that begins too late.
        let late = Stretch { begin: 3 * SEGMENT, ..second.clone() };
        let broken = [first.clone(), late, third.clone()];
        assert_eq!(ways(&old, &broken, &histories), [(1, 3 * SEGMENT - 40)]);
        // An old server that went on by itself.
        let longer = Stretch { end: 7 * SEGMENT, ..first };
        let split = [longer, second, third];
        assert_eq!(ways(&old, &split, &histories), [(1, 7 * SEGMENT), (3, 9 * SEGMENT)]);
        // A set taken behind the fork.
        let after = need(1, 4 * SEGMENT, 6 * SEGMENT);
        assert_eq!(ways(&after, &split, &histories), [(1, 7 * SEGMENT)]);
    }
}
