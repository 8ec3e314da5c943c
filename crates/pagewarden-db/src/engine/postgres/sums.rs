//! Statements by which PostgreSQL sums hashes of rows itself.
//!
//! `native`: every column's value is hashed by the function that PostgreSQL has for its type
//! (`hashtextextended` of hashfunc.c and varlena.c, `hash_numeric_extended` of numeric.c, and so
//! on: SQL may call them), that hash by another function that is the column's own, and the row's
//! hash is the exclusive or of these. What is summed are two hashes of it. To put a row
//! together for `hash_record_extended`, with two seeds, takes 1.6 times as long.
//!
//! The other function is `hashint4extended(NUMBER, hash)`: PostgreSQL stirs the second argument,
//! which is meant as a seed, in whole (64 bits) before it adds the first one, which is the
//! column's number here.
//!
//! | what PostgreSQL's functions do | what would not be seen | what is done |
//! |---|---|---|
//! | numbers that differ by powers of 10,000, floats that are 0, short values of all types differ in the same few bits of their hashes | the same change in two columns, values swapped between columns | each hash goes through the column's function |
//! | (a row's hash is an exclusive or) | values swapped between two rows, once in 10^8 | the hash goes through another one before it is summed |
//! | 8-byte integers are folded into 4 bytes | 1 and 2^32 | they go into the column's function as they are |
//! | numbers lose their sign | -5 and 5 | those below 0 have another function |
//! | NaN and infinity have one hash | one for the other | NaN has a hash of its own; it alone fits into `numeric(p, s)` |
//! | jsonb loses its nesting and the signs of numbers | `[[1],2]` and `[[1,2]]` | its text is hashed |
//! | enumerations are hashed by their number, text by its collation | (false alarms) `a` and `A` | their text is hashed, byte by byte |
//!
//! Moments and times are folded, too: of those that were changed one in 2^32 is not detected,
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
            let hashes: Vec<String> =
                columns.enumerate().map(|(index, (column, _))| hashed(index, column)).collect();
            let lane = |number: u8| format!("coalesce(sum(hashint4extended({number}, h)), 0)");
            format!(
                "SELECT count(*), count(h), 0, {}, {} \
                 FROM (SELECT {} AS h {from} OFFSET 0) AS hashed",
                lane(0),
                lane(1),
                hashes.join(" # ")
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

/// Functions of a column, one for each kind of its values.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Plain,
    Negative,
    NotANumber,
}

/// A hash by a function of the column. These differ by numbers that have few bits in common:
/// multiples of 2^32 divided by the golden ratio, none of which is met twice.
fn of_column(index: usize, kind: Kind, value: &str) -> String {
    let place = u32::try_from(index).unwrap_or(u32::MAX).wrapping_mul(3);
    let number = place.wrapping_add(kind as u32 + 1).wrapping_mul(0x9e37_79b9).cast_signed();
    format!("hashint4extended({number}, {value})")
}

/// The native hash of a column.
fn hashed(index: usize, column: &Column) -> String {
    let name = PostgresDialect.name(&column.name);
    let own = |value: &str| of_column(index, Kind::Plain, value);
    let text = |value: &str| format!("hashtextextended({value} COLLATE \"C\", 0)");
    let hash = match column.wire.as_str() {
        "int2" | "int4" | "int8" => own(&name),
        "oid" => own(&format!("{name}::int8")),
        "bool" => {
            format!("CASE WHEN {name} THEN {} WHEN NOT {name} THEN {} END", own("1"), own("0"))
        }
        "numeric" => {
            let hash = format!("hash_numeric_extended({name}, 0)");
            let not_a_number = match column.declared.contains('(') {
                true => String::new(),
                false => {
                    let hash = of_column(index, Kind::NotANumber, "0");
                    format!("WHEN {name} = 'NaN' THEN {hash} ")
                }
            };
            let negative = of_column(index, Kind::Negative, &hash);
            format!("CASE WHEN {name} < 0 THEN {negative} {not_a_number}ELSE {} END", own(&hash))
        }
        "float4" | "float8" => own(&format!("hash{}extended({name}, 0)", column.wire)),
        "text" | "varchar" => own(&text(&name)),
        "bpchar" => own(&format!("hashbpcharextended({name} COLLATE \"C\", 0)")),
        "date" => own(&format!(
            "CASE WHEN isfinite({name}) THEN {name} - date '2000-01-01' ELSE {} END",
            text(&format!("{name}::text"))
        )),
        "time" | "timestamp" => own(&format!("{}_hash_extended({name}, 0)", column.wire)),
        "uuid" => own(&format!("uuid_hash_extended({name}, 0)")),
        // Their functions are not declared for them.
        "bytea" | "timestamptz" => own(&format!("hash_record_extended(ROW({name}), 0)")),
        _ => own(&text(&format!("({name}::text)"))),
    };
    match column.nullable {
        true => format!("coalesce({hash}, 0)"),
        false => hash,
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
                // `IS NULL` is true of a row of NULLs, too.
                true => format!(
                    "CASE WHEN {name} IS NOT DISTINCT FROM NULL THEN '~' ELSE concat({field}) END"
                ),
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
