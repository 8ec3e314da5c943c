//! A record: the values of a row or of an index entry.
//!
//! Its header is its own length and a serial type for each value, all numbers of variable length;
//! behind it stand the values without a gap.
//!
//! | serial type | bytes | value |
//! |---|---|---|
//! | 0 | 0 | NULL |
//! | 1, 2, 3, 4, 5, 6 | 1, 2, 3, 4, 6, 8 | integer, big-endian, two's complement |
//! | 7 | 8 | floating point, big-endian |
//! | 8, 9 | 0 | 0 and 1 (schema format 4) |
//! | 10, 11 | | never in a file |
//! | even, from 12 on | (n - 12) / 2 | blob |
//! | odd, from 13 on | (n - 13) / 2 | text in the encoding of the database |
//!
//! Facts from SQLite's public documentation (`fileformat2.html`, 2.1).

#![deny(clippy::arithmetic_side_effects)]

use super::header::varint;

/// SQLite takes no record with a longer header.
pub const HEADER_BYTES_MAX: u64 = 98_307;

/// What a serial type stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serial {
    /// No value.
    Null,
    /// An integer of this number of bytes.
    Integer(u64),
    /// An integer that takes no bytes.
    Constant(i64),
    /// A floating-point number.
    Real,
    /// This number of bytes.
    Blob(u64),
    /// Text of this number of bytes.
    Text(u64),
}

impl Serial {
    /// `None` for what is never in a file.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1..=4 => Self::Integer(number),
            5 => Self::Integer(6),
            6 => Self::Integer(8),
            7 => Self::Real,
            8 => Self::Constant(0),
            9 => Self::Constant(1),
            10 | 11 => return None,
            even if even % 2 == 0 => Self::Blob(even.saturating_sub(12) / 2),
            odd => Self::Text(odd.saturating_sub(13) / 2),
        })
    }

    /// The bytes of its value.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Null | Self::Constant(_) => 0,
            Self::Real => 8,
            Self::Integer(bytes) | Self::Blob(bytes) | Self::Text(bytes) => bytes,
        }
    }
}

/// A value of a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Text in the encoding of the database.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

impl<'a> Value<'a> {
    fn read(serial: Serial, bytes: &'a [u8]) -> Option<Self> {
        Some(match serial {
            Serial::Null => Self::Null,
            Serial::Constant(value) => Self::Integer(value),
            Serial::Integer(_) => {
                let sign = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
                let mut value = [sign; 8];
                value.get_mut(8_usize.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
                Self::Integer(i64::from_be_bytes(value))
            }
            Serial::Real => Self::Real(f64::from_be_bytes(*bytes.first_chunk()?)),
            Serial::Blob(_) => Self::Blob(bytes),
            Serial::Text(_) => Self::Text(bytes),
        })
    }
}

/// The length of a record's header, from its first bytes.
#[must_use]
pub fn header_bytes(begin: &[u8]) -> Option<u64> {
    varint(begin).map(|(length, _)| length)
}

/// Takes a record's header apart, calls `see` with each serial type, and holds the length of all
/// values against `payload_bytes`, the length of the whole record. `begin` must hold the header.
///
/// # Errors
/// What is wrong.
pub fn walk_header(
    begin: &[u8],
    payload_bytes: u64,
    mut see: impl FnMut(Serial),
) -> Result<(), String> {
    let (length, mut at) = varint(begin).ok_or_else(|| "a record without a header".to_owned())?;
    if length > payload_bytes || length > HEADER_BYTES_MAX {
        return Err(format!("a record of {payload_bytes} bytes with a header of {length}"));
    }
    let end = usize::try_from(length).unwrap_or(usize::MAX);
    let header = begin.get(..end).ok_or_else(|| "a record that is cut".to_owned())?;
    let mut total = length;
    while at < end {
        let number = match header.get(at) {
            Some(byte) if *byte < 0x80 => {
                at = at.saturating_add(1);
                u64::from(*byte)
            }
            _ => {
                let number = header.get(at..).and_then(varint);
                let Some((number, bytes)) = number else {
                    return Err("a record's header ends inside a serial type".to_owned());
                };
                at = at.saturating_add(bytes);
                number
            }
        };
        let serial = Serial::of(number)
            .ok_or_else(|| format!("serial type {number}, which no record has"))?;
        total = total.saturating_add(serial.bytes());
        see(serial);
    }
    if at != end || total != payload_bytes {
        return Err(format!("a record of {payload_bytes} bytes whose values take {total}"));
    }
    Ok(())
}

/// The values of a record that is whole and that [`walk_header`] found sound; a value that is cut
/// ends them.
pub fn values(record: &[u8]) -> impl Iterator<Item = Value<'_>> {
    let (length, mut at) = varint(record).unwrap_or((0, 0));
    let end = usize::try_from(length).unwrap_or(usize::MAX);
    let mut place = end;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (number, bytes) = varint(record.get(at..end)?)?;
        at = at.checked_add(bytes)?;
        let serial = Serial::of(number)?;
        let next = place.checked_add(usize::try_from(serial.bytes()).ok()?)?;
        let value = Value::read(serial, record.get(place..next)?)?;
        place = next;
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(record: &[u8]) -> Option<String> {
        walk_header(record, record.len() as u64, |_| {}).err()
    }

    #[test]
    fn values_of_every_type_are_read() {
        let mut record = vec![8, 0, 1, 3, 8, 9, 19, 16, 0xfe, 0xff, 0xff, 0xfd];
        record.extend(b"abc");
        record.extend([1, 2]);
        assert_eq!(fault(&record), None);
        let read: Vec<_> = values(&record).collect();
        assert_eq!(
            read,
            [
                Value::Null,
                Value::Integer(-2),
                Value::Integer(-3),
                Value::Integer(0),
                Value::Integer(1),
                Value::Text(b"abc"),
                Value::Blob(&[1, 2])
            ]
        );
        let mut record = vec![2, 7];
        record.extend(1.5_f64.to_be_bytes());
        assert_eq!(values(&record).collect::<Vec<_>>(), [Value::Real(1.5)]);
    }

    #[test]
    fn lengths_that_do_not_add_up_are_faults() {
        assert_eq!(fault(&[2, 1, 5]), None);
        assert!(fault(&[2, 1]).is_some());
        assert!(fault(&[2, 1, 5, 5]).is_some());
        assert!(fault(&[9, 1, 5]).is_some());
        assert!(fault(&[2, 10]).is_some());
        assert!(fault(&[2, 0x81]).is_some());
        assert!(fault(&[]).is_some());
        assert!(values(&[2, 1]).next().is_none());
    }
}
