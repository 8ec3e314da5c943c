//! Values as the binary protocol gives them, in their canonical form.

use mysql::Value;

use crate::row::{Row, Tag, time};
use crate::table::Form;

/// What a type's values are, and whether every engine orders them alike.
pub fn form_of(data_type: &str, has_character_set: bool, is_json: bool) -> (Form, bool) {
    match data_type {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" => (Form::Number, true),
        "year" | "bit" | "float" | "double" => (Form::Number, false),
        "json" => (Form::Json, false),
        "longtext" if is_json => (Form::Json, false),
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set"
            if has_character_set =>
        {
            (Form::Text, false)
        }
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "binary"
        | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => (Form::Bytes, false),
        "date" => (Form::Date, false),
        "time" => (Form::Time, false),
        "datetime" | "timestamp" => (Form::Moment, false),
        "uuid" => (Form::Uuid, false),
        other => (Form::Opaque(format!("mysql {other}")), false),
    }
}

/// Appends a value.
pub fn append(row: &mut Row, wire: &str, form: &Form, value: Option<&Value>) {
    match value {
        None | Some(Value::NULL) => row.null(),
        Some(Value::Int(integer)) => row.integer(*integer),
        Some(Value::UInt(integer)) => row.unsigned(*integer),
        // Widened, so that both kinds of floats meet in every engine.
        Some(Value::Float(float)) => row.float(f64::from(*float)),
        Some(Value::Double(double)) => row.float(*double),
        Some(Value::Date(year, month, day, hours, minutes, seconds, micros)) => {
            let clock = (u64::from(*hours) * 3600 + u64::from(*minutes) * 60 + u64::from(*seconds))
                * 1_000_000
                + u64::from(*micros);
            row.write(Tag::Time, |bytes| {
                // As it stands, also where there is no such day: 0000-00-00.
                time::write_civil(bytes, i64::from(*year), *month, *day);
                if wire != "date" {
                    bytes.push(b' ');
                    time::write_time(bytes, clock.cast_signed());
                }
            });
        }
        Some(Value::Time(negative, days, hours, minutes, seconds, micros)) => {
            let seconds = (i64::from(*days) * 24 + i64::from(*hours)) * 3600
                + i64::from(*minutes) * 60
                + i64::from(*seconds);
            let span = seconds.checked_mul(1_000_000);
            match span.and_then(|span| span.checked_add(i64::from(*micros))) {
                Some(span) => {
                    let span = if *negative { -span } else { span };
                    row.write(Tag::Time, |bytes| time::write_time(bytes, span));
                }
                // No server has spans of this number of days; such a value equals itself only.
                None => {
                    let text = format!("{negative} {days} {hours}:{minutes}:{seconds}.{micros}");
                    row.put(Tag::Text, text.as_bytes());
                }
            }
        }
        Some(Value::Bytes(bytes)) => match (wire, form) {
            ("bit", _) => {
                let number = bytes.iter().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
                row.unsigned(number);
            }
            ("decimal", _) => row.decimal(bytes),
            // What has no character set is bytes, though another engine may call it a UUID.
            (_, Form::Bytes) => row.put(Tag::Bytes, bytes),
            ("binary" | "varbinary" | "blob" | "tinyblob" | "mediumblob" | "longblob", form) => {
                form.append(row, Tag::Bytes, bytes);
            }
            (_, form) => form.append(row, Tag::Text, bytes),
        },
    }
}

/// A value of an answer to a question that Pagewarden asked.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Double(number) => Some(number.to_string()),
        // Not by the driver's `as_sql`, which overflows on spans of many days.
        Value::Date(..) | Value::Time(..) => {
            let mut row = Row::new();
            append(&mut row, "datetime", &Form::Moment, Some(value));
            row.field(0).map(|field| String::from_utf8_lossy(field.payload).into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(wire: &str, form: &Form, value: &Value) -> String {
        let mut row = Row::new();
        append(&mut row, wire, form, Some(value));
        String::from_utf8(row.field(0).unwrap().payload.to_vec()).unwrap()
    }

    #[test]
    fn dates_that_are_none_are_kept_as_they_stand() {
        let zero = Value::Date(0, 0, 0, 0, 0, 0, 0);
        assert_eq!(payload("datetime", &Form::Moment, &zero), "0000-00-00 00:00:00");
        assert_eq!(payload("date", &Form::Date, &zero), "0000-00-00");
        let half = Value::Date(2024, 2, 0, 1, 2, 3, 500_000);
        assert_eq!(payload("datetime", &Form::Moment, &half), "2024-02-00 01:02:03.5");
    }

    #[test]
    fn spans_may_be_long_and_negative() {
        let span = Value::Time(true, 34, 22, 59, 59, 0);
        assert_eq!(payload("time", &Form::Time, &span), "-838:59:59");
        let nonsense = |days| Value::Time(false, days, 0, 0, 0, 0);
        let [one, other] =
            [u32::MAX, u32::MAX - 1].map(|days| payload("time", &Form::Time, &nonsense(days)));
        assert_ne!(one, other);
    }

    #[test]
    fn bits_are_a_number() {
        assert_eq!(payload("bit", &Form::Number, &Value::Bytes(vec![1, 0])), "256");
    }
}
