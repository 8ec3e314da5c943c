//! Rows that were not alike at the first look, and what further looks make of them.
//!
//! On live tables a difference may be a change that has not arrived yet. A row counts
//! as equal once the target's is one that the source was seen to have. It counts as
//! different once both sides have stood still for a while and are not alike. What keeps
//! changing stays unresolved; it is neither.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::look::Pair;
use crate::row::record::Hash;

/// The rows of one key on one side, by their hashes, in order: one, or none, or several
/// where nothing forbids it.
pub type Image = Vec<Hash>;

/// A key whose rows were not alike.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// What the source was seen to have; the last one is what it had last.
    witnessed: Vec<Image>,
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
        const NOTHING: &Image = &Vec::new();
        self.witnessed.last().unwrap_or(NOTHING)
    }

    /// What the target has.
    pub fn target(&self) -> &Image {
        &self.target
    }

    /// Takes another look in.
    pub fn look(&mut self, source: Image, target: Image, now: Instant, settle: Duration) -> State {
        let stood_still = *self.source() == source && self.target == target;
        if !self.witnessed.contains(&source) {
            self.witnessed.push(source);
        } else if let Some(place) = self.witnessed.iter().position(|image| *image == source) {
            // What it has now comes last.
            let current = self.witnessed.remove(place);
            self.witnessed.push(current);
        }
        self.target = target;
        if self.witnessed.contains(&self.target) {
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
        let (source, target) = without_common(self.source(), &self.target);
        let changed = source.len().min(target.len());
        let count = |image: &Image| (image.len() - changed) as u64;
        (changed as u64, count(&source), count(&target))
    }
}

/// What each of two images has that the other has not.
pub fn without_common(one: &Image, other: &Image) -> (Image, Image) {
    let (mut of_one, mut of_other) = (Vec::new(), other.clone());
    for hash in one {
        match of_other.iter().position(|known| known == hash) {
            Some(place) => {
                of_other.swap_remove(place);
            }
            None => of_one.push(*hash),
        }
    }
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
        let image = |group: Option<&[Pair]>| -> Image {
            group.unwrap_or_default().iter().map(|pair| pair.1).collect()
        };
        let source = image(if one == Some(next) { of_source.next() } else { None });
        let target = image(if other == Some(next) { of_target.next() } else { None });
        if source != target {
            found.insert(next, Candidate { witnessed: vec![source], target, since: now });
        }
    }
}

/// What a look found of each key.
pub fn images(pairs: &[Pair]) -> HashMap<Hash, Image> {
    let mut images: HashMap<Hash, Image> = HashMap::new();
    for (key, hash) in pairs {
        images.entry(*key).or_default().push(*hash);
    }
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(2);

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
        assert_eq!(row.look(vec![3], vec![2], now + SETTLE, SETTLE), State::Equal);
    }

    #[test]
    fn stable_difference_is_confirmed_after_a_while_only() {
        let now = Instant::now();
        let mut row = first(&[2], &[1], now);
        assert_eq!(row.look(vec![2], vec![1], now + SETTLE / 2, SETTLE), State::Open);
        assert_eq!(row.look(vec![2], vec![1], now + SETTLE, SETTLE), State::Different);
    }

    #[test]
    fn changing_row_stays_open_until_it_stands_still() {
        let now = Instant::now();
        let mut row = first(&[2], &[1], now);
        assert_eq!(row.look(vec![4], vec![3], now + SETTLE, SETTLE), State::Open);
        assert_eq!(row.look(vec![6], vec![5], now + SETTLE * 2, SETTLE), State::Open);
        assert_eq!(row.look(vec![6], vec![5], now + SETTLE * 3, SETTLE), State::Different);
    }

    #[test]
    fn row_that_went_from_both_is_equal() {
        let now = Instant::now();
        let mut row = first(&[2], &[1], now);
        assert_eq!(row.look(vec![], vec![], now, SETTLE), State::Equal);
    }
}
