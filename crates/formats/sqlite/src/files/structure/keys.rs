//! Values as keys: their order, and a hash under which equal values are equal.
//!
//! An integer and a floating-point number of the same value are the same here, since SQLite stores
//! one as the other where it saves room. Order: NULL, numbers, text, blobs.

#![deny(clippy::arithmetic_side_effects)]

use std::cmp::Ordering;

use super::definition::Collation;
use crate::page::record::Value;

/// The limits between which every integer has a place in 64 bits.
const INTEGER_END: f64 = 9_223_372_036_854_775_808.0;

/// The order of two values; `None` where a function of the application would say.
#[must_use]
pub fn compare(
    one: &Value<'_>,
    other: &Value<'_>,
    collation: Collation,
    is_utf8: bool,
) -> Option<Ordering> {
    Some(match (one, other) {
        (Value::Text(one), Value::Text(other)) => compare_text(one, other, collation, is_utf8)?,
        (Value::Blob(one), Value::Blob(other)) => one.cmp(other),
        (Value::Integer(one), Value::Integer(other)) => one.cmp(other),
        (Value::Real(one), Value::Real(other)) => one.partial_cmp(other)?,
        (Value::Integer(one), Value::Real(other)) => compare_mixed(*one, *other)?,
        (Value::Real(one), Value::Integer(other)) => compare_mixed(*other, *one)?.reverse(),
        _ => rank(one).cmp(&rank(other)),
    })
}

