//! What the values of a column of a Parquet file are, and their canonical form.
//!
//! | type in the file | form |
//! |---|---|
//! | BOOLEAN; INT32, INT64, of any width, also unsigned; FLOAT, DOUBLE, Float16 | number |
//! | Decimal in INT32, INT64, FIXED_LEN_BYTE_ARRAY, BYTE_ARRAY | number |
//! | Date | date |
//! | Time of milli-, micro- or nanoseconds | time |
//! | Timestamp of milli-, micro- or nanoseconds, with or without UTC; INT96 | moment |
//! | String, Enum | text |
//! | JSON | JSON |
//! | UUID | UUID |
//! | BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY without a meaning | bytes |
//! | lists, maps, structures, intervals, BSON, variants, geometries | none |
//!
//! Nanoseconds that are no whole microseconds keep all digits, and equal no value of an engine that
//! has only microseconds.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::data_type::Int96;
use parquet::schema::types::ColumnDescriptor;

use crate::row::{Row, Tag, number, time};
use crate::table::Form;

/// How many of a unit are a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Milli,
    Micro,
    Nano,
}

/// What values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    Signed,
    Unsigned,
    Float,
    Half,
    Decimal(u32),
    Date,
    Time(Unit),
    Moment(Unit),
    /// Of a Julian day and nanoseconds.
    OldMoment,
    Text,
    Bytes,
    Uuid,
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

/// What a column is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meaning {
    pub kind: Kind,
    pub form: Form,
    /// Its type, for people.
    pub declared: String,
    /// What other engines call the type, if its values are whole numbers of at most 64 bits.
    pub wire: &'static str,
}

impl Meaning {
    /// What has no canonical form. `place` keeps it from being compared with anything else.
    pub fn other(declared: &str, place: &str) -> Self {
        Self {
            kind: Kind::Other,
            form: Form::Opaque(format!("parquet {declared} of {place}")),
            declared: declared.to_owned(),
            wire: "",
        }
    }

    fn of(kind: Kind, form: Form, declared: impl Into<String>) -> Self {
        let wire = match kind {
            Kind::Signed => "bigint",
            _ => "",
        };
        Self { kind, form, declared: declared.into(), wire }
    }

    /// That of a column.
    pub fn of_column(column: &ColumnDescriptor, place: &str) -> Self {
        let physical = column.physical_type();
        let found = match physical {
            Physical::BOOLEAN => Some(Self::of(Kind::Boolean, Form::Number, "BOOLEAN")),
            Physical::INT32 | Physical::INT64 => whole(column),
            Physical::INT96 => Some(Self::of(Kind::OldMoment, Form::Moment, "INT96")),
            Physical::FLOAT => Some(Self::of(Kind::Float, Form::Number, "FLOAT")),
            Physical::DOUBLE => Some(Self::of(Kind::Float, Form::Number, "DOUBLE")),
            Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => bytes(column),
        };
        found.unwrap_or_else(|| {
            let declared = match column.logical_type_ref() {
                Some(logical) => format!("{logical:?}"),
                None => format!("{:?}", column.converted_type()),
            };
            let word = declared.split(['(', ' ', '{']).next().unwrap_or_default();
            Self::other(&word.to_lowercase(), place)
        })
    }
}

fn decimal(scale: i32, precision: i32) -> Option<Meaning> {
    let scale = u32::try_from(scale).ok()?;
    let declared = format!("DECIMAL({precision},{scale})");
    Some(Meaning::of(Kind::Decimal(scale), Form::Number, declared))
}

