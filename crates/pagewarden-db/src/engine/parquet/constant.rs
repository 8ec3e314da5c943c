//! Values that a column has in all rows of a file: they are in the books of the table, as text.
//!
//! | type of the column in a Delta table | text |
//! |---|---|
//! | `string` | itself |
//! | `byte`, `short`, `integer`, `long`, `float`, `double`, `decimal(10,2)` | the number |
//! | `boolean` | `true`, `false` |
//! | `date` | `2024-02-29` |
//! | `timestamp` | `2024-02-29T23:59:59.5Z` |
//! | `timestamp_ntz` | `2024-02-29 23:59:59.5` |
//!
//! Iceberg tables have dates as days since 1970, and moments as microseconds since then.
//!
//! A `timestamp` without a time zone is that of the program which wrote it: it is refused.
//!
//! What the name of a folder says (`listing`) has no type: it is read as a value of the column that it is
//! compared with.
//!
//! Source: "Partition Value Serialization" in `PROTOCOL.md` of Delta Lake.

use pagewarden_format_parquet::table::BookValue;

use crate::row::column::{Kind, Unit, append_bytes, append_whole};
use crate::row::number::Decimal;
use crate::row::{Row, time};
use crate::table::Form;

use super::kind::Meaning;

/// A value of all rows of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant {
    Whole(Kind, i64),
    Float(f64),
    /// A number as it is written.
    Number(String),
    Text(String),
    /// What the name of a folder says.
    Untyped(String),
}

/// The type of a value that the name of a folder says.
pub(super) const OF_FOLDER: &str = "name of a folder";

impl Constant {
    /// What a column of that type is; none if its values cannot be read from text.
    pub fn meaning(kind: &str) -> Option<Meaning> {
        let (of, form) = match kind {
            "byte" | "short" | "integer" | "long" => (Kind::Signed, Form::Number),
            "float" | "double" => (Kind::Float, Form::Number),
            "boolean" => (Kind::Boolean, Form::Number),
            "date" => (Kind::Date, Form::Date),
            "timestamp" | "timestamp_ntz" => (Kind::Moment(Unit::Micro), Form::Moment),
            "string" => (Kind::Text, Form::Text),
            OF_FOLDER => (Kind::Text, Form::Any),
            kind => (Kind::Decimal(scale(kind)?), Form::Number),
        };
        Some(Meaning::of(of, form, kind.to_uppercase()))
    }

    /// Reads a value; none if it is no value of that type.
    pub fn read(kind: &str, value: &BookValue) -> Option<Self> {
        match (value, kind) {
            (BookValue::Since1970(days), "date") => Some(Self::Whole(Kind::Date, *days)),
            (BookValue::Since1970(micros), "timestamp" | "timestamp_ntz") => {
                Some(Self::Whole(Kind::Moment(Unit::Micro), *micros))
            }
            (BookValue::Text(text), _) => Self::of_text(kind, text),
            (BookValue::Since1970(_) | BookValue::Null, _) => None,
        }
    }

    fn of_text(kind: &str, text: &str) -> Option<Self> {
        Some(match kind {
            "byte" | "short" | "integer" | "long" => Self::Whole(Kind::Signed, text.parse().ok()?),
            "float" => Self::Float(f64::from(text.parse::<f32>().ok()?)),
            "double" => Self::Float(text.parse().ok()?),
            "boolean" => Self::Whole(Kind::Boolean, i64::from(text.parse::<bool>().ok()?)),
            "date" => Self::Whole(Kind::Date, days(text)?),
            "timestamp" => moment(text.strip_suffix('Z')?, 'T')?,
            "timestamp_ntz" => moment(text, ' ')?,
            "string" => Self::Text(text.to_owned()),
            OF_FOLDER => Self::Untyped(text.to_owned()),
            kind => {
                scale(kind)?;
                Decimal::parse(text.as_bytes())?;
                Self::Number(text.to_owned())
            }
        })
    }

    /// Appends it in its canonical form.
    pub fn append(&self, form: &Form, out: &mut Row) -> bool {
        match self {
            Self::Whole(kind, value) => append_whole(out, *kind, *value),
            Self::Float(value) => out.float(*value),
            Self::Number(text) => out.decimal(text.as_bytes()),
            // As Spark writes truth values.
            Self::Untyped(text) if *form == Form::Number && truth(text).is_some() => {
                append_whole(out, Kind::Boolean, i64::from(truth(text) == Some(true)));
            }
            Self::Text(text) | Self::Untyped(text) => {
                return append_bytes(out, Kind::Text, form, text.as_bytes());
            }
        }
        true
    }
}

