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

use crate::row::column::{Kind, Unit, append_day_and_time};
use crate::row::{Row, time};
use crate::table::Form;

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

    /// All of it is NULL, whatever it is.
    pub fn of_nothing() -> Self {
        Self::of(Kind::Text, Form::Any, "NULL")
    }

    /// What has a canonical form.
    pub fn of(kind: Kind, form: Form, declared: impl Into<String>) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_form_is_a_moment() {
        // The day before 1970.
        let mut old = Int96::new();
        old.set_data(1_000_000, 0, 2_440_587);
        let mut row = Row::new();
        append_old_moment(&mut row, &old);
        let field = row.field(0).map(|field| field.payload.to_vec());
        assert_eq!(field, Some(b"1969-12-31 00:00:00.001".to_vec()));
    }
}
