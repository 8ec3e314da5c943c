//! Histories of timelines: which timeline a timeline left, and where.
//!
//! A file `00000003.history` has a line for each ancestor, oldest first: its number, the position at
//! which it was left, and why, with white space between them; `#` begins a comment. Source:
//! `src/backend/access/transam/timeline.c`.

use std::collections::BTreeMap;

use pagewarden_core::database::repository::Lsn;

/// An ancestor, and where it was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ancestor {
    pub(super) timeline: u32,
    pub(super) left_at: u64,
}

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Histories {
    ancestors: BTreeMap<u32, Vec<Ancestor>>,
}

impl Histories {
    pub(super) fn parse(texts: &[(u32, String)]) -> Self {
        let ancestors = texts.iter().map(|(timeline, text)| {
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
            let mut found: Vec<_> = lines
                .filter_map(|line| {
                    let mut words = line.split_whitespace();
                    let timeline = words.next()?.parse().ok()?;
                    Some(Ancestor { timeline, left_at: Lsn::parse(words.next()?)?.0 })
                })
                // Numbers of timelines only grow.
                .filter(|ancestor| ancestor.timeline < *timeline)
                .collect();
            found.sort_by_key(|ancestor| (ancestor.left_at, ancestor.timeline));
            (*timeline, found)
        });
        Self { ancestors: ancestors.collect() }
    }

    /// The ancestors of a timeline, oldest first.
    pub(super) fn ancestors_of(&self, timeline: u32) -> &[Ancestor] {
        self.ancestors.get(&timeline).map_or(&[], Vec::as_slice)
    }

    /// The ancestor of `timeline` that wrote what is at `address`; `None` where it did itself.
    pub(super) fn timeline_at(&self, timeline: u32, address: u64) -> Option<u32> {
        let mut ancestors = self.ancestors_of(timeline).iter();
        ancestors.find(|ancestor| address < ancestor.left_at).map(|ancestor| ancestor.timeline)
    }

    /// The timelines that left `timeline`, itself or through others, with where.
    pub(super) fn that_left(&self, timeline: u32) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.ancestors.iter().filter_map(move |(child, ancestors)| {
            let ancestor = ancestors.iter().find(|ancestor| ancestor.timeline == timeline)?;
            Some((*child, ancestor.left_at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_tells_who_wrote_an_address() {
        let third = "1\t0/3000000\tno recovery target specified\n\n2\t0/5000A28\tbefore x # y\n";
        let histories = Histories::parse(&[(3, third.to_owned()), (2, "1 0/3000000 z".to_owned())]);
        let at = |address| histories.timeline_at(3, address);
        assert_eq!([at(0), at(0x2FF_FFFF), at(0x300_0000)], [Some(1), Some(1), Some(2)]);
        assert_eq!([at(0x500_0A27), at(0x500_0A28)], [Some(2), None]);
        assert_eq!(histories.timeline_at(1, 0), None);
        let left: Vec<_> = histories.that_left(1).collect();
        assert_eq!(left, [(2, 0x300_0000), (3, 0x300_0000)]);
    }

    #[test]
    fn garbage_and_circles_are_no_ancestors() {
        let texts = ["2 0/1 itself", "9 0/1 later", "x", "1", "1 0x33", "\0"];
        for text in texts {
            let histories = Histories::parse(&[(2, text.to_owned())]);
            assert_eq!(histories.ancestors_of(2), [], "{text}");
        }
    }
}