fn truth(text: &str) -> Option<bool> {
    text.to_ascii_lowercase().parse().ok()
}

/// The digits behind the point of `decimal(10,2)`.
fn scale(kind: &str) -> Option<u32> {
    let (_, scale) = kind.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    scale.trim().parse().ok()
}

/// The days since 1970 of `2024-02-29`.
fn days(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let [year, month, day] = [4, 2, 2].map(|digits| whole(parts.next()?, digits));
    let (year, month, day) = (year?, u8::try_from(month?).ok()?, u8::try_from(day?).ok()?);
    let days = time::days(year, month, day);
    (parts.next().is_none() && time::civil(days) == (year, month, day)).then_some(days)
}

/// The moment of a date and a time of day with up to six digits behind the point.
fn moment(text: &str, between: char) -> Option<Constant> {
    let (date, of_day) = text.split_once(between)?;
    let (of_day, fraction) = of_day.split_once('.').unwrap_or((of_day, "0"));
    let mut parts = of_day.split(':');
    let [hour, minute, second] = [24, 60, 60].map(|end| {
        let part = whole(parts.next()?, 2)?;
        (part < end).then_some(part)
    });
    if parts.next().is_some() || fraction.len() > 6 {
        return None;
    }
    let micros = whole(&format!("{fraction:0<6}"), 6)?;
    let seconds = (hour? * 60 + minute?) * 60 + second?;
    let whole =
        days(date)?.checked_mul(time::DAY_MICROS)?.checked_add(seconds * 1_000_000 + micros)?;
    Some(Constant::Whole(Kind::Moment(Unit::Micro), whole))
}

/// A number of that many digits.
fn whole(text: &str, digits: usize) -> Option<i64> {
    let is_plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_values_of_their_type_or_none() {
        for (kind, text, expected) in [
            ("integer", "-7", Some("-7")),
            ("long", "7.5", None),
            ("double", "1.0E10", Some("1e10")),
            ("float", "0.1", Some("10000000149011612e-17")),
            ("double", "NaN", Some("NaN")),
            ("boolean", "true", Some("1")),
            ("boolean", "TRUE", None),
            ("decimal(10,2)", "1.50", Some("15e-1")),
            ("decimal(10,2)", "x", None),
            ("date", "2024-02-29", Some("2024-02-29")),
            ("date", "2023-02-29", None),
            ("date", "1969-12-31", Some("1969-12-31")),
            ("timestamp", "2024-02-29T23:59:59.500000Z", Some("2024-02-29 23:59:59.5")),
            ("timestamp", "2024-02-29 23:59:59", None),
            ("timestamp_ntz", "1969-12-31 23:59:59.000001", Some("1969-12-31 23:59:59.000001")),
            ("timestamp_ntz", "2024-02-29 24:00:00", None),
            ("string", "a b", Some("a b")),
            ("binary", "a", None),
            ("interval", "1", None),
        ] {
            let form = Constant::meaning(kind).map(|meaning| meaning.form);
            let constant = Constant::of_text(kind, text);
            assert!(form.is_some() || constant.is_none(), "{kind}");
            let written = constant.map(|constant| {
                let mut row = Row::new();
                assert!(constant.append(&form.unwrap_or(Form::Any), &mut row));
                String::from_utf8(row.field(0).unwrap().payload.to_vec()).unwrap()
            });
            assert_eq!(written.as_deref(), expected, "{kind} {text}");
        }
    }

    #[test]
    fn value_of_a_folder_is_one_of_the_column_that_it_is_compared_with() {
        let field = |kind: &str, text: &str, form: &Form| {
            let mut row = Row::new();
            assert!(Constant::of_text(kind, text).unwrap().append(form, &mut row));
            let field = row.field(0).unwrap();
            (field.tag, field.payload.to_vec())
        };
        for (text, kind) in [
            ("01", "long"),
            ("1.50", "decimal(10,2)"),
            ("TRUE", "boolean"),
            ("false", "boolean"),
            ("2024-02-29", "date"),
            ("2024-02-29 10:00:00", "timestamp_ntz"),
            ("a b", "string"),
            ("01", "string"),
        ] {
            let form = Constant::meaning(kind).unwrap().form;
            let typed = field(kind, &text.to_lowercase(), &form);
            assert_eq!(field(OF_FOLDER, text, &form), typed, "{kind} {text}");
        }
        // What is none equals nothing that is one.
        assert_eq!(field(OF_FOLDER, "monday", &Form::Date).1, b"monday");
    }
}
