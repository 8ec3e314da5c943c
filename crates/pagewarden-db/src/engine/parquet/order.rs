//! The order of a table by a key, if its rows are in it: then a range of the key is a range of rows.
//!
//! The key's columns are gone through once, and the key of each 1024th row is kept, of fewer in large tables. Files are put
//! in the order of their first keys. Keys are whole numbers of the columns' units (a decimal of two
//! places counts hundredths); a key may stand twice, but not be NULL.

use std::cmp::Ordering;

use super::cursor::{Cursor, Trouble};
use super::folder::{Folder, Place, Values};
use crate::row::{Value, number};

/// Rows between two keys that are kept, at first.
const STEP: u64 = 1024;
/// Keys that are kept.
const KEPT_MAX: usize = 1 << 16;

/// Rows in the order of a key.
#[derive(Debug)]
pub(super) struct Order {
    /// The key's columns, by their places in the table.
    pub key: Vec<usize>,
    /// The power of ten by which each is divided.
    scales: Vec<u32>,
    step: u64,
    kept: Vec<Vec<i128>>,
}

/// A bound of a range: the first values of a key, each rounded down.
type Bound = Vec<i128>;

impl Order {
    /// Goes through the key; none if the rows are not in its order, or it is no key for ranges.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn find(folder: &mut Folder, key: &[usize]) -> Result<Option<Self>, Trouble> {
        let Some(scales) = scales(folder, key) else { return Ok(None) };
        sort_files(folder, key)?;
        let mut order = Self { key: key.to_vec(), scales, step: STEP, kept: Vec::new() };
        let mut cursor = Cursor::new(key.to_vec());
        let (mut last, mut next) = (Vec::new(), Vec::new());
        let mut row = 0_u64;
        while cursor.has_next(folder)? {
            if cursor.take_whole(&mut next).is_none() || (row > 0 && next < last) {
                return Ok(None);
            }
            if row.is_multiple_of(order.step) {
                order.keep(&next);
            }
            std::mem::swap(&mut last, &mut next);
            row += 1;
        }
        Ok(Some(order))
    }

    fn keep(&mut self, key: &[i128]) {
        self.kept.push(key.to_vec());
        if self.kept.len() >= KEPT_MAX {
            let mut number = 0_usize;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.step *= 2;
        }
    }

    /// A bound by the values of a key; none if they are no finite numbers.
    pub fn bound(&self, values: &[Value]) -> Option<Bound> {
        let mut bound = Vec::new();
        for (value, scale) in values.iter().zip(&self.scales) {
            let (negative, digits, exponent) = number::parts(&value.payload)?;
            let (whole, is_exact) = scaled(negative, digits, exponent + i64::from(*scale));
            bound.push(whole);
            if !is_exact {
                // No key has this value: what begins with a smaller one comes before all of it.
                break;
            }
        }
        Some(bound)
    }

    /// How many rows have keys up to a bound, by a cursor over the key.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn rows_upto(
        &self,
        folder: &Folder,
        cursor: &mut Cursor,
        bound: &Bound,
    ) -> Result<u64, Trouble> {
        let is_upto = |key: &Vec<i128>| compare(key, bound) != Ordering::Greater;
        let Some(kept) = self.kept.partition_point(is_upto).checked_sub(1) else { return Ok(0) };
        let mut row = kept as u64 * self.step;
        if !cursor.may_go_to(row) {
            *cursor = Cursor::new(self.key.clone());
        }
        cursor.go_to(folder, row)?;
        let mut key = Vec::new();
        while cursor.has_next(folder)? {
            if cursor.take_whole(&mut key).is_none() || !is_upto(&key) {
                break;
            }
            row += 1;
        }
        Ok(row)
    }
}

