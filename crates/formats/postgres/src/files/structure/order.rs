//! The order of keys in a btree index, of types whose order is known without a server.
//!
//! | operator family | types | order |
//! | --- | --- | --- |
//! | 1976 integer | int2, int4, int8 | of numbers |
//! | 1989 oid | oid | of numbers without sign |
//! | 1970 float | float4, float8 | of numbers; NaN is equal to itself and above all others |
//! | 434 datetime, 1996 time, 2099 money | date, timestamp, timestamptz, time, money | of the integers that they are |
//! | 2968 uuid, 424 bool, 429 char, 3253 `pg_lsn` | | of bytes; of a number |
//! | 428 bytea, 2095 text pattern | bytea, text, varchar | of bytes, a beginning before the whole |
//! | 1994 text | text, varchar, name in the collations C and POSIX | the same |
//!
//! Other collations sort as the libraries of the server's machine do, of a version that only
//! that machine has. The numbers of families are fixed in `src/include/catalog/pg_opfamily.dat`.

use std::cmp::Ordering;

use crate::files::catalogue::columns::{Column, IndexShape, KeyShape};
use crate::files::control::u32_at;
use crate::files::structure::values::Value;

/// `C` and `POSIX`.
const BYTES_COLLATIONS: [u32; 2] = [950, 951];

/// How two values of a column compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Signed(usize),
    Unsigned(usize),
    Float(usize),
    Bytes,
}

/// One key of an index.
#[derive(Debug, Clone, Copy)]
struct Key {
    order: Order,
    is_descending: bool,
    nulls_first: bool,
}

/// The keys of an index whose order is known, up to the first of which it is not.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    known: Vec<Key>,
    /// All of them are.
    pub(super) is_whole: bool,
}

/// How two keys compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    /// By a column whose order is known.
    Known(Ordering),
    /// They are equal as far as is known.
    Open,
}

impl Keys {
    /// `columns` are those of the index.
    pub(super) fn of(shape: &IndexShape, columns: &[Column]) -> Self {
        let known: Vec<Key> = shape
            .keys
            .iter()
            .zip(columns)
            .map_while(|(key, column)| {
                let order = order(key, column)?;
                let KeyShape { is_descending, nulls_first, .. } = *key;
                Some(Key { order, is_descending, nulls_first })
            })
            .collect();
        let is_whole = known.len() == shape.key_count;
        Self { known, is_whole }
    }

    /// True if not even the first is.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Compares the values that both have.
    pub(super) fn compare(&self, one: &[Value<'_>], other: &[Value<'_>]) -> Compared {
        for (index, key) in self.known.iter().enumerate() {
            let (Some(one), Some(other)) = (one.get(index), other.get(index)) else {
                return Compared::Open;
            };
            let found = match (one, other) {
                (Value::Null, Value::Null) => Ordering::Equal,
                (Value::Null, _) if key.nulls_first => Ordering::Less,
                (Value::Null, _) => Ordering::Greater,
                (_, Value::Null) if key.nulls_first => Ordering::Greater,
                (_, Value::Null) => Ordering::Less,
                (Value::Plain(one), Value::Plain(other)) => {
                    let found = key.order.compare(one, other);
                    if key.is_descending { found.reverse() } else { found }
                }
                _ => return Compared::Open,
            };
            if found != Ordering::Equal {
                return Compared::Known(found);
            }
        }
        if self.is_whole { Compared::Known(Ordering::Equal) } else { Compared::Open }
    }
}

fn order(key: &KeyShape, column: &Column) -> Option<Order> {
    let bytes = usize::try_from(column.bytes).unwrap_or(0);
    let order = match (key.family, key.input) {
        (1976, 21) => Order::Signed(2),
        (1976 | 434, 23 | 1082) => Order::Signed(4),
        (1976, 20) | (434, 1114 | 1184) | (1996, 1083) | (2099, 790) => Order::Signed(8),
        (1989, 26) => Order::Unsigned(4),
        (3253, 3220) => Order::Unsigned(8),
        (424, 16) | (429, 18) => Order::Unsigned(1),
        (1970, 700) => Order::Float(4),
        (1970, 701) => Order::Float(8),
        (2968, 2950) | (428, 17) | (2095, 25) => Order::Bytes,
        (1994, 25 | 19) if BYTES_COLLATIONS.contains(&key.collation) => Order::Bytes,
        _ => return None,
    };
    let fits = match order {
        Order::Signed(width) | Order::Unsigned(width) | Order::Float(width) => bytes == width,
        Order::Bytes => true,
    };
    fits.then_some(order)
}

