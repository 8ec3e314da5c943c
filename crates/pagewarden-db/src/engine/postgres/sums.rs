//! Statements by which PostgreSQL sums hashes of rows itself.
//!
//! `native`: `hash_record_extended` with two seeds (`hash_record_extended` of rowtypes.c,
//! `hashint8extended` of hashfunc.c, `hash_numeric_extended` of numeric.c, `jsonb_hash_extended`
//! of jsonb_op.c). What it must not be left alone with:
//!
//! | what it does | what it would not see | what is done |
//! |---|---|---|
//! | a row's hash is a sum of its columns' hashes times powers of 31 | values swapped between two rows, one time in four | the hash goes through another one before it is summed: as a double, whose hash is of all its bytes |
//! | 8-byte integers are folded into 4 bytes | 1 and 2^32 | their upper half is a column more |
//! | numbers lose their sign | -5 and 5 | `c < 0` is a column more |
//! | NaN and infinity have one hash | one for the other | `c = 'NaN'` is a column more |
//! | jsonb loses its nesting and the signs of numbers | `[[1],2]` and `[[1,2]]` | its text is hashed |
//! | enumerations are hashed by their number, text by its collation | (false alarms) `a` and `A` | their text is hashed, byte by byte |
//!
//! Moments and times are folded, too: of those that were changed one in 2^32 passes unseen,
//! of all other values one in 2^64.
//!
//! `portable`: MD5 of the text of [`crate::row::portable`].

use super::PostgresDialect;
use crate::engine::statement::{Dialect as _, from};
use crate::engine::{Hashing, Query};
use crate::row::portable;
use crate::table::{Column, Form};

/// A function takes 100 arguments; a field is two.
const FIELDS_MAX: usize = 45;

/// The statement; its answer is that of [`crate::engine::Sums::of_answer`].
pub fn statement(query: &Query<'_>, hashing: Hashing) -> String {
    let columns = query.columns.iter().filter_map(|(place, form)| {
        let column = query.table.columns.get(*place)?;
        Some((column, form))
    });
    let from = from(&PostgresDialect, query);
    // OFFSET 0 keeps the inner columns from being computed once for each use.
    match hashing {
        Hashing::Native => {
            let parts: Vec<String> = columns.flat_map(|(column, _)| hashed(column)).collect();
            let lane = |seed: u8| {
                format!(
                    "coalesce(sum(hashfloat8extended(hash_record_extended(r, {seed})::float8, {seed})), 0)"
                )
            };
            format!(
                "SELECT count(*), count(r), 0, {}, {} \
                 FROM (SELECT ROW({}) AS r {from} OFFSET 0) AS hashed",
                lane(0),
                lane(1),
                parts.join(", ")
            )
        }
        Hashing::Portable => {
            let mut fields = vec![format!("'{}'", portable::BEGIN)];
            let mut special = vec!["false".to_owned()];
            for (column, form) in columns {
                fields.push(field(column, form));
                special.extend(is_special(column, form));
            }
            let row: Vec<String> = fields
                .chunks(FIELDS_MAX)
                .map(|some| format!("concat({})", some.join(", ")))
                .collect();
            let lane = |begin: u8| {
                format!("coalesce(sum(('x' || substr(h, {begin}, 14))::bit(56)::bigint), 0)")
            };
            format!(
                "SELECT count(*), count(h), count(*) FILTER (WHERE s), {}, {} \
                 FROM (SELECT md5({}) AS h, {} AS s {from} OFFSET 0) AS hashed",
                lane(1),
                lane(15),
                row.join(" || "),
                special.join(" OR ")
            )
        }
    }
}

/// What of a column goes into a native hash.
fn hashed(column: &Column) -> Vec<String> {
    let name = PostgresDialect.name(&column.name);
    match column.wire.as_str() {
        "int8" => vec![name.clone(), format!("({name} >> 32)::int4")],
        "numeric" => vec![name.clone(), format!("{name} < 0"), format!("{name} = 'NaN'")],
        "text" | "varchar" | "bpchar" | "name" => vec![format!("{name} COLLATE \"C\"")],
        "int2" | "int4" | "oid" | "bool" | "float4" | "float8" | "char" | "bytea" | "date"
        | "time" | "timestamp" | "timestamptz" | "uuid" => vec![name],
        _ => vec![format!("({name}::text) COLLATE \"C\"")],
    }
}

/// A column's part of the portable text.
fn field(column: &Column, form: &Form) -> String {
    let name = PostgresDialect.name(&column.name);
    let value = match (form, column.wire.as_str()) {
        (_, "bool") => format!("{name}::int4"),
        (_, "numeric") => format!("trim_scale({name})"),
        // Zero is added to make -0 one; 4-byte floats are widened.
        (_, "float4" | "float8") => format!("({name}::float8 + 0)"),
        (_, "bytea") => format!("encode({name}, 'hex')"),
        (_, "timestamptz") => format!("({name} AT TIME ZONE 'UTC')"),
        (Form::Uuid, wire) if wire != "uuid" => format!("lower({name}::text)"),
        (form, _) if portable::has_length(form) => {
            let text = match column.declared.as_str() {
                "money" => format!("{name}::numeric::text"),
                _ => format!("{name}::text"),
            };
            let field = format!("octet_length({text}), ':', {text}");
            return match column.nullable {
                true => format!("CASE WHEN {name} IS NULL THEN '~' ELSE concat({field}) END"),
                false => format!("concat({field})"),
            };
        }
        _ => name,
    };
    match column.nullable {
        true => format!("coalesce({value}::text, '~'), ';'"),
        false => format!("{value}, ';'"),
    }
}

/// What is true of values that other engines write in other words.
fn is_special(column: &Column, form: &Form) -> Option<String> {
    let name = PostgresDialect.name(&column.name);
    Some(match (form, column.wire.as_str()) {
        (_, "float4" | "float8") => {
            format!("NOT ({name} = 0 OR abs({name}) >= 1e-4 AND abs({name}) < 1e15)")
        }
        // NaN is greater than all other numbers.
        (_, "numeric") => format!("NOT ({name} > '-Infinity' AND {name} < 'Infinity')"),
        (_, "date" | "timestamp" | "timestamptz") => {
            format!("NOT ({name} >= '0001-01-01' AND {name} < '10000-01-01')")
        }
        (Form::Uuid, wire) if wire != "uuid" => format!(
            "{name}::text !~* '^[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}$'"
        ),
        _ => return None,
    })
}