fn rank(value: &Value<'_>) -> u8 {
    match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 1,
        Value::Text(_) => 2,
        Value::Blob(_) => 3,
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the value is within the limits")]
fn compare_mixed(one: i64, other: f64) -> Option<Ordering> {
    if other.is_nan() {
        return None;
    }
    if other >= INTEGER_END {
        return Some(Ordering::Less);
    }
    if other < -INTEGER_END {
        return Some(Ordering::Greater);
    }
    let whole = one.cmp(&(other.trunc() as i64));
    Some(whole.then(0.0_f64.partial_cmp(&other.fract())?))
}

fn compare_text(one: &[u8], other: &[u8], collation: Collation, is_utf8: bool) -> Option<Ordering> {
    match collation {
        Collation::Binary => Some(one.cmp(other)),
        // SQLite converts other encodings first, and ends at a zero byte.
        _ if !is_utf8 || one.contains(&0) || other.contains(&0) => None,
        Collation::NoCase => {
            let folded = |text: &[u8]| -> Vec<u8> { text.to_ascii_lowercase() };
            Some(folded(one).cmp(&folded(other)))
        }
        Collation::RightTrim => Some(trimmed(one).cmp(trimmed(other))),
        Collation::Other => None,
    }
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let Some((b' ', rest)) = text.split_last() {
        text = rest;
    }
    text
}

/// A hash of values one behind the other. Not against those who would make two lists meet: what it
/// meets is damage.
#[derive(Debug, Clone, Copy)]
pub struct KeyHash {
    low: u64,
    high: u64,
}

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;
const THIRD: u64 = 0xa076_1d64_78bd_642f;
const FOURTH: u64 = 0xe703_7ed1_a0b4_28db;

impl Default for KeyHash {
    fn default() -> Self {
        Self { low: FIRST, high: SECOND }
    }
}

impl KeyHash {
    fn word(&mut self, word: u64) {
        self.low = fold(self.low ^ word, THIRD ^ word.rotate_left(32));
        self.high = fold(self.high ^ word.rotate_left(17), FOURTH).wrapping_add(self.low);
    }

    fn bytes(&mut self, kind: u64, bytes: &[u8]) {
        self.word(kind ^ u64::try_from(bytes.len()).unwrap_or(u64::MAX) << 8);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.word(u64::from_le_bytes(last));
    }

    /// Goes on with a value.
    #[allow(clippy::cast_possible_truncation, reason = "the value is within the limits")]
    pub fn add(&mut self, value: &Value<'_>) {
        match value {
            Value::Null => self.word(0),
            Value::Integer(value) => self.bytes(1, &value.to_le_bytes()),
            Value::Real(value)
                if value.fract() == 0.0 && (-INTEGER_END..INTEGER_END).contains(value) =>
            {
                self.bytes(1, &(*value as i64).to_le_bytes());
            }
            Value::Real(value) => self.bytes(2, &value.to_bits().to_le_bytes()),
            Value::Text(text) => self.bytes(3, text),
            Value::Blob(blob) => self.bytes(4, blob),
        }
    }

    /// The hash of all values.
    #[must_use]
    pub fn finish(mut self) -> u128 {
        self.word(SECOND);
        u128::from(self.low) << 64 | u128::from(fold(self.high, FIRST))
    }
}

fn fold(one: u64, other: u64) -> u64 {
    let (low, high) = one.widening_product(other);
    low ^ high
}

/// Both halves of a product.
trait Widening: Sized {
    fn widening_product(self, other: Self) -> (Self, Self);
}

impl Widening for u64 {
    #[allow(clippy::cast_possible_truncation, reason = "the halves of 128 bits")]
    fn widening_product(self, other: Self) -> (Self, Self) {
        let product = u128::from(self).wrapping_mul(u128::from(other));
        (product as Self, (product >> 64) as Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(one: Value<'_>, other: Value<'_>, collation: Collation) -> Option<Ordering> {
        compare(&one, &other, collation, true)
    }

    #[test]
    fn values_are_in_the_order_of_sqlite() {
        use Collation::{Binary, NoCase, Other, RightTrim};
        use Value::{Blob, Integer, Null, Real, Text};
        let ascending = [
            Null,
            Real(-1e300),
            Integer(i64::MIN),
            Integer(1),
            Real(1.5),
            Integer(2),
            Integer(i64::MAX),
            Real(9.3e18),
            Text(b"A"),
            Text(b"a"),
            Blob(b"A"),
        ];
        for (index, one) in ascending.iter().enumerate() {
            for (at, other) in ascending.iter().enumerate() {
                assert_eq!(
                    compare(one, other, Binary, true),
                    Some(index.cmp(&at)),
                    "{one:?} {other:?}"
                );
            }
        }
        assert_eq!(order(Integer(2), Real(2.0), Binary), Some(Ordering::Equal));
        assert_eq!(order(Text(b"aB"), Text(b"Ab"), NoCase), Some(Ordering::Equal));
        assert_eq!(order(Text(b"_"), Text(b"A"), NoCase), Some(Ordering::Less));
        assert_eq!(order(Text(b"a  "), Text(b"a"), RightTrim), Some(Ordering::Equal));
        assert_eq!(order(Text(b"a"), Text(b"b"), Other), None);
    }

    #[test]
    fn equal_values_have_equal_hashes_and_others_do_not() {
        let hash = |values: &[Value<'_>]| {
            let mut hash = KeyHash::default();
            values.iter().for_each(|value| hash.add(value));
            hash.finish()
        };
        assert_eq!(hash(&[Value::Integer(5)]), hash(&[Value::Real(5.0)]));
        assert_eq!(hash(&[Value::Integer(0)]), hash(&[Value::Real(-0.0)]));
        let lists: [&[Value<'_>]; 9] = [
            &[],
            &[Value::Null],
            &[Value::Null, Value::Null],
            &[Value::Integer(5)],
            &[Value::Real(5.5)],
            &[Value::Text(b"5")],
            &[Value::Blob(b"5")],
            &[Value::Text(b"ab"), Value::Text(b"c")],
            &[Value::Text(b"a"), Value::Text(b"bc")],
        ];
        for (index, one) in lists.iter().enumerate() {
            for other in lists.iter().skip(index + 1) {
                assert_ne!(hash(one), hash(other), "{one:?} {other:?}");
            }
        }
    }
}
