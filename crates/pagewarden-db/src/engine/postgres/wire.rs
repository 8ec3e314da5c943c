//! Values as PostgreSQL sends them in binary, by the `typsend` functions of its source.
//!
//! | type | bytes |
//! |---|---|
//! | bool, int2, int4, int8, oid | big-endian |
//! | float4, float8 | IEEE 754, big-endian |
//! | numeric | count of groups, weight, sign, scale (2 each), groups of four decimal digits |
//! | date | days from 2000-01-01 on; the extremes are infinity |
//! | time, timestamp, timestamptz | microseconds of the day, or from 2000-01-01 on |
//! | uuid | 16 |
//! | jsonb | version 1, text |
//! | text and its kin, bytea, json | as they are |

use crate::row::column::{Unit, append_day_and_time};
use crate::row::{Row, Tag, number, time};
use crate::table::{Column, Form};

/// What a type's values are, if we read them as they are sent, and whether every
/// engine orders them alike.
pub fn known(name: &str, kind: &str, built_in: bool) -> Option<(Form, bool)> {
    if kind == "e" || name == "citext" {
        return Some((Form::Text, false));
    }
    if !built_in {
        return None;
    }
    Some(match name {
        "int2" | "int4" | "int8" | "numeric" => (Form::Number, true),
        "bool" | "oid" | "float4" | "float8" => (Form::Number, false),
        "text" | "varchar" | "bpchar" | "name" | "char" => (Form::Text, false),
        "bytea" => (Form::Bytes, false),
        "date" => (Form::Date, false),
        "time" => (Form::Time, false),
        "timestamp" | "timestamptz" => (Form::Moment, false),
        "uuid" => (Form::Uuid, false),
        "json" | "jsonb" => (Form::Json, false),
        _ => return None,
    })
}

/// Appends a value; none if it is not what its type says.
pub fn append(row: &mut Row, column: &Column, form: &Form, value: &[u8]) -> Option<()> {
    match column.wire.as_str() {
        "bool" => row.unsigned(u64::from(*value.first()? != 0)),
        "int2" => row.integer(i64::from(i16::from_be_bytes(value.try_into().ok()?))),
        "int4" => row.integer(i64::from(i32::from_be_bytes(value.try_into().ok()?))),
        "int8" => row.integer(i64::from_be_bytes(value.try_into().ok()?)),
        "oid" => row.unsigned(u64::from(u32::from_be_bytes(value.try_into().ok()?))),
        // Widened, so that both kinds of floats meet in every engine.
        "float4" => row.float(f64::from(f32::from_be_bytes(value.try_into().ok()?))),
        "float8" => row.float(f64::from_be_bytes(value.try_into().ok()?)),
        "numeric" => numeric(row, value)?,
        // Its trailing spaces mean nothing, and other engines do not send them.
        "bpchar" => form.append(row, Tag::Text, value.trim_ascii_end_spaces()),
        "bytea" => form.append(row, Tag::Bytes, value),
        "date" => match i32::from_be_bytes(value.try_into().ok()?) {
            i32::MAX => row.put(Tag::Time, b"infinity"),
            i32::MIN => row.put(Tag::Time, b"-infinity"),
            days => {
                let days = i64::from(days) + time::DAYS_TO_2000;
                row.write(Tag::Time, |bytes| time::write_date(bytes, days));
            }
        },
        "time" => {
            let micros = i64::from_be_bytes(value.try_into().ok()?);
            row.write(Tag::Time, |bytes| time::write_time(bytes, micros));
        }
        "timestamp" | "timestamptz" => match i64::from_be_bytes(value.try_into().ok()?) {
            i64::MAX => row.put(Tag::Time, b"infinity"),
            i64::MIN => row.put(Tag::Time, b"-infinity"),
            // The last years, counted from 1970 on, are beyond 64 bits.
            micros => {
                let days = micros.div_euclid(time::DAY_MICROS) + time::DAYS_TO_2000;
                append_day_and_time(row, days, Unit::Micro, micros.rem_euclid(time::DAY_MICROS));
            }
        },
        "uuid" => row.uuid(Tag::Bytes, value),
        "jsonb" => row.json(value.split_first()?.1),
        _ => form.append(row, Tag::Text, value),
    }
    Some(())
}

/// Cuts the blanks of a `char(n)`, and no other white space.
trait TrimBlanks {
    fn trim_ascii_end_spaces(&self) -> &[u8];
}

impl TrimBlanks for [u8] {
    fn trim_ascii_end_spaces(&self) -> &[u8] {
        let end = self.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
        self.get(..end).unwrap_or_default()
    }
}

/// `numeric_send`: signs 0x0000 and 0x4000, 0xC000 for NaN, 0xD000 and 0xF000 for infinity.
fn numeric(row: &mut Row, value: &[u8]) -> Option<()> {
    let (head, groups) = value.split_first_chunk::<8>()?;
    let part =
        |index: usize| head.as_chunks::<2>().0.get(index).map(|bytes| u16::from_be_bytes(*bytes));
    let (count, weight, sign) = (part(0)?, part(1)?.cast_signed(), part(2)?);
    match sign {
        0xC000 => row.put(Tag::Number, b"NaN"),
        0xD000 => row.put(Tag::Number, b"inf"),
        0xF000 => row.put(Tag::Number, b"-inf"),
        _ => {
            let groups = groups.as_chunks::<2>().0;
            if groups.len() != usize::from(count) {
                return None;
            }
            let mut text = Vec::with_capacity(groups.len() * 4 + 1);
            text.push(b'0');
            for group in groups {
                let mut rest = u16::from_be_bytes(*group);
                let mut digits = [b'0'; 4];
                for digit in digits.iter_mut().rev() {
                    *digit += u8::try_from(rest % 10).ok()?;
                    rest /= 10;
                }
                if rest > 0 {
                    return None;
                }
                text.extend_from_slice(&digits);
            }
            let exponent = (i64::from(weight) - i64::from(count) + 1) * 4;
            let decimal = number::Decimal::of_digits(sign == 0x4000, &text, exponent);
            row.write(Tag::Number, |bytes| decimal.write(bytes));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(parts: &[u16]) -> Option<String> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_be_bytes()).collect();
        let mut row = Row::new();
        numeric(&mut row, &bytes)?;
        row.field(0).map(|field| String::from_utf8(field.payload.to_vec()).unwrap())
    }

    #[test]
    fn numerics_are_numbers() {
        // 12345.678 has the groups 1, 2345, 6780 and the weight 1.
        assert_eq!(number(&[3, 1, 0, 3, 1, 2345, 6780]).as_deref(), Some("12345678e-3"));
        assert_eq!(number(&[1, 0, 0x4000, 0, 5]).as_deref(), Some("-5"));
        assert_eq!(number(&[0, 0, 0, 2]).as_deref(), Some("0"));
        // 0.0001: weight -1.
        assert_eq!(number(&[1, 0xFFFF, 0, 4, 1]).as_deref(), Some("1e-4"));
        assert_eq!(number(&[1, 2, 0, 0, 1]).as_deref(), Some("1e8"));
        assert_eq!(number(&[0, 0, 0xC000, 0]).as_deref(), Some("NaN"));
        assert_eq!(number(&[2, 0, 0, 0, 1]), None);
        assert_eq!(number(&[1, 0, 0, 0, 10_000]), None);
    }

    #[test]
    fn blanks_of_fixed_text_are_cut() {
        assert_eq!(b"a b \t  ".trim_ascii_end_spaces(), b"a b \t");
        assert_eq!(b"   ".trim_ascii_end_spaces(), b"");
    }
}