fn whole(column: &ColumnDescriptor) -> Option<Meaning> {
    let name = format!("{}", column.physical_type());
    let time = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS => (Unit::Milli, "MILLIS"),
        TimeUnit::MICROS => (Unit::Micro, "MICROS"),
        TimeUnit::NANOS => (Unit::Nano, "NANOS"),
    };
    let signed = |declared: String| Some(Meaning::of(Kind::Signed, Form::Number, declared));
    let unsigned = |declared: String| Some(Meaning::of(Kind::Unsigned, Form::Number, declared));
    let date = || Some(Meaning::of(Kind::Date, Form::Date, "DATE"));
    let of_day =
        |unit, word: &str| Some(Meaning::of(Kind::Time(unit), Form::Time, format!("TIME({word})")));
    let moment = |unit, word: &str| {
        Some(Meaning::of(Kind::Moment(unit), Form::Moment, format!("TIMESTAMP({word})")))
    };
    match column.logical_type_ref() {
        Some(LogicalType::Integer(of)) => match of.is_signed {
            true => signed(format!("INT{}", of.bit_width)),
            false => unsigned(format!("UINT{}", of.bit_width)),
        },
        Some(LogicalType::Decimal(of)) => decimal(of.scale, of.precision),
        Some(LogicalType::Date) => date(),
        Some(LogicalType::Time(of)) => {
            let (unit, word) = time(&of.unit);
            of_day(unit, word)
        }
        Some(LogicalType::Timestamp(of)) => {
            let (unit, word) = time(&of.unit);
            moment(unit, word)
        }
        // All of it is null.
        Some(LogicalType::Unknown) => signed(name),
        Some(_) => None,
        None => match column.converted_type() {
            ConvertedType::NONE
            | ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64 => signed(name),
            ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64 => unsigned(format!("U{name}")),
            ConvertedType::DECIMAL => decimal(column.type_scale(), column.type_precision()),
            ConvertedType::DATE => date(),
            ConvertedType::TIME_MILLIS => of_day(Unit::Milli, "MILLIS"),
            ConvertedType::TIME_MICROS => of_day(Unit::Micro, "MICROS"),
            ConvertedType::TIMESTAMP_MILLIS => moment(Unit::Milli, "MILLIS"),
            ConvertedType::TIMESTAMP_MICROS => moment(Unit::Micro, "MICROS"),
            _ => None,
        },
    }
}

fn bytes(column: &ColumnDescriptor) -> Option<Meaning> {
    let text = |declared: &str| Some(Meaning::of(Kind::Text, Form::Text, declared));
    let json = || Some(Meaning::of(Kind::Json, Form::Json, "JSON"));
    let plain = || {
        let name = format!("{}", column.physical_type());
        Some(Meaning::of(Kind::Bytes, Form::Bytes, name))
    };
    match column.logical_type_ref() {
        Some(LogicalType::String) => text("STRING"),
        Some(LogicalType::Enum) => text("ENUM"),
        Some(LogicalType::Json) => json(),
        Some(LogicalType::Uuid) => Some(Meaning::of(Kind::Uuid, Form::Uuid, "UUID")),
        Some(LogicalType::Float16) => Some(Meaning::of(Kind::Half, Form::Number, "FLOAT16")),
        Some(LogicalType::Decimal(of)) => decimal(of.scale, of.precision),
        Some(LogicalType::Unknown) => plain(),
        Some(_) => None,
        None => match column.converted_type() {
            ConvertedType::NONE => plain(),
            ConvertedType::UTF8 => text("UTF8"),
            ConvertedType::ENUM => text("ENUM"),
            ConvertedType::JSON => json(),
            ConvertedType::DECIMAL => decimal(column.type_scale(), column.type_precision()),
            _ => None,
        },
    }
}

/// Appends a whole number of 32 or 64 bits, by what it means.
pub(super) fn append_whole(row: &mut Row, kind: Kind, value: i64) {
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

fn append_day_and_time(row: &mut Row, days: i64, unit: Unit, of_day: i64) {
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

/// The Julian day of 1970-01-01.
const JULIAN_1970: i64 = 2_440_588;

/// Appends an INT96: nanoseconds of a day, and the Julian day.
pub(super) fn append_old_moment(row: &mut Row, value: &Int96) {
    let [low, high, day] = match value.data() {
        [low, high, day] => [*low, *high, *day],
        _ => [0; 3],
    };
    let nanos = ((u64::from(high) << 32) | u64::from(low)).cast_signed();
    let per_day = time::DAY_MICROS * 1000;
    let days = i64::from(day.cast_signed()) - JULIAN_1970 + nanos.div_euclid(per_day);
    append_day_and_time(row, days, Unit::Nano, nanos.rem_euclid(per_day));
}

/// Appends bytes, by what they mean. False if they mean nothing.
pub(super) fn append_bytes(row: &mut Row, kind: Kind, form: &Form, value: &[u8]) -> bool {
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
pub(super) fn two_complement(value: &[u8]) -> Option<i128> {
    if value.len() > 16 {
        return None;
    }
    let sign = value.first().is_some_and(|byte| *byte >= 0x80);
    let start = if sign { -1_i128 } else { 0 };
    Some(value.iter().fold(start, |number, byte| (number << 8) | i128::from(*byte)))
}

fn append_large(row: &mut Row, value: i128, scale: u32) {
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
        // The day before 1970 in the old form.
        let mut old = Int96::new();
        old.set_data(1_000_000, 0, 2_440_587);
        assert_eq!(written(|row| append_old_moment(row, &old)), "1969-12-31 00:00:00.001");
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
