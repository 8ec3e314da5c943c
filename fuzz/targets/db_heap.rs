//! Rows from a heap page of any bytes: what comes of it is a stream of whole tuples, as
//! `COPY ... (FORMAT binary)` has them, and nothing else.
//!
//! The first byte of the input says how many columns there are and whether the log is replayed,
//! as many bytes as columns follow with a type each, then the page.

use pagewarden_db::engine::postgres::copy::{Frames, decode};
use pagewarden_db::engine::postgres::heap::Rows;
use pagewarden_db::engine::postgres::heap::tuple::{Attribute, Kind, Layout, Width};
use pagewarden_db::engine::postgres::wire;
use pagewarden_db::row::Row;
use pagewarden_db::table::{Column, Filled, Form};

const PAGE_BYTES: usize = 8192;
/// Types, their widths and alignments.
const TYPES: [(&str, i16, usize); 12] = [
    ("bool", 1, 1),
    ("int2", 2, 2),
    ("int4", 4, 4),
    ("float8", 8, 8),
    ("timestamp", 8, 8),
    ("date", 4, 4),
    ("uuid", 16, 1),
    ("name", 64, 1),
    ("text", -1, 4),
    ("json", -1, 4),
    ("numeric", -1, 4),
    ("bytea", -1, 4),
];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [first, rest @ ..] = input else { return };
    let Some((kinds, bytes)) = rest.split_at_checked(usize::from(first & 15) + 1) else { return };
    let (mut attributes, mut wanted, mut columns) = (Vec::new(), Vec::new(), Vec::new());
    for (place, kind) in kinds.iter().enumerate() {
        let (name, length, align) = TYPES[usize::from(kind & 15) % TYPES.len()];
        let width = Width::of(if kind & 64 != 0 { -2 } else { length }).unwrap();
        attributes.push(Attribute { width, align, has_missing: kind & 32 != 0 });
        // Others were dropped, or are not wanted.
        if kind & (16 | 64) == 0 {
            wanted.push((place, Kind::of(name).unwrap()));
            let (form, exact) = wire::known(name, "b", true).unwrap();
            let (text, wire) = (String::new(), name.to_owned());
            columns.push(Column {
                name: text.clone(),
                declared: text,
                form,
                wire,
                character_set: None,
                nullable: true,
                exact,
                filled: Filled::Said,
            });
        }
    }
    let Some(layout) = Layout::new(attributes, wanted) else { return };
    let mut page = vec![0; PAGE_BYTES];
    let length = bytes.len().min(PAGE_BYTES);
    page[..length].copy_from_slice(&bytes[..length]);
    page[18..20].copy_from_slice(&[4, 32]);
    let mut rows = Rows::new(layout, first & 128 != 0);
    let Some(rows) = rows.of(&page) else { return };
    let columns: Vec<(&Column, &Form)> =
        columns.iter().map(|column| (column, &column.form)).collect();
    let mut row = Row::new();
    for tuple in rows {
        let mut stream = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
        stream.extend_from_slice(tuple);
        stream.extend_from_slice(&[255, 255]);
        let mut frames = Frames::new(columns.len());
        let mut seen = 0;
        frames
            .feed(&stream, &mut |found| {
                assert_eq!(found, tuple);
                seen += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, 1);
        frames.end().unwrap();
        // A value may be none of its type, and that is said.
        let _ = decode(&mut row, &columns, tuple);
    }
}
