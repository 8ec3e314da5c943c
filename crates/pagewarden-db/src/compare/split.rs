//! The parts into which rows fall when all of a table is summed at once.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::look::{BUCKETS, bucket};
use super::state::Bound;
use super::stride;
use crate::row::record::Hash;
use crate::row::{Row, Tag, number};

/// The most ranges.
const PARTS_MAX: u64 = 1 << 16;

/// How rows fall into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// All of them are one part.
    Whole,
    /// By the hash of the key.
    Buckets,
    /// By ranges of the key, which is one whole number.
    Ranges(Ranges),
}

impl Split {
    /// How many parts there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Whole => 1,
            Self::Buckets => BUCKETS,
            Self::Ranges(ranges) => ranges.count,
        }
    }

    /// The part of a row, of whose key this is the hash.
    pub fn part(&self, row: &Row, key: Hash) -> usize {
        match self {
            Self::Whole => 0,
            Self::Buckets => bucket(key),
            Self::Ranges(ranges) => {
                let key = row.field(0).filter(|field| field.tag == Tag::Number);
                let key = key.and_then(|field| number::whole(field.payload));
                // Numbers that are none of 64 bits belong to the ranges at the ends.
                let key = key.map_or(i64::MIN, |key| {
                    i64::try_from(key).unwrap_or(if key < 0 { i64::MIN } else { i64::MAX })
                });
                ranges.of(key).unwrap_or(0)
            }
        }
    }

    /// The ranges of the key in which some parts are, those side by side as one; none if they are
    /// not known by the key.
    pub(super) fn bounds(&self, wanted: &HashSet<usize>) -> Option<Vec<(Bound, Bound)>> {
        let Self::Ranges(ranges) = self else { return None };
        let mut sorted: Vec<usize> = wanted.iter().copied().collect();
        sorted.sort_unstable();
        let groups = sorted.chunk_by(|one, next| one + 1 == *next);
        let bounds = groups.filter_map(|group| {
            let (first, last) = (group.first()?, group.last()?);
            let after = first.checked_sub(1).and_then(|before| ranges.upto(before));
            Some((after, ranges.upto(*last)))
        });
        Some(bounds.collect())
    }

    /// The same as numbers: behind the first, and up to the second.
    pub fn spans(&self, wanted: &HashSet<usize>) -> Option<Vec<(Option<i64>, Option<i64>)>> {
        let number =
            |bound: Bound| stride::whole(&bound).and_then(|number| i64::try_from(number).ok());
        let bounds = self.bounds(wanted)?.into_iter();
        Some(bounds.map(|(after, upto)| (number(after), number(upto))).collect())
    }
}

/// Ranges of the key of equal width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranges {
    /// Rows up to this key are known already.
    after: Option<i64>,
    /// The first number.
    first: i64,
    /// Numbers of a range.
    width: u64,
    /// How many there are.
    pub(super) count: usize,
}

impl Ranges {
    /// Those of two sides' numbers, as many as it takes for each to have `part_rows` rows if all numbers are in use.
    pub fn new(after: Option<i64>, spans: [[i64; 2]; 2], rows: u64, part_rows: u64) -> Self {
        let [[one, one_last], [other, other_last]] = spans;
        let first = after.map_or(one.min(other), |after| after.saturating_add(1));
        let numbers = one_last.max(other_last).saturating_sub(first).max(0).unsigned_abs();
        let count = (rows / part_rows.max(1)).clamp(1, PARTS_MAX);
        // One more, for the division leaves a rest.
        let width = numbers / count + 1;
        let count = usize::try_from(numbers / width + 1).unwrap_or(1);
        Self { after, first, width, count }
    }

    /// The range of a key; none of one that is known already. Those before the first and behind
    /// the last, which are younger, belong to these.
    pub fn of(&self, key: i64) -> Option<usize> {
        if self.after.is_some_and(|after| key <= after) {
            return None;
        }
        let distance = key.max(self.first).wrapping_sub(self.first).cast_unsigned();
        Some(usize::try_from(distance / self.width).unwrap_or(usize::MAX).min(self.count - 1))
    }

    /// The last key of a range; none of the last, which has no end.
    pub(super) fn upto(&self, part: usize) -> Bound {
        if part + 1 >= self.count {
            return None;
        }
        let next = (part as u64 + 1).checked_mul(self.width)?;
        let last = i128::from(self.first) + i128::from(next) - 1;
        i64::try_from(last).ok().map(stride::bound)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stride;
    use super::*;

    #[test]
    fn every_key_is_in_the_range_that_is_said_to_have_it() {
        for (after, spans, rows) in [
            (None, [[1, 100], [5, 99]], 1_000_000),
            (Some(7), [[1, 1_000_000], [1, 900_000]], 1_000_000),
            (None, [[i64::MIN, i64::MAX], [0, 0]], u64::MAX),
            (None, [[i64::MAX - 3, i64::MAX], [i64::MAX; 2]], 100_000),
            (Some(i64::MAX), [[1, i64::MAX], [0, 0]], 100_000),
            (None, [[-10, -10]; 2], 0),
        ] {
            let parts = Ranges::new(after, spans, rows, 50_000);
            let ends: Vec<Option<i128>> =
                (0..parts.count).map(|part| stride::whole(&parts.upto(part))).collect();
            assert_eq!(ends.last(), Some(&None));
            assert!(ends.iter().rev().skip(1).all(Option::is_some), "{parts:?}");
            let inner = &ends[..parts.count - 1];
            assert!(inner.is_sorted_by(|one, next| one < next), "{parts:?}");
            let around = ends.iter().flatten().flat_map(|end| [end - 1, *end, end + 1]);
            let keys =
                around.chain([i64::MIN, -1, 0, 1, 7, 8, 99, 100, 1000, i64::MAX].map(i128::from));
            for key in keys.filter_map(|key| i64::try_from(key).ok()) {
                if after.is_some_and(|after| key <= after) {
                    assert_eq!(parts.of(key), None);
                    continue;
                }
                let part = parts.of(key).unwrap();
                let is_below = |end: &Option<i128>| end.is_some_and(|end| end < i128::from(key));
                assert_eq!(ends.partition_point(is_below), part, "{key} {parts:?}");
            }
        }
    }
}
