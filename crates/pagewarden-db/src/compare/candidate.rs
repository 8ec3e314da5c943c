//! Rows that were not alike at the first look, and what further looks make of them.
//!
//! On live tables a difference may be a change that has not arrived yet. A row counts
//! as equal once the target's is one that the source was seen to have. It counts as
//! different once both sides have stood still for a while and are not alike. What keeps
//! changing stays unresolved; it is neither.
//!
//! Where the target tells how far it has come, what it has at a look is what the source had
//! at some moment between the last look and this one. So a row is taken for different only
//! if it is, or if the source changed it there and back in between.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::look::Pair;
use crate::row::record::Hash;

/// The rows of one key on one side, by their hashes, in order: none, or one, or several
/// where nothing forbids it. There may be many images: nearly all need no memory beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image {
    /// No row.
    None,
    /// One row.
    One(Hash),
    /// Several.
    Many(Box<[Hash]>),
}

impl Image {
    /// The rows of a key, out of all rows in order.
    pub fn of(key: Hash, pairs: &[Pair]) -> Self {
        let begin = pairs.partition_point(|pair| pair.0 < key);
        let rest = pairs.get(begin..).unwrap_or_default();
        let count = rest.partition_point(|pair| pair.0 == key);
        Self::of_group(rest.get(..count).unwrap_or_default())
    }

    fn of_group(group: &[Pair]) -> Self {
        match group {
            [] => Self::None,
            [one] => Self::One(one.1),
            several => Self::Many(several.iter().map(|pair| pair.1).collect()),
        }
    }

    /// The hashes.
    pub fn rows(&self) -> &[Hash] {
        match self {
            Self::None => &[],
            Self::One(hash) => std::slice::from_ref(hash),
            Self::Many(hashes) => hashes,
        }
    }
}

/// Earlier images of a row that are remembered. A target that has an older one is no proof
/// of anything: the row stays open.
const BEFORE_MAX: usize = 1000;

/// A key whose rows were not alike.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// What the source had last.
    source: Image,
    /// What else it was seen to have.
    before: Vec<Image>,
    /// What the target had last.
    target: Image,
    /// Since when both have been as they are.
    since: Instant,
}

/// What is known of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Alike.
    Equal,
    /// Not alike, and both sides stood still.
    Different,
    /// Not known yet.
    Open,
}

impl Candidate {
    /// What the source has.
    pub fn source(&self) -> &Image {
        &self.source
    }

    /// What the target has.
    pub fn target(&self) -> &Image {
        &self.target
    }

    /// Takes another look in.
    pub fn look(&mut self, source: Image, target: Image, now: Instant, settle: Duration) -> State {
        let stood_still = self.source == source && self.target == target;
        if self.source != source {
            let earlier = std::mem::replace(&mut self.source, source);
            if self.before.len() >= BEFORE_MAX {
                self.before.remove(0);
            }
            self.before.push(earlier);
        }
        self.target = target;
        if self.target == self.source || self.before.contains(&self.target) {
            return State::Equal;
        }
        if !stood_still {
            self.since = now;
            return State::Open;
        }
        if now.duration_since(self.since) >= settle { State::Different } else { State::Open }
    }

    /// How many rows were changed, are on the source only, and on the target only.
    pub fn counts(&self) -> (u64, u64, u64) {
        let (source, target) = without_common(&self.source, &self.target);
        let changed = source.len().min(target.len());
        let count = |rows: &[Hash]| (rows.len() - changed) as u64;
        (changed as u64, count(&source), count(&target))
    }
}

/// What each of two images has that the other has not.
pub fn without_common(one: &Image, other: &Image) -> (Vec<Hash>, Vec<Hash>) {
    // Both are in order.
    let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
    let mut rest = other.rows().iter().peekable();
    for hash in one.rows() {
        while let Some(smaller) = rest.next_if(|known| *known < hash) {
            of_other.push(*smaller);
        }
        if rest.next_if(|known| *known == hash).is_none() {
            of_one.push(*hash);
        }
    }
    of_other.extend(rest);
    (of_one, of_other)
}

