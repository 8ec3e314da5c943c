//! Values of columns, as files and programs keep them that have no rows: whole numbers of a unit, and
//! bytes. What they mean decides their canonical form. One way for Parquet and for Arrow.

use super::{Row, Tag, number, time};
use crate::table::Form;

/// How many of a unit are a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Thousandths.
    Milli,
    /// Millionths.
    Micro,
    /// Billionths.
    Nano,
}

/// What values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Truth values.
    Boolean,
    /// Whole numbers.
    Signed,
    /// Whole numbers without a sign.
    Unsigned,
    /// Binary numbers.
    Float,
    /// Binary numbers of 16 bits.
    Half,
    /// Decimal numbers, with the number of digits behind the point.
    Decimal(u32),
    /// Days since 1970-01-01.
    Date,
    /// Times of day.
    Time(Unit),
    /// Moments since the begin of 1970.
    Moment(Unit),
    /// Of a Julian day and nanoseconds.
    OldMoment,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// UUIDs.
    Uuid,
    /// JSON.
    Json,
    /// Without a canonical form.
    Other,
}

impl Kind {
    /// True if all its values are whole numbers of the same unit, which have the order of numbers.
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Signed | Self::Unsigned | Self::Decimal(_))
    }

    /// The power of ten by which a whole number of it is divided.
    pub fn scale(self) -> u32 {
        match self {
            Self::Decimal(scale) => scale,
            _ => 0,
        }
    }
}

/// Appends a whole number of 32 or 64 bits, by what it means.
pub fn append_whole(row: &mut Row, kind: Kind, value: i64) {
    match kind {
        Kind::Unsigned => row.unsigned(value.cast_unsigned()),
        Kind::Decimal(scale) => row.write(Tag::Number, |bytes| {
            number::write_scaled(bytes, value < 0, value.unsigned_abs(), scale);
        }),
        Kind::Date => row.write(Tag::Time, |bytes| time::write_date(bytes, value)),
        Kind::Time(unit) => row.write(Tag::Time, |bytes| {
            let (micros, nanos) = micros(unit, value);
            time::write_time(bytes, micros);
            time::write_nanos(bytes, micros, nanos);
        }),
        Kind::Moment(unit) => append_moment(row, unit, value),
        _ => row.integer(value),
    }
}

fn append_moment(row: &mut Row, unit: Unit, value: i64) {
    let day = match unit {
        Unit::Milli => time::DAY_MICROS / 1000,
        Unit::Micro => time::DAY_MICROS,
        Unit::Nano => time::DAY_MICROS * 1000,
    };
    let (days, of_day) = (value.div_euclid(day), value.rem_euclid(day));
    append_day_and_time(row, days, unit, of_day);
}

/// Appends a moment: days since 1970-01-01, and the time of the day in units.
pub fn append_day_and_time(row: &mut Row, days: i64, unit: Unit, of_day: i64) {
    let (micros, nanos) = micros(unit, of_day);
    row.write(Tag::Time, |bytes| {
        time::write_date(bytes, days);
        bytes.push(b' ');
        time::write_time(bytes, micros);
        time::write_nanos(bytes, micros, nanos);
    });
}

/// Microseconds of a day, and nanoseconds beside them. Nothing of a day overflows; what is no time of
/// a day is kept as far as the type goes.
fn micros(unit: Unit, value: i64) -> (i64, u16) {
    match unit {
        Unit::Milli => (value.saturating_mul(1000), 0),
        Unit::Micro => (value, 0),
        Unit::Nano => {
            let nanos = value.rem_euclid(1000);
            (value.div_euclid(1000), u16::try_from(nanos).unwrap_or(0))
        }
    }
}

/// Appends bytes, by what they mean. False if they mean nothing.
pub fn append_bytes(row: &mut Row, kind: Kind, form: &Form, value: &[u8]) -> bool {
    match kind {
        Kind::Text | Kind::Json => form.append(row, Tag::Text, value),
        Kind::Uuid => row.uuid(Tag::Bytes, value),
        Kind::Decimal(scale) => match two_complement(value) {
            Some(whole) => append_large(row, whole, scale),
            None => return append_huge(row, value, scale),
        },
        Kind::Half => {
            let Ok(bytes) = value.try_into() else { return false };
            row.float(half(u16::from_le_bytes(bytes)));
        }
        _ => form.append(row, Tag::Bytes, value),
    }
    true
}

/// A number of up to 16 bytes, the highest first.
pub fn two_complement(value: &[u8]) -> Option<i128> {
    if value.len() > 16 {
        return None;
    }
    let sign = value.first().is_some_and(|byte| *byte >= 0x80);
    let start = if sign { -1_i128 } else { 0 };
    Some(value.iter().fold(start, |number, byte| (number << 8) | i128::from(*byte)))
}

/// Appends a decimal number: a whole number divided by a power of ten.
pub fn append_large(row: &mut Row, value: i128, scale: u32) {
    match u64::try_from(value.unsigned_abs()) {
        Ok(magnitude) => row.write(Tag::Number, |bytes| {
            number::write_scaled(bytes, value < 0, magnitude, scale);
        }),
        Err(_) => {
            let digits = value.unsigned_abs().to_string();
            append_digits(row, value < 0, digits.as_bytes(), scale);
        }
    }
}

