//! Bounds of parts for integer keys, found without counting rows.
//!
//! A server that is asked for the key of the n-th row counts rows, which takes an eighth of what
//! sending them does, or more. Between keys `a` and `b` there are at most `b - a` rows, so stepping
//! the key by the size of a part is always enough; where most numbers are in use, the part has
//! about as many rows as it should.

use super::look::{Scope, Side};
use super::state::Bound;
use crate::row::{Tag, Value, number};
use crate::table::Column;

/// The least share of the numbers of the last part that were rows: 3 of 4. One that is at the
/// end of the table, or has gaps, is followed by one whose rows are counted.
const IN_USE: (i128, i128) = (3, 4);

/// How far the next part goes.
#[derive(Debug)]
pub(super) struct Stride {
    /// True if both sides have a key of one whole number, and of nothing else.
    is_whole: bool,
    /// True if most numbers of the last part were rows.
    is_dense: bool,
}

impl Stride {
    /// That of two sides of which nothing was read yet.
    pub fn of(source: &Side<'_>, target: &Side<'_>) -> Self {
        let is_whole = |side: &Side<'_>| match side.table.key.as_slice() {
            [place] if side.key_count == 1 => {
                side.columns.first().is_some_and(|(first, _)| first == place)
                    && side.table.columns.get(*place).is_some_and(Column::is_whole)
            }
            _ => false,
        };
        Self { is_whole: is_whole(source) && is_whole(target), is_dense: false }
    }

    /// The last key of a part of at most `rows` rows; none if it must be asked for.
    pub fn next(&self, after: &Bound, end: &Bound, rows: u64) -> Bound {
        let next = whole(after)?.checked_add(i128::from(rows))?;
        let is_before_end = end.is_none() || whole(end)? > next;
        // Beyond that, some servers no longer take a number for one of the column's type.
        let next = i64::try_from(next).ok()?;
        (self.is_whole && self.is_dense && is_before_end).then(|| bound(next))
    }

    /// True if both sides have a key of one whole number.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// A part had `rows` rows on the side that has more.
    pub fn seen(&mut self, part: &Scope, rows: u64) {
        let numbers = match part {
            Scope::Range { after, upto } => {
                whole(upto).zip(whole(after)).map(|(upto, after)| upto.saturating_sub(after))
            }
            Scope::Parts(..) => None,
        };
        let (share, of) = IN_USE;
        self.is_dense = rows > 0
            && numbers
                .is_some_and(|numbers| i128::from(rows) * of >= numbers.saturating_mul(share));
    }
}

/// A key of one whole number.
pub(super) fn bound(number: i64) -> Vec<Value> {
    let mut payload = Vec::new();
    number::write_integer(&mut payload, number < 0, number.unsigned_abs());
    vec![Value { tag: Tag::Number, payload }]
}

/// The whole number that a key is.
pub(super) fn whole(bound: &Bound) -> Option<i128> {
    match bound.as_deref()? {
        [value] => number::whole(&value.payload),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: &str) -> Bound {
        Some(vec![Value { tag: Tag::Number, payload: number.as_bytes().to_vec() }])
    }

    fn after(begin: &str, end: &str, rows: u64) -> Stride {
        let mut stride = Stride { is_whole: true, is_dense: false };
        stride.seen(&Scope::Range { after: key(begin), upto: key(end) }, rows);
        stride
    }

    #[test]
    fn dense_parts_are_followed_by_as_many_numbers() {
        let dense = after("-5", "95", 75);
        assert_eq!(dense.next(&key("95"), &None, 100), key("195"));
        assert_eq!(dense.next(&key("-5"), &None, 5), key("0"));
        assert_eq!(dense.next(&key("9e2"), &None, 100), key("1e3"));
        assert_eq!(dense.next(&key("95"), &key("196"), 100), key("195"));
    }

    #[test]
    fn rows_are_counted_where_numbers_tell_nothing() {
        let dense = after("0", "100", 100);
        // Nothing was read, the end is near, or the number is none that the column holds.
        assert_eq!(dense.next(&None, &None, 100), None);
        assert_eq!(dense.next(&key("95"), &key("195"), 100), None);
        assert_eq!(dense.next(&key("9223372036854775800"), &None, 100), None);
        assert_eq!(dense.next(&key("15e-1"), &None, 100), None);
        for (end, rows) in [("100", 74), ("1e12", 100), ("100", 0)] {
            assert_eq!(after("0", end, rows).next(&key("100"), &None, 100), None, "{end} {rows}");
        }
        let stride = Stride { is_whole: false, is_dense: true };
        assert_eq!(stride.next(&key("95"), &None, 100), None);
    }
}