/// A key beside a bound: equal if it begins with it.
fn compare(key: &[i128], bound: &[i128]) -> Ordering {
    key.iter()
        .zip(bound)
        .map(|(one, other)| one.cmp(other))
        .find(|it| it.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// The power of ten of each column, if all files agree on it.
fn scales(folder: &Folder, key: &[usize]) -> Option<Vec<u32>> {
    let of = |column: &usize| {
        let mut scale = None;
        for file in &folder.files {
            let Some(Values::Column(Place { kind, .. })) = file.values.get(*column) else {
                return None;
            };
            if !kind.is_exact() || scale.is_some_and(|scale| scale != kind.scale()) {
                return None;
            }
            scale = Some(kind.scale());
        }
        scale
    };
    (!key.is_empty()).then(|| key.iter().map(of).collect())?
}

/// Puts files in the order of their first keys. Empty files come first.
fn sort_files(folder: &mut Folder, key: &[usize]) -> Result<(), Trouble> {
    let mut firsts = Vec::new();
    let mut begin = 0;
    let mut cursor = Cursor::new(key.to_vec());
    for file in &folder.files {
        let mut first = Vec::new();
        if file.rows > 0 {
            cursor.go_to(folder, begin)?;
            if cursor.has_next(folder)? {
                // A NULL is found once more where it matters.
                let _ = cursor.take_whole(&mut first);
            }
        }
        firsts.push(first);
        begin += file.rows;
    }
    let mut files: Vec<_> = firsts.into_iter().zip(std::mem::take(&mut folder.files)).collect();
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    folder.files = files.into_iter().map(|(_, file)| file).collect();
    Ok(())
}

/// Digits and a power of ten as a whole number, rounded down, and whether that is exact. What is
/// beyond the type is its end.
fn scaled(negative: bool, digits: &[u8], exponent: i64) -> (i128, bool) {
    let end = if negative { i128::MIN } else { i128::MAX };
    let mut magnitude = 0_i128;
    let mut exact = true;
    let whole_digits = i64::try_from(digits.len()).unwrap_or(i64::MAX).saturating_add(exponent);
    for (digit, place) in digits.iter().zip(0_i64..) {
        if place >= whole_digits {
            exact &= *digit == b'0';
            continue;
        }
        let next = magnitude.checked_mul(10);
        let next = next.and_then(|it| it.checked_add(i128::from(digit.saturating_sub(b'0'))));
        match next {
            Some(next) => magnitude = next,
            None => return (end, false),
        }
    }
    let is_zero = digits.iter().all(|digit| *digit == b'0');
    for _ in 0..exponent.max(0) {
        match magnitude.checked_mul(10) {
            Some(next) if !is_zero => magnitude = next,
            Some(_) => break,
            None => return (end, false),
        }
    }
    match (negative, exact) {
        (false, exact) => (magnitude, exact),
        (true, true) => (-magnitude, true),
        (true, false) => (-magnitude - 1, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Tag;

    #[test]
    fn bounds_are_rounded_down() {
        for (negative, digits, exponent, expected) in [
            (false, "12", 0, (12, true)),
            (false, "12", 3, (12_000, true)),
            (false, "125", -1, (12, false)),
            (true, "125", -1, (-13, false)),
            (true, "120", -1, (-12, true)),
            (false, "5", -4, (0, false)),
            (true, "5", -4, (-1, false)),
            (false, "0", 400, (0, true)),
            (false, "1", 400, (i128::MAX, false)),
            (true, "1", 400, (i128::MIN, false)),
        ] {
            assert_eq!(scaled(negative, digits.as_bytes(), exponent), expected, "{digits}");
        }
    }

    #[test]
    fn bound_between_two_values_ends_the_key() {
        let order = Order { key: vec![0, 1], scales: vec![0, 2], step: 1, kept: Vec::new() };
        let value = |text: &str| Value { tag: Tag::Number, payload: text.as_bytes().to_vec() };
        assert_eq!(order.bound(&[value("7"), value("15e-1")]), Some(vec![7, 150]));
        assert_eq!(order.bound(&[value("75e-1"), value("3")]), Some(vec![7]));
        assert_eq!(order.bound(&[value("NaN")]), None);
        assert_eq!(compare(&[7, 3], &[7]), Ordering::Equal);
        assert_eq!(compare(&[8, 3], &[7]), Ordering::Greater);
    }
}