fn append_digits(row: &mut Row, negative: bool, digits: &[u8], scale: u32) {
    let decimal = number::Decimal::of_digits(negative, digits, -i64::from(scale));
    row.write(Tag::Number, |bytes| decimal.write(bytes));
}

/// Bytes of the longest decimal: 76 digits have 32.
const DECIMAL_BYTES_MAX: usize = 64;

/// A number of more bytes: divided by ten again and again.
fn append_huge(row: &mut Row, value: &[u8], scale: u32) -> bool {
    if value.len() > DECIMAL_BYTES_MAX {
        return false;
    }
    let negative = value.first().is_some_and(|byte| *byte >= 0x80);
    let mut rest = value.to_vec();
    if negative {
        let mut carry = true;
        for byte in rest.iter_mut().rev() {
            let (one, over) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (one, over);
        }
    }
    let mut digits = Vec::new();
    while rest.iter().any(|byte| *byte != 0) {
        let mut remainder = 0_u16;
        for byte in &mut rest {
            let dividend = (remainder << 8) | u16::from(*byte);
            *byte = u8::try_from(dividend / 10).unwrap_or(0);
            remainder = dividend % 10;
        }
        digits.push(b'0' + u8::try_from(remainder).unwrap_or(0));
    }
    digits.reverse();
    append_digits(row, negative, &digits, scale);
    true
}

/// An IEEE number of 16 bits.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(bits & 0x3FF);
    let exponent = i32::from((bits >> 10) & 0x1F);
    match exponent {
        0 => sign * fraction * 2_f64.powi(-24),
        0x1F if fraction == 0.0 => sign * f64::INFINITY,
        0x1F => f64::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(fill: impl FnOnce(&mut Row)) -> String {
        let mut row = Row::new();
        fill(&mut row);
        row.field(0).map(|field| String::from_utf8(field.payload.to_vec()).unwrap()).unwrap()
    }

    #[test]
    fn moments_of_all_units_are_one_form() {
        let moment = |unit, value| written(|row| append_whole(row, Kind::Moment(unit), value));
        assert_eq!(moment(Unit::Milli, -1), "1969-12-31 23:59:59.999");
        assert_eq!(moment(Unit::Micro, -1000), "1969-12-31 23:59:59.999");
        assert_eq!(moment(Unit::Nano, -1_000_000), "1969-12-31 23:59:59.999");
        assert_eq!(moment(Unit::Nano, -1), "1969-12-31 23:59:59.999999999");
        assert_eq!(moment(Unit::Nano, 1_000_000_120), "1970-01-01 00:00:01.00000012");
        assert_eq!(moment(Unit::Nano, 500_000_010), "1970-01-01 00:00:00.50000001");
        assert_eq!(moment(Unit::Micro, -62_135_596_800_000_000), "0001-01-01 00:00:00");
        assert_eq!(moment(Unit::Milli, 253_402_300_799_999), "9999-12-31 23:59:59.999");
        for value in [i64::MIN, i64::MAX] {
            for unit in [Unit::Milli, Unit::Micro, Unit::Nano] {
                assert!(!moment(unit, value).is_empty());
                assert!(!written(|row| append_whole(row, Kind::Time(unit), value)).is_empty());
            }
        }
    }

    #[test]
    fn decimals_of_any_length_are_numbers() {
        let decimal = |bytes: &[u8], scale| {
            written(|row| assert!(append_bytes(row, Kind::Decimal(scale), &Form::Number, bytes)))
        };
        assert_eq!(decimal(&[0xFF, 0x85], 2), "-123e-2");
        assert_eq!(decimal(&[0x00, 0x7B], 2), "123e-2");
        assert_eq!(decimal(&[0x04, 0xB0], 2), "12");
        assert_eq!(decimal(&[], 0), "0");
        assert_eq!(decimal(&i128::MAX.to_be_bytes(), 0), "170141183460469231731687303715884105727");
        let long = [vec![0; 16], i128::MAX.to_be_bytes().to_vec()].concat();
        assert_eq!(decimal(&long, 0), "170141183460469231731687303715884105727");
        let negative = [vec![0xFF; 30], vec![0x85, 0x00]].concat();
        assert_eq!(decimal(&negative, 1), "-31488e-1");
        assert_eq!(decimal(&[0; 20], 3), "0");
        assert_eq!(
            written(|row| append_whole(row, Kind::Decimal(3), -12_000)),
            written(|row| row.integer(-12))
        );
        assert_eq!(written(|row| append_whole(row, Kind::Decimal(5), -12_000)), "-12e-2");
        assert_eq!(written(|row| append_whole(row, Kind::Unsigned, -1)), "18446744073709551615");
    }

    #[test]
    fn numbers_of_16_bits_are_read() {
        for (bits, value) in
            [(0x3C00, 1.0), (0xC000, -2.0), (0x7BFF, 65504.0), (0x0001, 2_f64.powi(-24))]
        {
            assert_eq!(half(bits), value);
        }
        assert!(half(0x7E00).is_nan());
        assert_eq!(half(0xFC00), f64::NEG_INFINITY);
    }
}