impl Order {
    fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Self::Signed(width) => signed(one, width).cmp(&signed(other, width)),
            Self::Unsigned(width) => unsigned(one, width).cmp(&unsigned(other, width)),
            Self::Float(width) => floats(float(one, width), float(other, width)),
            Self::Bytes => one.cmp(other),
        }
    }
}

fn unsigned(bytes: &[u8], width: usize) -> u64 {
    let mut all = [0; 8];
    for (to, from) in all.iter_mut().zip(bytes.iter().take(width)) {
        *to = *from;
    }
    u64::from_le_bytes(all)
}

fn signed(bytes: &[u8], width: usize) -> i64 {
    let shift = u32::try_from(8_usize.saturating_sub(width).saturating_mul(8)).unwrap_or(0);
    // The sign moves to the top, and back with its copies.
    unsigned(bytes, width).wrapping_shl(shift).cast_signed().wrapping_shr(shift)
}

fn float(bytes: &[u8], width: usize) -> f64 {
    match width {
        4 => f64::from(f32::from_bits(u32_at(bytes, 0).unwrap_or(0))),
        _ => f64::from_bits(unsigned(bytes, 8)),
    }
}

fn floats(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(order: Order) -> Keys {
        let key = Key { order, is_descending: false, nulls_first: false };
        Keys { known: vec![key], is_whole: true }
    }

    fn compare(order: Order, one: &[u8], other: &[u8]) -> Ordering {
        match key(order).compare(&[Value::Plain(one)], &[Value::Plain(other)]) {
            Compared::Known(found) => found,
            Compared::Open => panic!("open"),
        }
    }

    #[test]
    fn values_compare_as_servers_compare_them() {
        use Ordering::{Equal, Greater, Less};
        for (one, other, expected) in
            [(-1_i32, 1, Less), (7, 7, Equal), (i32::MAX, i32::MIN, Greater)]
        {
            let found = compare(Order::Signed(4), &one.to_le_bytes(), &other.to_le_bytes());
            assert_eq!(found, expected, "{one} {other}");
        }
        assert_eq!(compare(Order::Signed(2), &(-2_i16).to_le_bytes(), &3_i16.to_le_bytes()), Less);
        assert_eq!(compare(Order::Signed(8), &i64::MIN.to_le_bytes(), &0_i64.to_le_bytes()), Less);
        assert_eq!(compare(Order::Unsigned(4), &u32::MAX.to_le_bytes(), &[0; 4]), Greater);
        for (one, other, expected) in [
            (f64::NAN, f64::INFINITY, Greater),
            (f64::NAN, f64::NAN, Equal),
            (-0.0, 0.0, Equal),
            (-1.5, 1.0, Less),
        ] {
            let found = compare(Order::Float(8), &one.to_le_bytes(), &other.to_le_bytes());
            assert_eq!(found, expected, "{one} {other}");
        }
        assert_eq!(compare(Order::Bytes, b"ab", b"abc"), Less);
        assert_eq!(compare(Order::Bytes, b"b", b"abc"), Greater);
    }

    #[test]
    fn nulls_and_descending_keys_stand_where_the_index_says() {
        let of = |is_descending, nulls_first| {
            let key = Key { order: Order::Bytes, is_descending, nulls_first };
            Keys { known: vec![key], is_whole: true }
        };
        let (null, a, b) = ([Value::Null], [Value::Plain(b"a")], [Value::Plain(b"b")]);
        assert_eq!(of(false, false).compare(&null, &a), Compared::Known(Ordering::Greater));
        assert_eq!(of(true, true).compare(&null, &a), Compared::Known(Ordering::Less));
        assert_eq!(of(true, true).compare(&b, &a), Compared::Known(Ordering::Less));
        assert_eq!(of(false, true).compare(&null, &null), Compared::Known(Ordering::Equal));
        assert_eq!(of(false, true).compare(&[Value::Compressed(9)], &a), Compared::Open);
        // A shorter key of an inner page ends there.
        assert_eq!(of(false, true).compare(&[], &a), Compared::Open);
    }
}
