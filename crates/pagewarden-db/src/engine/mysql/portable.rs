//! The statement by which MySQL and MariaDB sum MD5 of the text of [`crate::row::portable`].
//!
//! A row whose text is longer than `max_allowed_packet` has no hash: it adds 2^90 to the
//! lanes, which all others together do not reach, and so is counted without hashing once more.
//! MD5 is computed once a lane: in a table derived from another it is computed once and
//! costs more, and the order in which user variables are set is the server's.

use super::MysqlDialect;
use crate::engine::statement::{Dialect as _, from};
use crate::engine::{Query, Sums};
use crate::row::portable;
use crate::table::{Column, Form};

/// What a row without a hash adds.
const UNHASHED_BIT: u32 = 90;

/// The statement; its answer is read by [`sums`].
pub fn statement(query: &Query<'_>) -> String {
    let mut fields = vec![format!("'{}'", portable::BEGIN)];
    let mut special = Vec::new();
    for (place, form) in query.columns {
        let Some(column) = query.table.columns.get(*place) else { continue };
        fields.push(field(column, form));
        special.extend(is_special(column, form));
    }
    let row = format!("MD5(CONCAT({}))", fields.join(", "));
    let lane = |begin: u8| {
        format!(
            "COALESCE(SUM(COALESCE(CAST(CONV(SUBSTRING({row}, {begin}, 14), 16, 10) AS UNSIGNED), {})), 0)",
            1_u128 << UNHASHED_BIT
        )
    };
    // A condition on NULL is NULL, and not summed.
    let special = match special.is_empty() {
        true => "0".to_owned(),
        false => format!(
            "COALESCE(SUM({}), 0)",
            special
                .iter()
                .map(|one| format!("COALESCE({one}, 0)"))
                .collect::<Vec<_>>()
                .join(" OR ")
        ),
    };
    format!("SELECT COUNT(*), {special}, {}, {} {}", lane(1), lane(15), from(&MysqlDialect, query))
}

/// Reads the answer.
pub fn sums(answer: &[Option<String>]) -> Option<Sums> {
    let [rows, special, low, high] = answer else { return None };
    let lane = |text: &Option<String>| text.as_ref()?.parse::<i128>().ok();
    let (rows, low, high): (u64, _, _) = (rows.as_ref()?.parse().ok()?, lane(low)?, lane(high)?);
    let unhashed = u64::try_from(low >> UNHASHED_BIT).ok()?;
    Some(Sums {
        rows,
        hashed: rows.checked_sub(unhashed)?,
        special: special.as_ref()?.parse().ok()?,
        lanes: [low, high],
    })
}

/// A column's part of the text.
fn field(column: &Column, form: &Form) -> String {
    let name = MysqlDialect.name(&column.name);
    // Zeros in front are a matter of showing.
    let plain =
        if column.declared.contains("zerofill") { format!("({name} + 0)") } else { name.clone() };
    let value = match (form, column.wire.as_str()) {
        (_, "year" | "bit") => format!("({name} + 0)"),
        // A double prints all its digits, and zero is added to make -0 one.
        (_, "float" | "double") => format!("({name} + 0e0)"),
        (_, "decimal") if !has_no_fraction(column) => without_zeros(&plain),
        (_, "time" | "datetime" | "timestamp") if column.declared.contains('(') => {
            without_zeros(&name)
        }
        (Form::Bytes, _) => format!("LOWER(HEX({name}))"),
        (Form::Uuid, _) => format!("LOWER(CONVERT({name} USING utf8mb4))"),
        (Form::Opaque(_), _) => with_length(&format!("HEX({name})")),
        (form, _) if portable::has_length(form) => {
            with_length(&format!("CONVERT({name} USING utf8mb4)"))
        }
        _ => plain,
    };
    let end = if portable::has_length(form) { "" } else { ", ';'" };
    match column.nullable {
        true => format!("COALESCE({value}, '~'){end}"),
        false => format!("{value}{end}"),
    }
}

fn with_length(text: &str) -> String {
    format!("CONCAT(LENGTH({text}), ':', {text})")
}

/// Without the zeros at the end of a fraction, which is there.
fn without_zeros(value: &str) -> String {
    format!("TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {value}))")
}

/// `decimal(10,0)`: what ends in zeros there is a whole number.
fn has_no_fraction(column: &Column) -> bool {
    let scale = column.declared.split([',', ')']).nth(1);
    scale.is_none_or(|scale| scale.trim() == "0")
}

/// What is true of values that other engines write in other words.
fn is_special(column: &Column, form: &Form) -> Option<String> {
    let name = MysqlDialect.name(&column.name);
    Some(match (form, column.wire.as_str()) {
        (_, "float" | "double") => {
            format!("{name} <> 0 AND (ABS({name}) < 1e-4 OR ABS({name}) >= 1e15)")
        }
        (_, "date" | "datetime" | "timestamp") => {
            format!("YEAR({name}) = 0 OR MONTH({name}) = 0 OR DAYOFMONTH({name}) = 0")
        }
        (Form::Uuid, wire) if wire != "uuid" => format!(
            "LOWER(CONVERT({name} USING utf8mb4)) NOT REGEXP \
             '^[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}$'"
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_a_hash_are_told_from_those_that_have_one() {
        let text = |number: i128| Some(number.to_string());
        let most = (1_i128 << 56) - 1;
        let answer = |low| sums(&[text(5), text(0), text(low), text(7)]).unwrap();
        assert_eq!(answer(5 * most).hashed, 5);
        assert!(answer(5 * most).is_whole());
        assert_eq!(answer(3 * most + (2 << UNHASHED_BIT)).hashed, 3);
        assert!(!answer(3 * most + (2 << UNHASHED_BIT)).is_whole());
        assert_eq!(sums(&[text(1), text(0), text(2 << UNHASHED_BIT), text(0)]), None);
    }

    #[test]
    fn scales_are_read_from_declarations() {
        let column = |declared: &str| Column {
            name: "c".to_owned(),
            declared: declared.to_owned(),
            character_set: None,
            form: Form::Number,
            wire: "decimal".to_owned(),
            nullable: true,
            exact: true,
            filled: crate::table::Filled::Said,
        };
        for (declared, none) in [
            ("decimal(10,0)", true),
            ("decimal(10,2)", false),
            ("decimal(65,30) unsigned zerofill", false),
            ("decimal", true),
        ] {
            assert_eq!(has_no_fraction(&column(declared)), none, "{declared}");
        }
    }
}