/// The keys whose rows are not alike. Both sides are in order.
pub fn candidates(source: &[Pair], target: &[Pair], now: Instant) -> HashMap<Hash, Candidate> {
    let mut found = HashMap::new();
    let by_key = |one: &Pair, other: &Pair| one.0 == other.0;
    let mut of_source = source.chunk_by(by_key).peekable();
    let mut of_target = target.chunk_by(by_key).peekable();
    let key = |group: Option<&&[Pair]>| group.and_then(|group| group.first()).map(|pair| pair.0);
    loop {
        let (one, other) = (key(of_source.peek()), key(of_target.peek()));
        let next = match (one, other) {
            (None, None) => return found,
            (Some(one), Some(other)) => one.min(other),
            (Some(key), None) | (None, Some(key)) => key,
        };
        let image = |group: Option<&[Pair]>| Image::of_group(group.unwrap_or_default());
        let source = image(if one == Some(next) { of_source.next() } else { None });
        let target = image(if other == Some(next) { of_target.next() } else { None });
        if source != target {
            found.insert(next, Candidate { source, before: Vec::new(), target, since: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(2);

    fn image(hash: Option<Hash>) -> Image {
        hash.map_or(Image::None, Image::One)
    }

    fn first(source: &[Hash], target: &[Hash], now: Instant) -> Candidate {
        let pairs = |hashes: &[Hash]| hashes.iter().map(|hash| (7, *hash)).collect::<Vec<_>>();
        candidates(&pairs(source), &pairs(target), now).remove(&7).unwrap()
    }

    #[test]
    fn keys_that_are_not_alike_are_found() {
        let now = Instant::now();
        let found = candidates(
            &[(1, 1), (2, 2), (3, 3), (5, 5), (5, 6)],
            &[(1, 1), (2, 9), (4, 4), (5, 5)],
            now,
        );
        let mut counts: Vec<_> = found.iter().map(|(key, one)| (*key, one.counts())).collect();
        counts.sort_unstable();
        assert_eq!(counts, [(2, (1, 0, 0)), (3, (0, 1, 0)), (4, (0, 0, 1)), (5, (0, 1, 0))]);
    }

    #[test]
    fn doubled_rows_are_counted() {
        let now = Instant::now();
        let found = candidates(&[(1, 1), (1, 1), (1, 1)], &[(1, 1)], now);
        assert_eq!(found[&1].counts(), (0, 2, 0));
    }

    /// The target is behind: it has what the source had a look ago.
    #[test]
    fn late_target_is_equal() {
        let now = Instant::now();
        let mut row = first(&[2], &[1], now);
        assert_eq!(row.look(image(Some(3)), image(Some(2)), now + SETTLE, SETTLE), State::Equal);
    }

    #[test]
    fn stable_difference_is_confirmed_after_a_while_only() {
        let now = Instant::now();
        let mut row = first(&[2], &[1], now);
        assert_eq!(row.look(image(Some(2)), image(Some(1)), now + SETTLE / 2, SETTLE), State::Open);
        assert_eq!(
            row.look(image(Some(2)), image(Some(1)), now + SETTLE, SETTLE),
            State::Different
        );
    }

    #[test]
    fn changing_row_stays_open_until_it_stands_still() {
        let now = Instant::now();
        let mut row = first(&[2], &[1], now);
        assert_eq!(row.look(image(Some(4)), image(Some(3)), now + SETTLE, SETTLE), State::Open);
        assert_eq!(row.look(image(Some(6)), image(Some(5)), now + SETTLE * 2, SETTLE), State::Open);
        assert_eq!(
            row.look(image(Some(6)), image(Some(5)), now + SETTLE * 3, SETTLE),
            State::Different
        );
    }

    #[test]
    fn images_are_found_among_rows_in_order() {
        let pairs = [(1, 4), (2, 1), (2, 1), (2, 7), (5, 0)];
        assert_eq!(Image::of(1, &pairs), Image::One(4));
        assert_eq!(Image::of(2, &pairs), Image::Many([1, 1, 7].into()));
        assert_eq!(Image::of(3, &pairs), Image::None);
        assert_eq!(Image::of(9, &pairs), Image::None);
        let several = Image::Many([1, 1, 7].into());
        assert_eq!(without_common(&several, &Image::One(1)), (vec![1, 7], vec![]));
        assert_eq!(without_common(&Image::One(3), &several), (vec![3], vec![1, 1, 7]));
    }

    #[test]
    fn row_that_went_from_both_is_equal() {
        let now = Instant::now();
        let mut row = first(&[2], &[1], now);
        assert_eq!(row.look(image(None), image(None), now, SETTLE), State::Equal);
    }
}
