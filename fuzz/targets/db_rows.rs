//! Rows as servers send them: the stream of PostgreSQL's binary COPY, cut anywhere, and the
//! values of MySQL's binary protocol.
//!
//! The first byte of the input says which; for a stream the next two choose its columns and
//! the length of its pieces.

use arbitrary::{Arbitrary as _, Unstructured};
use mysql::Value;
use pagewarden_db::engine::mysql::wire as mysql_wire;
use pagewarden_db::engine::postgres::copy::{Frames, decode};
use pagewarden_db::engine::postgres::wire;
use pagewarden_db::engine::{ENGINES, statement};
use pagewarden_db::row::Row;
use pagewarden_db::table::{Column, Filled, Form};

const POSTGRES_TYPES: [&str; 20] = [
    "bool",
    "int2",
    "int4",
    "int8",
    "oid",
    "float4",
    "float8",
    "numeric",
    "bpchar",
    "bytea",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "uuid",
    "jsonb",
    "json",
    "text",
    "name",
    "varchar",
];

const MYSQL_TYPES: [&str; 14] = [
    "tinyint",
    "decimal",
    "bit",
    "double",
    "json",
    "varchar",
    "enum",
    "binary",
    "varbinary",
    "blob",
    "date",
    "time",
    "datetime",
    "uuid",
];

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    match input {
        [mode, columns, piece, bytes @ ..] if mode % 2 == 0 => {
            let mut stream = if mode & 2 == 0 { HEADER.to_vec() } else { Vec::new() };
            stream.extend_from_slice(bytes);
            copied(usize::from(*columns), usize::from(*piece) + 1, &stream);
        }
        [_, kind, is_text, bytes @ ..] => {
            let _ = sent(usize::from(*kind), is_text % 2 == 1, bytes);
        }
        _ => {}
    }
}

/// The same rows come of a stream, whether it comes at once or in pieces.
fn copied(choice: usize, piece: usize, stream: &[u8]) {
    let columns: Vec<Column> = (0..choice % 3 + 1)
        .map(|index| {
            let wire = POSTGRES_TYPES[(choice / 3 + index * 7) % POSTGRES_TYPES.len()];
            let (form, exact) = wire::known(wire, "b", true).expect("a type that is known");
            column(wire, form, exact)
        })
        .collect();
    let asked: Vec<(&Column, &Form)> = columns.iter().map(|one| (one, &one.form)).collect();
    let read = |length: usize| {
        let (mut rows, mut row) = (Vec::new(), Row::new());
        let mut frames = Frames::new(asked.len());
        let mut see = |tuple: &[u8]| {
            decode(&mut row, &asked, tuple)?;
            assert_eq!(row.count(), columns.len());
            look_at(&row);
            rows.push(row.bytes().to_vec());
            Ok(())
        };
        let result = stream.chunks(length).try_for_each(|piece| frames.feed(piece, &mut see));
        (result.and_then(|()| frames.end()).is_ok(), rows)
    };
    assert_eq!(read(stream.len().max(1)), read(piece));
}

fn sent(kind: usize, is_text: bool, bytes: &[u8]) -> arbitrary::Result<()> {
    let wire = MYSQL_TYPES[kind % MYSQL_TYPES.len()];
    let (form, _) = mysql_wire::form_of(wire, is_text, false);
    let mut input = Unstructured::new(bytes);
    let value = match u8::arbitrary(&mut input)? % 7 {
        0 => Value::NULL,
        1 => Value::Int(input.arbitrary()?),
        2 => Value::UInt(input.arbitrary()?),
        3 => Value::Float(input.arbitrary()?),
        4 => Value::Double(input.arbitrary()?),
        5 => {
            let (year, month, day, hours, minutes, seconds, micros) = input.arbitrary()?;
            Value::Date(year, month, day, hours, minutes, seconds, micros)
        }
        _ => {
            let (negative, days, hours, minutes, seconds, micros) = input.arbitrary()?;
            Value::Time(negative, days, hours, minutes, seconds, micros)
        }
    };
    for value in [value, Value::Bytes(input.take_rest().to_vec())] {
        let mut row = Row::new();
        mysql_wire::append(&mut row, wire, &form, Some(&value));
        assert_eq!(row.count(), 1);
        look_at(&row);
        let _ = mysql_wire::text(&value);
    }
    Ok(())
}

fn column(wire: &str, form: Form, exact: bool) -> Column {
    let name = wire.to_owned();
    Column {
        declared: name.clone(),
        wire: name.clone(),
        name,
        form,
        character_set: None,
        nullable: true,
        exact,
        filled: Filled::Said,
    }
}

/// The values are the row, and every engine takes them.
fn look_at(row: &Row) {
    let mut again = Row::new();
    for value in row.values() {
        again.put(value.tag, &value.payload);
        for engine in ENGINES {
            assert!(!statement::literal(engine.dialect, &value).is_empty());
        }
    }
    assert_eq!(again.bytes(), row.bytes());
}
